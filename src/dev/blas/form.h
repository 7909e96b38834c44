/* blas_form — the forms of a product for cuBLASLt: one call of the library, and the kernels that
 * follow it. For src/dev, tests and the measurement of algorithms; only in builds with CUDA. */
#ifndef CONVOY_DEV_BLAS_FORM_H
#define CONVOY_DEV_BLAS_FORM_H

#include "dev/blas/plan.h"
#include "kernels/column.h"

#define BLAS_FORMS 2

/* What follows the call, in this order; without an output: nothing. */
struct blas_form {
    struct blas_call call;
    struct column_add bias;
    struct gelu_fwd gelu;
    struct gelu_bwd gelu_grad;
    struct column_sum bias_grad;
};

/* blas_form_fwd, blas_form_bwd_x, blas_form_bwd_w — for blas.c, and for tests: write the forms of a
 * product, the one with more in the epilogue first, and return their number; 0: this program's
 * kernel is needed. */
int blas_form_fwd(bool is_tf32, const struct matmul_fwd *a, struct blas_form out[BLAS_FORMS]);
int blas_form_bwd_x(bool is_tf32, const struct matmul_bwd_x *a, struct blas_form out[BLAS_FORMS]);
int blas_form_bwd_w(bool is_tf32, const struct matmul_bwd_w *a, struct blas_form out[BLAS_FORMS]);
/* blas_form_run — for blas.c, and for tests: runs a form. *is_done false: cuBLASLt does not take
 * the call; nothing was submitted. */
enum status blas_form_run(struct blas *b, const struct cuda *cuda, const struct blas_form *form,
                          bool *is_done);

#endif
