/* dev_check — the contracts of kernels/ as conditions. Must not know devices. */
#include "dev/dev_check.h"

#include <math.h>

#include "dev/dev_check_args.h"

enum status dev_check_embed_fwd(const struct embed_fwd *a, bool takes_halves)
{
#define OP "embed_fwd"
    HAS_FLOAT(x);
    HAS(tokens, I32);
    HAS_FLOAT(wte);
    MAY_FLOAT(wpe);
    MIN(n, 0);
    MIN(t, 1);
    MIN(c, 1);
    MIN(first, 0);
    MIN(rows, 0);
    TRY(check_product(OP, a->n, a->c));
    return check_dropout(OP, &a->dropout);
#undef OP
}

enum status dev_check_embed_bwd(const struct embed_bwd *a, bool takes_halves)
{
#define OP "embed_bwd"
    MAY(dwte, F32);
    MAY(dwpe, F32);
    HAS_FLOAT(dx);
    HAS(tokens, I32);
    MIN(n, 0);
    MIN(t, 1);
    MIN(c, 1);
    MIN(v, 1);
    MIN(first, 0);
    TRY(check_size(OP, "rows", a->rows, 0, a->v));
    if (a->dwpe.data)
        MIN(context, a->t);
    TRY(check_product(OP, a->n, a->c));
    TRY(check_product(OP, a->v, a->c));
    return check_dropout(OP, &a->dropout);
#undef OP
}

/* RMSNorm has neither mean nor shift. */
static enum status check_norm_kind(const char *op, enum norm_kind kind, const void *mean,
                                   const void *shift)
{
    bool is_known = kind == NORM_KIND_LAYER || kind == NORM_KIND_RMS;
    TRY(check_that(op, "kind is LAYER or RMS", is_known));
    return check_that(op, "RMS: no mean, no shift", kind == NORM_KIND_LAYER || !(mean || shift));
}

enum status dev_check_norm_fwd(const struct norm_fwd *a, bool takes_halves)
{
#define OP "norm_fwd"
    HAS_FLOAT(y);
    MAY(mean, F32);
    MAY(rstd, F32);
    HAS_FLOAT(x);
    HAS_FLOAT(w);
    MAY_FLOAT(b);
    MIN(n, 0);
    MIN(c, 1);
    THAT(a->eps > 0);
    TRY(check_norm_kind(OP, a->kind, a->mean.data, a->b.data));
    return check_product(OP, a->n, a->c);
#undef OP
}

enum status dev_check_norm_bwd(const struct norm_bwd *a, bool takes_halves)
{
#define OP "norm_bwd"
    HAS_FLOAT(dx);
    HAS(dw, F32);
    MAY(db, F32);
    HAS_FLOAT(dy);
    HAS_FLOAT(x);
    if (a->kind == NORM_KIND_LAYER)
        HAS(mean, F32);
    HAS(rstd, F32);
    HAS_FLOAT(w);
    MAY_FLOAT(dresidual);
    MIN(n, 0);
    MIN(c, 1);
    TRY(check_norm_kind(OP, a->kind, a->mean.data, a->db.data));
    return check_product(OP, a->n, a->c);
#undef OP
}

/* Heads of d elements in n rows, `stride` apart. */
static enum status check_head_rows(const char *op, int64_t n, int64_t heads, int64_t d,
                                   int64_t stride)
{
    TRY(check_size(op, "n", n, 0, ELEMS_MAX));
    TRY(check_size(op, "heads", heads, 1, ELEMS_MAX));
    TRY(check_size(op, "d", d, 1, ELEMS_MAX));
    TRY(check_product(op, heads, d));
    TRY(check_size(op, "stride", stride, heads * d, ELEMS_MAX));
    return check_product(op, n, stride);
}

enum status dev_check_head_norm_fwd(const struct head_norm_fwd *a, bool takes_halves)
{
#define OP "head_norm_fwd"
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    HAS_FLOAT(w);
    THAT(a->eps > 0);
    return check_head_rows(OP, a->n, a->heads, a->d, a->stride);
#undef OP
}

enum status dev_check_head_norm_bwd(const struct head_norm_bwd *a, bool takes_halves)
{
#define OP "head_norm_bwd"
    HAS_FLOAT(dx);
    HAS(dw, F32);
    HAS_FLOAT(dy);
    HAS_FLOAT(x);
    HAS_FLOAT(w);
    THAT(a->eps > 0);
    return check_head_rows(OP, a->n, a->heads, a->d, a->stride);
#undef OP
}

/* Positions up to 2^24 are exact in f32. */
#define ROPE_POSITIONS_MAX ((int64_t)1 << 24)

