/* blas — describes products to the vendor's library, and runs the first form that it accepts, or
 * the plain one (blas.h). A row-major matrix (R,C) is a column-major one (C,R) with the same
 * stride, so every product here is computed transposed. Must not know the library's objects. */
#include "dev/blas/blas.h"

#include <string.h>

#include "dev/blas/form.h"
#include "dev/cuda/internal.h"

/* Returns the largest power of two up to BLAS_ALIGN that divides an address. No kernel of cuBLASLt
 * needs more (its manual: tensor cores want multiples of 16). With a larger limit, the address of a
 * layer's matrices, which differs with SHARD, would choose the kernel, and with it the bits. */
static int align_of(const void *p)
{
    uintptr_t low = (uintptr_t)p & -(uintptr_t)p;
    return low == 0 || low > BLAS_ALIGN ? BLAS_ALIGN : (int)low;
}

/* An operand: memory, element type, stride of its rows, and whether its rows are the product's
 * inner index. */
struct operand {
    struct tensor t;
    int64_t ld;
    bool is_turned;
};

/* Returns D (m,n) = A·B. The padding of the key is zero, because keys are compared as bytes. */
static struct blas_call call_of(bool is_tf32, int64_t m, int64_t n, int64_t k, struct operand a,
                                struct operand b, struct operand c, struct operand d)
{
    struct blas_call call;
    memset(&call, 0, sizeof call);
    call.shape.m = m, call.shape.n = n, call.shape.k = k;
    call.shape.lda = a.ld, call.shape.ldb = b.ld, call.shape.ldc = c.ld, call.shape.ldd = d.ld;
    call.shape.a = a.t.dtype, call.shape.b = b.t.dtype, call.shape.d = d.t.dtype;
    call.shape.align_a = align_of(a.t.data), call.shape.align_b = align_of(b.t.data);
    call.shape.align_c = align_of(c.t.data), call.shape.align_d = align_of(d.t.data);
    call.shape.is_a_transposed = a.is_turned, call.shape.is_b_transposed = b.is_turned;
    call.shape.is_tf32 = is_tf32 && a.t.dtype == DTYPE_F32;
    call.a = a.t.data, call.b = b.t.data, call.c = c.t.data, call.d = d.t.data;
    return call;
}

static void add_bias(struct blas_call *call, enum blas_epilogue epilogue, struct tensor bias)
{
    call->shape.epilogue = epilogue;
    call->shape.bias = bias.dtype;
    call->shape.is_misaligned |= align_of(bias.data) < BLAS_ALIGN;
    call->bias = bias.data;
}

static void add_aux(struct blas_call *call, enum blas_epilogue epilogue, struct tensor aux,
                    int64_t ld)
{
    call->shape.epilogue = epilogue;
    call->shape.ld_aux = ld;
    call->shape.is_misaligned |= align_of(aux.data) < BLAS_ALIGN;
    call->aux = aux.data;
}

/* ---- forward: yᵀ (O,N) = wᵀ (O,I) · xᵀ (I,N) ---- */

static struct blas_form forward_form(bool is_tf32, const struct matmul_fwd *a, struct tensor y,
                                     int64_t y_ld)
{
    bool is_io = a->layout == MATMUL_LAYOUT_IO;
    struct operand w = {a->w, is_io ? a->out : a->in, !is_io}, x = {a->x, a->in, false},
                   d = {y, y_ld, false}, c = d;
    if (a->residual.data)
        c = (struct operand){a->residual, y_ld, false};
    struct blas_form form = {.call = call_of(is_tf32, a->out, a->n, a->in, w, x, c, d)};
    form.call.beta = a->residual.data ? 1 : 0;
    if (a->b.data)
        add_bias(&form.call, BLAS_BIAS, a->b);
    return form;
}

static struct blas_form gelu_fused(bool is_tf32, const struct matmul_fwd *a, int64_t ld)
{
    struct blas_form form = forward_form(is_tf32, a, a->y, ld);
    form.call.shape.epilogue = a->b.data ? BLAS_GELU_BIAS : BLAS_GELU;
    if (a->pre.data)
        add_aux(&form.call, a->b.data ? BLAS_GELU_AUX_BIAS : BLAS_GELU_AUX, a->pre, a->out);
    return form;
}

/* Returns the form with GELU by a kernel. The product is written to `pre`, else to y, which must be
 * dense then. */
static struct blas_form gelu_apart(bool is_tf32, const struct matmul_fwd *a)
{
    struct tensor u = a->pre.data ? a->pre : a->y;
    struct blas_form form = forward_form(is_tf32, a, u, a->out);
    form.gelu = (struct gelu_fwd){.y = a->y, .x = u, .n = a->n * a->out};
    return form;
}

