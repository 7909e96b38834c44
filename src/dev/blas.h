/* blas — the dense products of kernels/matmul.h by NVIDIA's cuBLASLt, which is opened when it is there.
 *
 * Row-major y (N,O) is column-major (O,N), so y = x·w is asked for as yᵀ = wᵀ·xᵀ and nothing is moved. Bias,
 * GELU, its gradient, the residual and the bias gradient are cuBLASLt's epilogues where it has them; what it
 * has not is done by a kernel after it, or the whole product is left to kernels/matmul.cu (*is_done false).
 * What was found for a shape is kept. One stream, one blas. Must not know models. Only where CUDA is built in. */
#ifndef CONVOY_DEV_BLAS_H
#define CONVOY_DEV_BLAS_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/cuda.h"

struct blas;

/* blas_open — ST_NO_DEVICE: no library, with where it was looked for. */
enum status blas_open(struct blas **out);
void blas_close(struct blas *b);              /* accepts NULL */
const char *blas_about(const struct blas *b); /* "13.0.2 from /usr/…/libcublasLt.so.13"; until blas_close */

/* The contracts of kernels/matmul.h. *is_done false: nothing was asked of the device. */
enum status blas_matmul_fwd(struct blas *b, const struct cuda *cuda, const struct matmul_fwd *a, bool *is_done);
enum status blas_matmul_bwd_x(struct blas *b, const struct cuda *cuda, const struct matmul_bwd_x *a,
                              bool *is_done);
enum status blas_matmul_bwd_w(struct blas *b, const struct cuda *cuda, const struct matmul_bwd_w *a,
                              bool *is_done);

#endif
