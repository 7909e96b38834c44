/* column — sums over the rows of a matrix: a bias gradient, where no product's epilogue makes it.
 * For CUDA only. Must not know what the matrix is. */
#ifndef CONVOY_KERNELS_COLUMN_H
#define CONVOY_KERNELS_COLUMN_H
#include "kernels/cuda.h"

/* column_sum — out[c] (+)= Σ_n x[n,c].
 * out  out (C) f32  added to when accumulate, else replaced
 * in   x (N,C)  row stride `stride` ≥ C
 * The order of the sum depends on the shape alone. Uses cuda->scratch. Tolerance to a sum in
 * double: nmse 1e-12. */
struct column_sum {
    struct tensor out, x;
    int64_t n, c, stride;
    bool accumulate;
};
#ifdef __cplusplus
extern "C"
#endif
    int
    column_sum_cuda(const struct cuda *cuda, const struct column_sum *a);

#endif