static enum status check_rotation(const char *op, int64_t rot, int64_t most)
{
    TRY(check_size(op, "rot", rot, 2, most < 2 * ROPE_FREQ_MAX ? most : 2 * ROPE_FREQ_MAX));
    return check_that(op, "rot is even", rot % 2 == 0);
}

enum status dev_check_rope_table(const struct rope_table *a, bool takes_halves)
{
    (void)takes_halves; /* angles need f32 */
#define OP "rope_table"
    HAS(table, F32);
    TRY(check_size(OP, "first", a->first, 0, ROPE_POSITIONS_MAX));
    TRY(check_size(OP, "t", a->t, 0, ROPE_POSITIONS_MAX - a->first));
    TRY(check_rotation(OP, a->rot, 2 * ROPE_FREQ_MAX));
    THAT(isfinite(a->scale));
    for (int64_t i = 0; i < a->rot / 2; i++)
        THAT(a->freq[i] >= 0 && a->freq[i] <= 1);
    return ST_OK;
#undef OP
}

enum status dev_check_rope(const struct rope *a, bool takes_halves)
{
#define OP "rope"
    HAS_FLOAT(x);
    HAS(table, F32);
    MIN(n, 0);
    MIN(t, 1);
    MIN(h, 1);
    MIN(hk, 1);
    MIN(d, 1);
    THAT(a->h % a->hk == 0);
    THAT(a->layout == ATTENTION_LAYOUT_QKV || a->layout == ATTENTION_LAYOUT_HEADS);
    THAT(a->layout == ATTENTION_LAYOUT_QKV || a->hk == a->h);
    TRY(check_rotation(OP, a->rot, a->d));
    TRY(check_product(OP, a->h + 2 * a->hk, a->d));
    TRY(check_product(OP, a->t, a->rot));
    return check_product(OP, a->n, (a->h + 2 * a->hk) * a->d);
#undef OP
}

enum status dev_check_matmul_fwd(const struct matmul_fwd *a, bool takes_halves)
{
#define OP "matmul_fwd"
    HAS_FLOAT(y);
    MAY_FLOAT(pre);
    HAS_FLOAT(x);
    HAS_FLOAT(w);
    MAY_FLOAT(b);
    MAY_FLOAT(residual);
    MIN(n, 1);
    MIN(in, 1);
    MIN(out, 1);
    THAT(a->y_stride == 0 || a->y_stride >= a->out);
    THAT(!a->pre.data || a->act == MATMUL_ACT_GELU);
    THAT(!a->residual.data || a->act == MATMUL_ACT_NONE);
    THAT(a->dropout.p == 0 || a->residual.data);
    TRY(check_product(OP, a->n, a->y_stride ? a->y_stride : a->out));
    TRY(check_product(OP, a->n, a->in));
    TRY(check_product(OP, a->in, a->out));
    return check_dropout(OP, &a->dropout);
#undef OP
}

enum status dev_check_matmul_bwd_x(const struct matmul_bwd_x *a, bool takes_halves)
{
#define OP "matmul_bwd_x"
    HAS_FLOAT(dx);
    HAS_FLOAT(dy);
    HAS_FLOAT(w);
    MAY_FLOAT(pre);
    return check_matmul(OP, a->n, a->in, a->out, a->dy_stride);
#undef OP
}

enum status dev_check_matmul_bwd_w(const struct matmul_bwd_w *a, bool takes_halves)
{
#define OP "matmul_bwd_w"
    HAS(dw, F32);
    MAY(db, F32);
    HAS_FLOAT(x);
    HAS_FLOAT(dy);
    return check_matmul(OP, a->n, a->in, a->out, a->dy_stride);
#undef OP
}

enum status dev_check_gelu_fwd(const struct gelu_fwd *a, bool takes_halves)
{
#define OP "gelu_fwd"
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    MIN(n, 0);
    THAT(a->kind == GELU_KIND_TANH || a->kind == GELU_KIND_ERF);
    return ST_OK;
#undef OP
}

enum status dev_check_gelu_bwd(const struct gelu_bwd *a, bool takes_halves)
{
#define OP "gelu_bwd"
    HAS_FLOAT(dx);
    HAS_FLOAT(dy);
    HAS_FLOAT(x);
    MIN(n, 0);
    THAT(a->kind == GELU_KIND_TANH || a->kind == GELU_KIND_ERF);
    return ST_OK;
#undef OP
}

enum status dev_check_relu2_fwd(const struct relu2_fwd *a, bool takes_halves)
{
#define OP "relu2_fwd"
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    MIN(n, 0);
    return ST_OK;
#undef OP
}

enum status dev_check_relu2_bwd(const struct relu2_bwd *a, bool takes_halves)
{
#define OP "relu2_bwd"
    HAS_FLOAT(dx);
    HAS_FLOAT(dy);
    HAS_FLOAT(x);
    MIN(n, 0);
    return ST_OK;
#undef OP
}

