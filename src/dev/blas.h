/* blas — the dense products of kernels/matmul.h by NVIDIA's cuBLASLt, which is opened when it is
 * there.
 *
 * Row-major y (N,O) is column-major (O,N), so y = x·w is asked for as yᵀ = wᵀ·xᵀ and nothing is
 * moved. Bias, GELU, its gradient, the residual and the bias gradient are cuBLASLt's epilogues
 * where it has them; what it has not is done by a kernel after it, or the whole product is left to
 * kernels/matmul.cu (*is_done false). What was found for a shape is kept. One stream, one blas.
 * Must not know models. Only where CUDA is built in. */
#ifndef CONVOY_DEV_BLAS_H
#define CONVOY_DEV_BLAS_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/cuda.h"

struct blas; /* blas_plan.h opens and closes it */

/* The contracts of kernels/matmul.h. *is_done false: nothing was asked of the device. */
enum status blas_matmul_fwd(struct blas *b, const struct cuda *cuda, const struct matmul_fwd *a,
                            bool *is_done);
enum status blas_matmul_bwd_x(struct blas *b, const struct cuda *cuda, const struct matmul_bwd_x *a,
                              bool *is_done);
enum status blas_matmul_bwd_w(struct blas *b, const struct cuda *cuda, const struct matmul_bwd_w *a,
                              bool *is_done);

#endif
