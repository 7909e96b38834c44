/* blas_form — the forms of a product for cuBLASLt or hipBLASLt: one call of the library, and the
 * kernels that follow it. For src/dev, tests and the measurement of algorithms. */
#ifndef CONVOY_DEV_BLAS_FORM_H
#define CONVOY_DEV_BLAS_FORM_H

#include "dev/blas/plan.h"
#include "kernels/column.h"

#define BLAS_FORMS 2

/* A call and the kernels after it, in this order; a member without an output does nothing. */
struct blas_form {
    struct blas_call call;
    struct column_add bias;
    struct gelu_fwd gelu;
    struct gelu_bwd gelu_grad;
    struct column_sum bias_grad;
};

/* blas_form_fwd — writes the forms of a product, the form with more in the epilogue first, and
 * returns their number; 0: this program's kernel is needed. For blas.c, and for tests, as are the
 * next two. */
int blas_form_fwd(bool is_tf32, const struct matmul_fwd *a, struct blas_form out[BLAS_FORMS]);
/* blas_form_bwd_x — does the same for the gradient of the input; at least 1 form. */
int blas_form_bwd_x(bool is_tf32, const struct matmul_bwd_x *a, struct blas_form out[BLAS_FORMS]);
/* blas_form_bwd_w — does the same for the gradients of weights and bias; at least 1 form. */
int blas_form_bwd_w(bool is_tf32, const struct matmul_bwd_w *a, struct blas_form out[BLAS_FORMS]);
/* blas_form_run — runs a form. *is_done false: the library does not accept the call; nothing was
 * submitted. For blas.c, and for tests. */
enum status blas_form_run(struct blas *b, const struct cuda *cuda, const struct blas_form *form,
                          bool *is_done);

#endif