enum status dev_check_swiglu_fwd(const struct swiglu_fwd *a, bool takes_halves)
{
#define OP "swiglu_fwd"
    HAS_FLOAT(y);
    HAS_FLOAT(gu);
    MIN(n, 0);
    MIN(f, 1);
    TRY(check_product(OP, 2, a->f));
    return check_product(OP, a->n, 2 * a->f);
#undef OP
}

enum status dev_check_swiglu_bwd(const struct swiglu_bwd *a, bool takes_halves)
{
#define OP "swiglu_bwd"
    HAS_FLOAT(dgu);
    HAS_FLOAT(dy);
    HAS_FLOAT(gu);
    MIN(n, 0);
    MIN(f, 1);
    TRY(check_product(OP, 2, a->f));
    return check_product(OP, a->n, 2 * a->f);
#undef OP
}

enum status dev_check_softcap(const struct softcap *a, bool takes_halves)
{
#define OP "softcap"
    HAS_FLOAT(x);
    MIN(n, 0);
    MIN(v, 1);
    MIN(stride, a->v);
    THAT(a->cap > 0 && a->cap < INFINITY);
    return check_product(OP, a->n, a->stride);
#undef OP
}

enum status dev_check_xent(const struct xent *a, bool takes_halves)
{
#define OP "xent"
    HAS_FLOAT(logits);
    HAS(losses, F32);
    HAS(targets, I32);
    MIN(n, 0);
    MIN(v, 1);
    MIN(stride, a->v);
    THAT(a->cap >= 0 && a->cap < INFINITY);
    return check_product(OP, a->n, a->stride);
#undef OP
}

enum status dev_check_xent_part(const struct xent_part *a, bool takes_halves)
{
#define OP "xent_part"
    HAS(stats, F32);
    HAS_FLOAT(logits);
    HAS(targets, I32);
    TRY(check_columns(OP, a->n, a->v_first, a->v_n, a->stride));
    return check_product(OP, a->n, 3);
#undef OP
}

enum status dev_check_xent_join(const struct xent_join *a, bool takes_halves)
{
#define OP "xent_join"
    HAS_FLOAT(logits);
    HAS(losses, F32);
    HAS(stats, F32);
    HAS(targets, I32);
    TRY(check_columns(OP, a->n, a->v_first, a->v_n, a->stride));
    TRY(check_size(OP, "parts", a->parts, 1, INT32_MAX));
    TRY(check_product(OP, a->n, 3));
    THAT(a->cap >= 0 && a->cap < INFINITY);
    THAT(a->stats_stride == 0 || a->stats_stride >= 3 * a->n);
    return check_product(OP, a->parts, a->stats_stride ? a->stats_stride : 3 * a->n);
#undef OP
}

enum status dev_check_qa_xent(const struct qa_xent *a, bool takes_halves)
{
#define OP "qa_xent"
    HAS(losses, F32);
    MAY_FLOAT(dlogits);
    HAS_FLOAT(logits);
    HAS(starts, I32);
    HAS(ends, I32);
    MIN(b, 0);
    MIN(t, 1);
    return check_product(OP, a->b, a->t);
#undef OP
}

enum status dev_check_drop(const struct drop *a, bool takes_halves)
{
#define OP "drop"
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    MIN(n, 0);
    return check_dropout(OP, &a->dropout);
#undef OP
}

enum status dev_check_branch_add(const struct branch_add *a, bool takes_halves)
{
#define OP "branch_add"
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    MAY_FLOAT(b);
    HAS_FLOAT(residual);
    MIN(n, 0);
    MIN(c, 1);
    TRY(check_product(OP, a->n, a->c));
    return check_dropout(OP, &a->dropout);
#undef OP
}

enum status dev_check_sum(const struct sum *a, bool takes_halves)
{
#define OP "sum"
    HAS(out, F64);
    HAS_FLOAT(x);
    MIN(n, 0);
    return ST_OK;
#undef OP
}

enum status dev_check_sumsq(const struct sumsq *a, bool takes_halves)
{
#define OP "sumsq"
    HAS(out, F64);
    HAS_FLOAT(x);
    MIN(n, 0);
    if (a->by_block && a->accumulate)
        return FAIL(ST_BUG, OP ": by_block does not accumulate");
    return ST_OK;
#undef OP
}

static enum status check_spans(const char *op, const struct optim_span *spans, int64_t spans_n)
{
    int64_t end = 0;
    TRY(check_size(op, "spans_n", spans_n, 0, ELEMS_MAX));
    for (int64_t i = 0; i < spans_n; i++) {
        TRY(check_size(op, "a span's offset", spans[i].offset, end, ELEMS_MAX));
        TRY(check_size(op, "a span's elems", spans[i].elems, 0, ELEMS_MAX));
        end = spans[i].offset + spans[i].elems;
    }
    return ST_OK;
}

