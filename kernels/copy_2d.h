/* copy_2d — rows of numbers, from rows with one stride to rows with another: columns of a matrix to
 * a matrix of their own, or back, with a factor if wanted. Must not know the meaning of the
 * numbers. */
#ifndef CONVOY_KERNELS_COPY_2D_H
#define CONVOY_KERNELS_COPY_2D_H
#include "kernels/tensor.h"

/* copy_2d — y[i·y_stride + j] ← scale · x[i·x_stride + j], i < rows, j < columns.
 * out  y  the elements between its rows stay
 * in   x  of y's element type; must not overlap y, but may be y itself with the same stride
 *      y_stride, x_stride  in elements; at least `columns`
 *      scale  0: none, and the elements are of any type; else f32, bf16 or f16
 * Exact: a product is rounded once from f32. */
struct copy_2d {
    struct tensor y, x;
    int64_t rows, columns, y_stride, x_stride;
    float scale;
};
#endif
