/* blas — the dense products of kernels/matmul.h through NVIDIA's cuBLASLt or AMD's hipBLASLt, if it
 * is installed.
 *
 * Row-major y (N,O) is column-major (O,N). So y = x·w is computed as yᵀ = wᵀ·xᵀ, and nothing is
 * copied. A product has one or two forms:
 *   fused   bias, GELU, its gradient and the bias gradient are epilogues of the library; the
 *           residual is its C
 *   apart   GELU, its gradient and the bias gradient are done by a kernel afterwards
 * The second form is used if the library does not have the first, or if the table of algorithms
 * lists it as faster (blas/tuned.h). fp32 products have no GELU in the epilogue: its accuracy is
 * not documented, and fp32 results are compared with the CPU's. If the library has neither form,
 * the product is left to kernels/matmul.cu (*is_done false). A struct blas belongs to one stream.
 * Must not know models. */
#ifndef CONVOY_DEV_BLAS_H
#define CONVOY_DEV_BLAS_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/cuda.h"

struct blas; /* blas/plan.h opens and closes it */

/* blas_matmul_fwd — computes the product of struct matmul_fwd (kernels/matmul.h). is_plain: no
 * epilogue at all (CONVOY_BLAS=plain); bias, GELU and gradients are computed by separate kernels.
 * *is_done false: nothing was submitted to the device. */
enum status blas_matmul_fwd(struct blas *b, const struct cuda *cuda, bool is_plain,
                            const struct matmul_fwd *a, bool *is_done);
/* blas_matmul_bwd_x — computes the gradient of the input; is_plain and *is_done as in
 * blas_matmul_fwd. */
enum status blas_matmul_bwd_x(struct blas *b, const struct cuda *cuda, bool is_plain,
                              const struct matmul_bwd_x *a, bool *is_done);
/* blas_matmul_bwd_w — computes the gradients of weights and bias; is_plain and *is_done as in
 * blas_matmul_fwd. */
enum status blas_matmul_bwd_w(struct blas *b, const struct cuda *cuda, bool is_plain,
                              const struct matmul_bwd_w *a, bool *is_done);

#endif