enum status dev_check_grad_scale(const struct grad_scale *a, bool takes_halves)
{
    (void)takes_halves;
#define OP "grad_scale"
    HAS(out, F64);
    HAS(squares, F64);
    HAS(loss, F64);
    MIN(squares_n, 0);
    THAT(a->loss_scale >= 0);
    return ST_OK;
#undef OP
}

/* The kernels of GPUs, which take halves, make no sums of bits. */
enum status dev_check_adamw(const struct adamw *a, bool takes_halves)
{
#define OP "adamw"
    THAT(!a->sums || !takes_halves);
    HAS(p, F32);
    HAS(g, F32);
    HAS(m, F32);
    HAS(v, F32);
    THAT(!a->copy.data || a->copy.dtype == DTYPE_BF16 || a->copy.dtype == DTYPE_F16);
    MAY(grad_scale, F64);
    MIN(step, 1);
    THAT(a->beta1 >= 0 && a->beta1 < 1);
    THAT(a->beta2 >= 0 && a->beta2 < 1);
    THAT(a->eps >= 0);
    return check_spans(OP, a->spans, a->spans_n);
#undef OP
}

enum status dev_check_sgd(const struct sgd *a, bool takes_halves)
{
#define OP "sgd"
    THAT(!a->sums || !takes_halves);
    HAS(p, F32);
    HAS(g, F32);
    if (a->momentum != 0)
        HAS(m, F32);
    MAY(grad_scale, F64);
    MIN(step, 1);
    return check_spans(OP, a->spans, a->spans_n);
#undef OP
}

enum status dev_check_compress(const struct compress *a, bool takes_halves)
{
    (void)takes_halves;
#define OP "compress"
    HAS(packed, U8);
    MAY(residual, F32);
    HAS(x, F32);
    MIN(n, 0);
    return ST_OK;
#undef OP
}

enum status dev_check_expand(const struct expand *a, bool takes_halves)
{
    (void)takes_halves;
#define OP "expand"
    HAS(y, F32);
    HAS(packed, U8);
    MIN(n, 0);
    return ST_OK;
#undef OP
}

/* A dtype that is summed as it is: f32, f64, bf16, f16. */
static enum status check_summed(const char *op, const char *field, const struct tensor *t)
{
    bool is_known = t->dtype == DTYPE_F64 || t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16;
    return check_tensor(op, field, t, is_known ? t->dtype : DTYPE_F32);
}

enum status dev_check_combine(const struct combine *a, bool takes_halves)
{
    (void)takes_halves; /* sums between ranks are the same everywhere */
#define OP "combine"
    TRY(check_summed(OP, "out", &a->out));
    TRY(check_summed(OP, "in", &a->in));
    TRY(check_tensor(OP, "own", &a->own, a->in.dtype));
    THAT((a->in.dtype == DTYPE_F64) == (a->out.dtype == DTYPE_F64));
    THAT(a->in.dtype == a->out.dtype || a->in.dtype == DTYPE_F32 || a->out.dtype == DTYPE_F32);
    MIN(elems, 0);
    TRY(check_size(OP, "sources_n", a->sources_n, 1, COMBINE_SOURCES_MAX));
    TRY(check_size(OP, "own_i", a->own_i, 0, a->sources_n - 1));
    THAT(a->sources_n == 1 || a->stride >= a->elems);
    return check_product(OP, a->sources_n, a->stride > 0 ? a->stride : 0);
#undef OP
}

enum status dev_check_copy_2d(const struct copy_2d *a, bool takes_halves)
{
    (void)takes_halves; /* bytes are copied */
#define OP "copy_2d"
    TRY(check_size(OP, "dtype", (int64_t)a->x.dtype, 0, DTYPE_N - 1));
    TRY(check_tensor(OP, "y", &a->y, a->x.dtype));
    TRY(check_tensor(OP, "x", &a->x, a->x.dtype));
    MIN(rows, 0);
    MIN(columns, 1);
    MIN(y_stride, a->columns);
    MIN(x_stride, a->columns);
    TRY(check_product(OP, a->rows, a->y_stride));
    return check_product(OP, a->rows, a->x_stride);
#undef OP
}

enum status dev_check_cast(const struct cast *a, bool takes_halves)
{
    (void)takes_halves; /* what it is for */
#define OP "cast"
    TRY(check_float(OP, "y", &a->y, true));
    TRY(check_float(OP, "x", &a->x, true));
    MIN(n, 0);
    return ST_OK;
#undef OP
}