int blas_form_fwd(bool is_tf32, const struct matmul_fwd *a, struct blas_form out[BLAS_FORMS])
{
    int64_t ld = a->y_stride ? a->y_stride : a->out;
    int n = 0;
    if (a->dropout.p > 0)
        return 0;
    if (a->act != MATMUL_ACT_GELU)
        out[n++] = forward_form(is_tf32, a, a->y, ld);
    else if (a->x.dtype != DTYPE_F32)
        out[n++] = gelu_fused(is_tf32, a, ld);
    if (a->act == MATMUL_ACT_GELU && ld == a->out)
        out[n++] = gelu_apart(is_tf32, a);
    return n;
}

/* ---- backward ---- */

/* dxᵀ (I,N) = w (I,O) · dyᵀ (O,N). */
int blas_form_bwd_x(bool is_tf32, const struct matmul_bwd_x *a, struct blas_form out[BLAS_FORMS])
{
    bool is_io = a->layout == MATMUL_LAYOUT_IO;
    struct operand w = {a->w, is_io ? a->out : a->in, is_io}, d = {a->dx, a->in, false};
    struct operand dy = {a->dy, a->dy_stride ? a->dy_stride : a->out, false};
    struct blas_form form = {.call = call_of(is_tf32, a->in, a->n, a->out, w, dy, d, d)};
    int n = 0;
    if (a->pre.data && a->dy.dtype != DTYPE_F32) {
        out[n] = form;
        add_aux(&out[n++].call, BLAS_DGELU, a->pre, a->in);
    }
    if (a->pre.data)
        form.gelu_grad =
            (struct gelu_bwd){.dx = a->dx, .dy = a->dx, .x = a->pre, .n = a->n * a->in};
    out[n++] = form;
    return n;
}

/* Layout IO: dwᵀ (O,I) = dyᵀ (O,N) · x (N,I). OI: dwᵀ (I,O) = xᵀ (I,N) · dy (N,O). The epilogue of
 * the bias gradient overwrites. If it must accumulate, or the library has no such epilogue, a
 * kernel sums the columns of dy. */
int blas_form_bwd_w(bool is_tf32, const struct matmul_bwd_w *a, struct blas_form out[BLAS_FORMS])
{
    bool is_io = a->layout == MATMUL_LAYOUT_IO;
    int64_t stride = a->dy_stride ? a->dy_stride : a->out;
    struct operand x = {a->x, a->in, is_io}, dy = {a->dy, stride, !is_io},
                   d = {a->dw, is_io ? a->out : a->in, false};
    struct blas_form form = {.call = is_io ? call_of(is_tf32, a->out, a->in, a->n, dy, x, d, d)
                                           : call_of(is_tf32, a->in, a->out, a->n, x, dy, d, d)};
    int n = 0;
    form.call.beta = a->accumulate ? 1 : 0;
    if (a->db.data && !a->accumulate) {
        out[n] = form;
        add_bias(&out[n++].call, is_io ? BLAS_BGRAD_A : BLAS_BGRAD_B, a->db);
    }
    if (a->db.data)
        form.bias_grad = (struct column_sum){.out = a->db,
                                             .x = a->dy,
                                             .n = a->n,
                                             .c = a->out,
                                             .stride = stride,
                                             .accumulate = a->accumulate};
    out[n++] = form;
    return n;
}

/* ---- running ---- */

enum status blas_form_run(struct blas *b, const struct cuda *cuda, const struct blas_form *form,
                          bool *is_done)
{
    TRY(blas_plan_run(b, cuda, &form->call, is_done));
    if (!*is_done)
        return ST_OK;
    if (form->bias.x.data)
        TRY(dev_cuda_error_launched(dev_runtime->launch_column_add(cuda, &form->bias),
                                    "column_add"));
    if (form->gelu.y.data)
        TRY(dev_cuda_error_launched(dev_runtime->launch_gelu_fwd(cuda, &form->gelu), "gelu_fwd"));
    if (form->gelu_grad.dx.data)
        TRY(dev_cuda_error_launched(dev_runtime->launch_gelu_bwd(cuda, &form->gelu_grad),
                                    "gelu_bwd"));
    if (form->bias_grad.out.data)
        TRY(dev_cuda_error_launched(dev_runtime->launch_column_sum(cuda, &form->bias_grad),
                                    "column_sum"));
    return ST_OK;
}

/* ---- running a product ---- */

/* Runs the first form that the library accepts. */
static enum status run_first(struct blas *b, const struct cuda *cuda, const struct blas_form *form,
                             int n, bool *is_done)
{
    *is_done = false;
    for (int i = 0; i < n && !*is_done; i++)
        TRY(blas_form_run(b, cuda, &form[i], is_done));
    return ST_OK;
}

/* Runs the last form, with its bias added by a kernel. */
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
