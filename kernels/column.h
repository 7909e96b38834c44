/* column — sums over the rows of a matrix, and a row added to each row: a bias and its gradient, if
 * no product's epilogue computes them. For CUDA only. Must not know the meaning of the matrix. */
#ifndef CONVOY_KERNELS_COLUMN_H
#define CONVOY_KERNELS_COLUMN_H
#include "kernels/cuda.h"

/* column_sum — out[c] (+)= Σ_n x[n,c].
 * out  out (C) f32  added to when accumulate, else replaced
 * in   x (N,C)  row stride `stride` ≥ C
 * The order of the sum depends only on the shape. Uses cuda->scratch. Tolerance to a sum in
 * double: nmse 1e-12. */
struct column_sum {
    struct tensor out, x;
    int64_t n, c, stride;
    bool accumulate;
};
/* column_add — x[n,c] += row[c].
 * out  x (N,C)  row stride `stride` ≥ C
 * in   row (C)  of x's element type
 * The sum is rounded once. */
struct column_add {
    struct tensor x, row;
    int64_t n, c, stride;
};
#ifdef __cplusplus
extern "C" {
#endif
int column_sum_cuda(const struct cuda *cuda, const struct column_sum *a);
int column_add_cuda(const struct cuda *cuda, const struct column_add *a);
#ifdef __cplusplus
}
#endif

#endif
