/* blas — runs the first form of a product that cuBLASLt takes, or the plain one (blas.h). Must not
 * know the library's objects. */
#include "dev/blas.h"

#ifdef CONVOY_CUDA
#include "dev/blas_form.h"

/* run_first — the first form that cuBLASLt takes. */
static enum status run_first(struct blas *b, const struct cuda *cuda, const struct blas_form *form,
                             int n, bool *is_done)
{
    *is_done = false;
    for (int i = 0; i < n && !*is_done; i++)
        TRY(blas_form_run(b, cuda, &form[i], is_done));
    return ST_OK;
}

/* run_plain — the last form, with its bias added by a kernel. */
static enum status run_plain(struct blas *b, const struct cuda *cuda, const struct blas_form *forms,
                             int n, struct tensor bias, bool *is_done)
{
    *is_done = false;
    if (n == 0)
        return ST_OK;
    struct blas_form form = forms[n - 1];
    struct blas_shape *shape = &form.call.shape;
    if (shape->epilogue != BLAS_NONE && shape->epilogue != BLAS_BIAS)
        return ST_OK; /* GELU with rows that are not dense: this program's kernel */
    if (shape->epilogue == BLAS_BIAS) {
        form.bias = (struct column_add){.x = {form.call.d, shape->d},
                                        .row = bias,
                                        .n = shape->n,
                                        .c = shape->m,
                                        .stride = shape->ldd};
        shape->bias = DTYPE_F32;
        shape->is_misaligned = 0;
    }
    shape->epilogue = BLAS_NONE;
    return blas_form_run(b, cuda, &form, is_done);
}

#define BLAS_MATMUL(name, forms_of, bias)                                           \
    enum status blas_##name(struct blas *b, const struct cuda *cuda, bool is_plain, \
                            const struct name *a, bool *is_done)                    \
    {                                                                               \
        struct blas_form form[BLAS_FORMS];                                          \
        int n = forms_of(cuda->is_tf32, a, form);                                   \
        return is_plain ? run_plain(b, cuda, form, n, bias, is_done)                \
                        : run_first(b, cuda, form, n, is_done);                     \
    }
BLAS_MATMUL(matmul_fwd, blas_form_fwd, a->b)
BLAS_MATMUL(matmul_bwd_x, blas_form_bwd_x, (struct tensor){0})
BLAS_MATMUL(matmul_bwd_w, blas_form_bwd_w, (struct tensor){0})
#endif
