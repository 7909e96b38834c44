/* branch_add — the end of a branch of a block: bias, dropout and residual. Used if the product's
 * epilogue cannot do it, because the sums of several ranks must be added first. Must not know ranks
 * or layers. */
#ifndef CONVOY_KERNELS_BRANCH_ADD_H
#define CONVOY_KERNELS_BRANCH_ADD_H
#include "kernels/tensor.h"

/* branch_add — y[n,c] = residual[n,c] + drop(x[n,c] + b[c]).
 * out  y (N,C)  may be x or residual
 * in   x, residual (N,C)
 *      b (C)  NULL: no bias
 *      dropout  element index n·C + c; a dropped element is residual, whatever x is
 * Tolerance to plain: nmse 1e-13. The same sum as the epilogue of matmul_fwd. */
struct branch_add {
    struct tensor y, x, b, residual;
    int64_t n, c;
    struct dropout dropout;
};
#endif
