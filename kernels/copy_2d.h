/* copy_2d — rows of numbers, from rows with one stride to rows with another: columns of a matrix to
 * a matrix of their own, or back. Must not know the meaning of the numbers. */
#ifndef CONVOY_KERNELS_COPY_2D_H
#define CONVOY_KERNELS_COPY_2D_H
#include "kernels/tensor.h"

/* copy_2d — y[i·y_stride + j] ← x[i·x_stride + j], i < rows, j < columns.
 * out  y  the elements between its rows stay
 * in   x  of y's element type, any; must not overlap y
 *      y_stride, x_stride  in elements; at least `columns`
 * Exact. */
struct copy_2d {
    struct tensor y, x;
    int64_t rows, columns, y_stride, x_stride;
};
#endif
