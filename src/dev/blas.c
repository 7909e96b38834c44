/* blas — describes products to cuBLASLt (blas.h). A row-major matrix (R,C) is a column-major one
 * (C,R) with the same stride, so every product here is computed transposed. Must not know the
 * library's objects. */
#include "dev/blas.h"

#ifdef CONVOY_CUDA
#include <string.h>

#include "dev/blas_plan.h"
#include "dev/dev_cuda_internal.h"
#include "kernels/column.h"

/* align_of — the largest power of two up to BLAS_ALIGN that divides an address. No kernel of
 * cuBLASLt needs more (its manual: tensor cores want multiples of 16). A larger limit would let the
 * place of a layer's matrices, which differs with SHARD, choose the kernel, and with it the
 * bits. */
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

/* call_of — D (m,n) = A·B. The padding of the key is zero, because keys are compared as bytes. */
static struct blas_call call_of(const struct cuda *cuda, int64_t m, int64_t n, int64_t k,
                                struct operand a, struct operand b, struct operand c,
                                struct operand d)
{
    struct blas_call call;
    memset(&call, 0, sizeof call);
    call.shape.m = m, call.shape.n = n, call.shape.k = k;
    call.shape.lda = a.ld, call.shape.ldb = b.ld, call.shape.ldc = c.ld, call.shape.ldd = d.ld;
    call.shape.a = a.t.dtype, call.shape.b = b.t.dtype, call.shape.d = d.t.dtype;
    call.shape.align_a = align_of(a.t.data), call.shape.align_b = align_of(b.t.data);
    call.shape.align_c = align_of(c.t.data), call.shape.align_d = align_of(d.t.data);
    call.shape.is_a_transposed = a.is_turned, call.shape.is_b_transposed = b.is_turned;
    call.shape.is_tf32 = cuda->is_tf32 && a.t.dtype == DTYPE_F32;
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

static struct blas_call forward_call(const struct cuda *cuda, const struct matmul_fwd *a,
                                     struct tensor y, int64_t y_ld)
{
    bool is_io = a->layout == MATMUL_LAYOUT_IO;
    struct operand w = {a->w, is_io ? a->out : a->in, !is_io}, x = {a->x, a->in, false},
                   d = {y, y_ld, false}, c = d;
    if (a->residual.data)
        c = (struct operand){a->residual, a->out, false};
    struct blas_call call = call_of(cuda, a->out, a->n, a->in, w, x, c, d);
    call.beta = a->residual.data ? 1 : 0;
    if (a->b.data)
        add_bias(&call, BLAS_BIAS, a->b);
    return call;
}

/* GELU in a kernel of its own: the product goes where u is kept, or where y is dense. */
static enum status forward_gelu_apart(struct blas *b, const struct cuda *cuda,
                                      const struct matmul_fwd *a, bool *is_done)
{
    int64_t ld = a->y_stride ? a->y_stride : a->out;
    if (ld != a->out)
        return ST_OK;
    struct tensor u = a->pre.data ? a->pre : a->y;
    struct blas_call call = forward_call(cuda, a, u, a->out);
    TRY(blas_plan_run(b, cuda, &call, is_done));
    if (!*is_done)
        return ST_OK;
    return dev_cuda_error_launched(
        gelu_fwd_cuda(cuda, &(struct gelu_fwd){.y = a->y, .x = u, .n = a->n * a->out}), "gelu_fwd");
}

enum status blas_matmul_fwd(struct blas *b, const struct cuda *cuda, const struct matmul_fwd *a,
                            bool *is_done)
{
    *is_done = false;
    if (a->dropout.p > 0)
        return ST_OK;
    struct blas_call call = forward_call(cuda, a, a->y, a->y_stride ? a->y_stride : a->out);
    if (a->act == MATMUL_ACT_GELU) {
        call.shape.epilogue = a->b.data ? BLAS_GELU_BIAS : BLAS_GELU;
        if (a->pre.data)
            add_aux(&call, a->b.data ? BLAS_GELU_AUX_BIAS : BLAS_GELU_AUX, a->pre, a->out);
    }
    TRY(blas_plan_run(b, cuda, &call, is_done));
    if (!*is_done && a->act == MATMUL_ACT_GELU)
        return forward_gelu_apart(b, cuda, a, is_done);
    return ST_OK;
}

/* ---- backward ---- */

/* dxᵀ (I,N) = w (I,O) · dyᵀ (O,N). */
enum status blas_matmul_bwd_x(struct blas *b, const struct cuda *cuda, const struct matmul_bwd_x *a,
                              bool *is_done)
{
    bool is_io = a->layout == MATMUL_LAYOUT_IO;
    struct operand w = {a->w, is_io ? a->out : a->in, is_io}, d = {a->dx, a->in, false};
    struct operand dy = {a->dy, a->dy_stride ? a->dy_stride : a->out, false};
    struct blas_call call = call_of(cuda, a->in, a->n, a->out, w, dy, d, d), plain = call;
    if (!a->pre.data)
        return blas_plan_run(b, cuda, &call, is_done);
    add_aux(&call, BLAS_DGELU, a->pre, a->in);
    TRY(blas_plan_run(b, cuda, &call, is_done));
    if (*is_done)
        return ST_OK;
    TRY(blas_plan_run(b, cuda, &plain, is_done));
    if (!*is_done)
        return ST_OK;
    return dev_cuda_error_launched(
        gelu_bwd_cuda(cuda,
                      &(struct gelu_bwd){.dx = a->dx, .dy = a->dx, .x = a->pre, .n = a->n * a->in}),
        "gelu_bwd");
}

/* Layout IO: dwᵀ (O,I) = dyᵀ (O,N) · x (N,I). OI: dwᵀ (I,O) = xᵀ (I,N) · dy (N,O). The epilogue of
 * the bias gradient overwrites. Where it must accumulate, or cuBLASLt has no such epilogue, a
 * kernel sums the columns of dy. */
enum status blas_matmul_bwd_w(struct blas *b, const struct cuda *cuda, const struct matmul_bwd_w *a,
                              bool *is_done)
{
    bool is_io = a->layout == MATMUL_LAYOUT_IO;
    int64_t stride = a->dy_stride ? a->dy_stride : a->out;
    struct operand x = {a->x, a->in, is_io}, dy = {a->dy, stride, !is_io},
                   d = {a->dw, is_io ? a->out : a->in, false};
    struct blas_call plain = is_io ? call_of(cuda, a->out, a->in, a->n, dy, x, d, d)
                                   : call_of(cuda, a->in, a->out, a->n, x, dy, d, d);
    plain.beta = a->accumulate ? 1 : 0;
    *is_done = false;
    if (a->db.data && !a->accumulate) {
        struct blas_call call = plain;
        add_bias(&call, is_io ? BLAS_BGRAD_A : BLAS_BGRAD_B, a->db);
        TRY(blas_plan_run(b, cuda, &call, is_done));
        if (*is_done)
            return ST_OK;
    }
    TRY(blas_plan_run(b, cuda, &plain, is_done));
    if (!*is_done || !a->db.data)
        return ST_OK;
    const struct column_sum sum = {.out = a->db,
                                   .x = a->dy,
                                   .n = a->n,
                                   .c = a->out,
                                   .stride = stride,
                                   .accumulate = a->accumulate};
    return dev_cuda_error_launched(column_sum_cuda(cuda, &sum), "column_sum");
}
#endif
