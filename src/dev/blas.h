/* blas — the dense products of kernels/matmul.h through NVIDIA's cuBLASLt, where that is installed.
 *
 * Row-major y (N,O) is column-major (O,N). So y = x·w is computed as yᵀ = wᵀ·xᵀ, and nothing is
 * copied. Bias, GELU, its gradient, the residual and the bias gradient are cuBLASLt's epilogues
 * where it has them. What it does not have is done by a kernel afterwards, or the whole product is
 * left to kernels/matmul.cu (*is_done false). The algorithm that was chosen for a shape is kept. A
 * struct blas belongs to one stream. Only in builds with CUDA. Must not know models. */
#ifndef CONVOY_DEV_BLAS_H
#define CONVOY_DEV_BLAS_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/cuda.h"

struct blas; /* blas_plan.h opens and closes it */

/* The contracts of kernels/matmul.h. *is_done false: nothing was submitted to the device. */
enum status blas_matmul_fwd(struct blas *b, const struct cuda *cuda, const struct matmul_fwd *a,
                            bool *is_done);
enum status blas_matmul_bwd_x(struct blas *b, const struct cuda *cuda, const struct matmul_bwd_x *a,
                              bool *is_done);
enum status blas_matmul_bwd_w(struct blas *b, const struct cuda *cuda, const struct matmul_bwd_w *a,
                              bool *is_done);

#endif
