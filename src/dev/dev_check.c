/* dev_check — the contracts of kernels/ as conditions. Must not know devices. */
#include "dev/dev_check.h"

#include <math.h>

/* ---- conditions: a tensor, a size, a product of sizes ---- */

static enum status check_tensor(const char *op, const char *field, const struct tensor *t,
                                enum dtype dtype)
{
    if (!t->data)
        return FAIL(ST_BUG, "operation %s: tensor %s is missing", op, field);
    if (t->dtype != dtype)
        return FAIL(ST_BUG, "operation %s: tensor %s has dtype %d, expected %d", op, field,
                    t->dtype, dtype);
    return ST_OK;
}

/* Checks like check_tensor for f32, or for one of the 16-bit types. */
static enum status check_float(const char *op, const char *field, const struct tensor *t,
                               bool accepts_halves)
{
    bool is_half = t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16;
    return check_tensor(op, field, t, accepts_halves && is_half ? t->dtype : DTYPE_F32);
}

static enum status check_size(const char *op, const char *field, int64_t value, int64_t min,
                              int64_t max)
{
    if (value < min || value > max)
        return FAIL(ST_BUG, "operation %s: %s is %lld, expected %lld to %lld", op, field,
                    (long long)value, (long long)min, (long long)max);
    return ST_OK;
}

static enum status check_that(const char *op, const char *what, bool holds)
{
    return holds ? ST_OK : FAIL(ST_BUG, "operation %s: %s does not hold", op, what);
}

/* Element numbers up to this can be multiplied by a few bytes without leaving 64 bits. */
#define ELEMS_MAX ((int64_t)1 << 56)

static enum status check_dropout(const char *op, const struct dropout *d)
{
    if (!(d->p >= 0 && d->p < 1)) /* NaN fails too */
        return FAIL(ST_BUG, "operation %s: dropout %g, expected 0 <= p < 1", op, (double)d->p);
    return ST_OK;
}

static enum status check_product(const char *op, int64_t x, int64_t y)
{
    TRY(check_size(op, "a size", x, 0, ELEMS_MAX));
    TRY(check_size(op, "a size", y, 0, ELEMS_MAX));
    int64_t elems;
    if (__builtin_mul_overflow(x, y, &elems) || elems > ELEMS_MAX)
        return FAIL(ST_BUG, "operation %s: %lld by %lld elements cannot be addressed", op,
                    (long long)x, (long long)y);
    return ST_OK;
}

/* Checks columns [v_first, v_first + v_n) of a vocabulary, in n rows `stride` apart. */
static enum status check_columns(const char *op, int64_t n, int64_t v_first, int64_t v_n,
                                 int64_t stride)
{
    TRY(check_size(op, "n", n, 0, ELEMS_MAX));
    TRY(check_size(op, "v_n", v_n, 1, INT32_MAX));
    TRY(check_size(op, "v_first", v_first, 0, INT32_MAX - v_n));
    TRY(check_size(op, "stride", stride, v_n, ELEMS_MAX));
    return check_product(op, n, stride);
}

/* Checks a product of (n, in) and (in, out). The (n, out) result may lie in wider rows; stride 0 is
 * out. */
static enum status check_matmul(const char *op, int64_t n, int64_t in, int64_t out, int64_t stride)
{
    TRY(check_size(op, "n", n, 1, ELEMS_MAX));
    TRY(check_size(op, "in", in, 1, ELEMS_MAX));
    TRY(check_size(op, "out", out, 1, ELEMS_MAX));
    TRY(check_that(op, "stride == 0 || stride >= out", stride == 0 || stride >= out));
    TRY(check_product(op, n, stride ? stride : out));
    TRY(check_product(op, n, in));
    return check_product(op, in, out);
}

/* In each check, op is the operation's name. Optional tensors that are absent are not checked. */
#define HAS(field, type) TRY(check_tensor(op, #field, &a->field, DTYPE_##type))
#define HAS_FLOAT(field) TRY(check_float(op, #field, &a->field, accepts_halves))
#define MAY_FLOAT(field) \
    if (a->field.data)   \
    HAS_FLOAT(field)
#define MAY(field, type) \
    if (a->field.data)   \
    HAS(field, type)
#define MIN(field, min) TRY(check_size(op, #field, a->field, (min), ELEMS_MAX))
#define THAT(condition) TRY(check_that(op, #condition, condition))

/* ---- operations ---- */

enum status dev_check_embed_fwd(const struct embed_fwd *a, bool accepts_halves)
{
    const char *op = "embed_fwd";
    HAS_FLOAT(x);
    HAS(tokens, I32);
    HAS_FLOAT(wte);
    MAY_FLOAT(wpe);
    MAY(positions, I32);
    MIN(n, 0);
    MIN(t, 1);
    MIN(c, 1);
    MIN(first, 0);
    MIN(rows, 0);
    TRY(check_product(op, a->n, a->c));
    return check_dropout(op, &a->dropout);
}

enum status dev_check_embed_bwd(const struct embed_bwd *a, bool accepts_halves)
{
    const char *op = "embed_bwd";
    MAY(dwte, F32);
    MAY(dwpe, F32);
    HAS_FLOAT(dx);
    HAS(tokens, I32);
    MIN(n, 0);
    MIN(t, 1);
    MIN(c, 1);
    MIN(v, 1);
    MIN(first, 0);
    TRY(check_size(op, "rows", a->rows, 0, a->v));
    if (a->dwpe.data)
        MIN(context, a->t);
    TRY(check_product(op, a->n, a->c));
    TRY(check_product(op, a->v, a->c));
    return check_dropout(op, &a->dropout);
}

/* Checks that RMSNorm has neither mean nor shift. */
static enum status check_norm_kind(const char *op, enum norm_kind kind, const void *mean,
                                   const void *shift)
{
    bool is_known = kind == NORM_KIND_LAYER || kind == NORM_KIND_RMS;
    TRY(check_that(op, "kind is LAYER or RMS", is_known));
    return check_that(op, "RMS: no mean, no shift", kind == NORM_KIND_LAYER || !(mean || shift));
}

enum status dev_check_norm_fwd(const struct norm_fwd *a, bool accepts_halves)
{
    const char *op = "norm_fwd";
    HAS_FLOAT(y);
    MAY(mean, F32);
    MAY(rstd, F32);
    HAS_FLOAT(x);
    HAS_FLOAT(w);
    MAY_FLOAT(b);
    MIN(n, 0);
    MIN(c, 1);
    THAT(a->eps > 0);
    TRY(check_norm_kind(op, a->kind, a->mean.data, a->b.data));
    return check_product(op, a->n, a->c);
}

enum status dev_check_norm_bwd(const struct norm_bwd *a, bool accepts_halves)
{
    const char *op = "norm_bwd";
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
    TRY(check_norm_kind(op, a->kind, a->mean.data, a->db.data));
    return check_product(op, a->n, a->c);
}

/* Checks heads of d elements in n rows, `stride` apart. */
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

enum status dev_check_head_norm_fwd(const struct head_norm_fwd *a, bool accepts_halves)
{
    const char *op = "head_norm_fwd";
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    HAS_FLOAT(w);
    THAT(a->eps > 0);
    return check_head_rows(op, a->n, a->heads, a->d, a->stride);
}

enum status dev_check_head_norm_bwd(const struct head_norm_bwd *a, bool accepts_halves)
{
    const char *op = "head_norm_bwd";
    HAS_FLOAT(dx);
    HAS(dw, F32);
    HAS_FLOAT(dy);
    HAS_FLOAT(x);
    HAS_FLOAT(w);
    THAT(a->eps > 0);
    return check_head_rows(op, a->n, a->heads, a->d, a->stride);
}

/* Positions up to 2^24 are exact in f32. */
#define ROPE_POSITIONS_MAX ((int64_t)1 << 24)

static enum status check_rotation(const char *op, int64_t rot, int64_t most)
{
    TRY(check_size(op, "rot", rot, 2, most < 2 * ROPE_FREQ_MAX ? most : 2 * ROPE_FREQ_MAX));
    return check_that(op, "rot is even", rot % 2 == 0);
}

enum status dev_check_rope_table(const struct rope_table *a, bool accepts_halves)
{
    (void)accepts_halves; /* angles need f32 */
    const char *op = "rope_table";
    HAS(table, F32);
    TRY(check_size(op, "first", a->first, 0, ROPE_POSITIONS_MAX));
    TRY(check_size(op, "t", a->t, 0, ROPE_POSITIONS_MAX - a->first));
    TRY(check_rotation(op, a->rot, 2 * ROPE_FREQ_MAX));
    THAT(isfinite(a->scale));
    for (int64_t i = 0; i < a->rot / 2; i++)
        THAT(a->freq[i] >= 0 && a->freq[i] <= 1);
    return ST_OK;
}

enum status dev_check_rope(const struct rope *a, bool accepts_halves)
{
    const char *op = "rope";
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
    TRY(check_rotation(op, a->rot, a->d));
    TRY(check_product(op, a->h + 2 * a->hk, a->d));
    TRY(check_product(op, a->t, a->rot));
    return check_product(op, a->n, (a->h + 2 * a->hk) * a->d);
}

enum status dev_check_matmul_fwd(const struct matmul_fwd *a, bool accepts_halves)
{
    const char *op = "matmul_fwd";
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
    TRY(check_product(op, a->n, a->y_stride ? a->y_stride : a->out));
    TRY(check_product(op, a->n, a->in));
    TRY(check_product(op, a->in, a->out));
    return check_dropout(op, &a->dropout);
}

enum status dev_check_matmul_bwd_x(const struct matmul_bwd_x *a, bool accepts_halves)
{
    const char *op = "matmul_bwd_x";
    HAS_FLOAT(dx);
    HAS_FLOAT(dy);
    HAS_FLOAT(w);
    MAY_FLOAT(pre);
    return check_matmul(op, a->n, a->in, a->out, a->dy_stride);
}

enum status dev_check_matmul_bwd_w(const struct matmul_bwd_w *a, bool accepts_halves)
{
    const char *op = "matmul_bwd_w";
    HAS(dw, F32);
    MAY(db, F32);
    HAS_FLOAT(x);
    HAS_FLOAT(dy);
    return check_matmul(op, a->n, a->in, a->out, a->dy_stride);
}

enum status dev_check_gelu_fwd(const struct gelu_fwd *a, bool accepts_halves)
{
    const char *op = "gelu_fwd";
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    MIN(n, 0);
    THAT(a->kind == GELU_KIND_TANH || a->kind == GELU_KIND_ERF);
    return ST_OK;
}

enum status dev_check_gelu_bwd(const struct gelu_bwd *a, bool accepts_halves)
{
    const char *op = "gelu_bwd";
    HAS_FLOAT(dx);
    HAS_FLOAT(dy);
    HAS_FLOAT(x);
    MIN(n, 0);
    THAT(a->kind == GELU_KIND_TANH || a->kind == GELU_KIND_ERF);
    return ST_OK;
}

enum status dev_check_relu2_fwd(const struct relu2_fwd *a, bool accepts_halves)
{
    const char *op = "relu2_fwd";
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    MIN(n, 0);
    return ST_OK;
}

enum status dev_check_relu2_bwd(const struct relu2_bwd *a, bool accepts_halves)
{
    const char *op = "relu2_bwd";
    HAS_FLOAT(dx);
    HAS_FLOAT(dy);
    HAS_FLOAT(x);
    MIN(n, 0);
    return ST_OK;
}

enum status dev_check_swiglu_fwd(const struct swiglu_fwd *a, bool accepts_halves)
{
    const char *op = "swiglu_fwd";
    HAS_FLOAT(y);
    HAS_FLOAT(gu);
    MIN(n, 0);
    MIN(f, 1);
    TRY(check_product(op, 2, a->f));
    return check_product(op, a->n, 2 * a->f);
}

enum status dev_check_swiglu_bwd(const struct swiglu_bwd *a, bool accepts_halves)
{
    const char *op = "swiglu_bwd";
    HAS_FLOAT(dgu);
    HAS_FLOAT(dy);
    HAS_FLOAT(gu);
    MIN(n, 0);
    MIN(f, 1);
    TRY(check_product(op, 2, a->f));
    return check_product(op, a->n, 2 * a->f);
}

enum status dev_check_softcap(const struct softcap *a, bool accepts_halves)
{
    const char *op = "softcap";
    HAS_FLOAT(x);
    MIN(n, 0);
    MIN(v, 1);
    MIN(stride, a->v);
    THAT(a->cap > 0 && a->cap < INFINITY);
    return check_product(op, a->n, a->stride);
}

enum status dev_check_xent(const struct xent *a, bool accepts_halves)
{
    const char *op = "xent";
    HAS_FLOAT(logits);
    HAS(losses, F32);
    HAS(targets, I32);
    MIN(n, 0);
    MIN(v, 1);
    MIN(stride, a->v);
    MAY(hits, F32);
    THAT(!a->hits.data || !a->want_grad);
    THAT(a->cap >= 0 && a->cap < INFINITY);
    return check_product(op, a->n, a->stride);
}

enum status dev_check_xent_shard(const struct xent_shard *a, bool accepts_halves)
{
    const char *op = "xent_shard";
    HAS(stats, F32);
    HAS_FLOAT(logits);
    HAS(targets, I32);
    TRY(check_columns(op, a->n, a->v_first, a->v_n, a->stride));
    return check_product(op, a->n, 3);
}

enum status dev_check_xent_join(const struct xent_join *a, bool accepts_halves)
{
    const char *op = "xent_join";
    HAS_FLOAT(logits);
    HAS(losses, F32);
    HAS(stats, F32);
    HAS(targets, I32);
    TRY(check_columns(op, a->n, a->v_first, a->v_n, a->stride));
    TRY(check_size(op, "shards", a->shards, 1, INT32_MAX));
    TRY(check_product(op, a->n, 3));
    THAT(a->cap >= 0 && a->cap < INFINITY);
    MAY(hits, F32);
    THAT(!a->hits.data || !a->want_grad);
    THAT(a->stats_stride == 0 || a->stats_stride >= 3 * a->n);
    return check_product(op, a->shards, a->stats_stride ? a->stats_stride : 3 * a->n);
}

enum status dev_check_qa_xent(const struct qa_xent *a, bool accepts_halves)
{
    const char *op = "qa_xent";
    HAS(losses, F32);
    MAY_FLOAT(dlogits);
    HAS_FLOAT(logits);
    HAS(starts, I32);
    HAS(ends, I32);
    MIN(b, 0);
    MIN(t, 1);
    return check_product(op, a->b, a->t);
}

enum status dev_check_drop(const struct drop *a, bool accepts_halves)
{
    const char *op = "drop";
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    MIN(n, 0);
    return check_dropout(op, &a->dropout);
}

enum status dev_check_branch_add(const struct branch_add *a, bool accepts_halves)
{
    const char *op = "branch_add";
    HAS_FLOAT(y);
    HAS_FLOAT(x);
    MAY_FLOAT(b);
    HAS_FLOAT(residual);
    MIN(n, 0);
    MIN(c, 1);
    TRY(check_product(op, a->n, a->c));
    return check_dropout(op, &a->dropout);
}

enum status dev_check_sum(const struct sum *a, bool accepts_halves)
{
    const char *op = "sum";
    HAS(out, F64);
    HAS_FLOAT(x);
    MIN(n, 0);
    return ST_OK;
}

enum status dev_check_sumsq(const struct sumsq *a, bool accepts_halves)
{
    const char *op = "sumsq";
    HAS(out, F64);
    HAS_FLOAT(x);
    MIN(n, 0);
    if (a->by_block && a->accumulate)
        return FAIL(ST_BUG, "%s: by_block does not accumulate", op);
    return ST_OK;
}

enum status dev_check_checksum(const struct checksum *a, bool accepts_halves)
{
    (void)accepts_halves; /* bytes */
    const char *op = "checksum";
    THAT(a->out != NULL);
    TRY(check_size(op, "dtype", (int64_t)a->x.dtype, 0, DTYPE_N - 1));
    TRY(check_tensor(op, "x", &a->x, a->x.dtype));
    THAT((uintptr_t)a->x.data % sizeof(uint32_t) == 0);
    MIN(n, 0);
    MIN(first, 0);
    return ST_OK;
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

enum status dev_check_grad_scale(const struct grad_scale *a, bool accepts_halves)
{
    (void)accepts_halves;
    const char *op = "grad_scale";
    HAS(out, F64);
    HAS(squares, F64);
    HAS(loss, F64);
    MIN(squares_n, 0);
    THAT(a->loss_scale >= 0);
    return ST_OK;
}

enum status dev_check_adamw(const struct adamw *a, bool accepts_halves)
{
    (void)accepts_halves; /* masters and moments are f32 */
    const char *op = "adamw";
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
    return check_spans(op, a->spans, a->spans_n);
}

enum status dev_check_sgd(const struct sgd *a, bool accepts_halves)
{
    (void)accepts_halves;
    const char *op = "sgd";
    HAS(p, F32);
    HAS(g, F32);
    if (a->momentum != 0)
        HAS(m, F32);
    MAY(grad_scale, F64);
    MIN(step, 1);
    return check_spans(op, a->spans, a->spans_n);
}

enum status dev_check_compress(const struct compress *a, bool accepts_halves)
{
    (void)accepts_halves;
    const char *op = "compress";
    HAS(packed, U8);
    MAY(residual, F32);
    HAS(x, F32);
    MIN(n, 0);
    return ST_OK;
}

enum status dev_check_expand(const struct expand *a, bool accepts_halves)
{
    (void)accepts_halves;
    const char *op = "expand";
    HAS(y, F32);
    HAS(packed, U8);
    MIN(n, 0);
    return ST_OK;
}

/* Checks a tensor whose type can be summed: f32, f64, bf16 or f16. */
static enum status check_summed(const char *op, const char *field, const struct tensor *t)
{
    bool is_known = t->dtype == DTYPE_F64 || t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16;
    return check_tensor(op, field, t, is_known ? t->dtype : DTYPE_F32);
}

enum status dev_check_combine(const struct combine *a, bool accepts_halves)
{
    (void)accepts_halves; /* sums between ranks are the same everywhere */
    const char *op = "combine";
    TRY(check_summed(op, "out", &a->out));
    TRY(check_summed(op, "in", &a->in));
    TRY(check_tensor(op, "own", &a->own, a->in.dtype));
    THAT((a->in.dtype == DTYPE_F64) == (a->out.dtype == DTYPE_F64));
    THAT(a->in.dtype == a->out.dtype || a->in.dtype == DTYPE_F32 || a->out.dtype == DTYPE_F32);
    MIN(elems, 0);
    TRY(check_size(op, "sources_n", a->sources_n, 1, COMBINE_SOURCES_MAX));
    TRY(check_size(op, "own_i", a->own_i, 0, a->sources_n - 1));
    THAT(a->sources_n == 1 || a->stride >= a->elems);
    return check_product(op, a->sources_n, a->stride > 0 ? a->stride : 0);
}

enum status dev_check_copy_2d(const struct copy_2d *a, bool accepts_halves)
{
    const char *op = "copy_2d";
    TRY(check_size(op, "dtype", (int64_t)a->x.dtype, 0, DTYPE_N - 1));
    if (a->scale != 0) /* else bytes are copied */
        HAS_FLOAT(x);
    TRY(check_tensor(op, "y", &a->y, a->x.dtype));
    TRY(check_tensor(op, "x", &a->x, a->x.dtype));
    MIN(rows, 0);
    MIN(columns, 1);
    MIN(y_stride, a->columns);
    MIN(x_stride, a->columns);
    TRY(check_product(op, a->rows, a->y_stride));
    return check_product(op, a->rows, a->x_stride);
}

enum status dev_check_cast(const struct cast *a, bool accepts_halves)
{
    (void)accepts_halves; /* cast exists for 16-bit types */
    const char *op = "cast";
    TRY(check_float(op, "y", &a->y, true));
    TRY(check_float(op, "x", &a->x, true));
    MIN(n, 0);
    return ST_OK;
}

/* ---- attention ---- */

/* Checks the numbers of heads and sizes that attention's helpers divide by and compute addresses
 * from. */
#define CHECK_HEADS                                                               \
    MIN(b, 1);                                                                    \
    MIN(t, 1);                                                                    \
    MIN(h, 1);                                                                    \
    TRY(check_size(op, "hk", a->hk, 1, a->h));                                    \
    MIN(d, 1);                                                                    \
    THAT(a->h % a->hk == 0);                                                      \
    TRY(check_size(op, "layout", (int64_t)a->layout, 0, ATTENTION_LAYOUT_HEADS)); \
    THAT(a->layout == ATTENTION_LAYOUT_QKV || a->hk == a->h);                     \
    TRY(check_product(op, a->h, a->d));                                           \
    TRY(check_product(op, a->b, a->t));                                           \
    TRY(check_product(op, a->b * a->t, a->h * a->d * 3))

static enum status check_scores(const char *op, int64_t b, int64_t t, int64_t h)
{
    TRY(check_product(op, b * t, h));
    return check_product(op, b * t * h, t);
}

/* Checks heads [first, first + h) of whole heads; whole 0: of h, and first is not used. */
static enum status check_drop_heads(const char *op, int64_t h, int64_t first, int64_t whole)
{
    if (whole == 0)
        return check_size(op, "head_first", first, 0, 0);
    TRY(check_size(op, "heads_whole", whole, h, INT32_MAX));
    return check_size(op, "head_first", first, 0, whole - h);
}

/* Checks the positions of own queries: within T, the second run after the first; none without
 * kv. */
static enum status check_runs(const char *op, const struct attention_runs *own, int64_t t,
                              bool has_kv)
{
    int64_t end = 0;
    for (int i = 0; i < 2; i++) {
        TRY(check_size(op, "own.n", own->n[i], has_kv && i == 0, has_kv ? t : 0));
        TRY(check_size(op, "own.first", own->first[i], own->n[i] ? end : 0,
                       own->n[i] ? t - own->n[i] : 0));
        end = own->first[i] + own->n[i];
    }
    return ST_OK;
}

enum status dev_check_attention_fwd(const struct attention_fwd *a, bool accepts_halves)
{
    const char *op = "attention_fwd";
    HAS_FLOAT(out);
    HAS(lse, F32);
    HAS_FLOAT(qkv);
    MAY(mask, U8);
    MAY(first_key, I32);
    CHECK_HEADS;
    TRY(check_scores(op, a->b, a->t, a->heads_whole ? a->heads_whole : a->h));
    TRY(check_drop_heads(op, a->h, a->head_first, a->heads_whole));
    MAY_FLOAT(kv);
    TRY(check_runs(op, &a->own, a->t, a->kv.data));
    return check_dropout(op, &a->dropout);
}

enum status dev_check_attention_decode(const struct attention_decode *a, bool accepts_halves)
{
    const char *op = "attention_decode";
    HAS_FLOAT(out);
    HAS_FLOAT(qkv);
    CHECK_HEADS;
    return ST_OK;
}

enum status dev_check_attention_bwd(const struct attention_bwd *a, bool accepts_halves)
{
    const char *op = "attention_bwd";
    HAS_FLOAT(dqkv);
    HAS_FLOAT(dout);
    HAS_FLOAT(out);
    HAS_FLOAT(qkv);
    HAS(lse, F32);
    MAY(mask, U8);
    MAY(first_key, I32);
    CHECK_HEADS;
    TRY(check_scores(op, a->b, a->t, a->heads_whole ? a->heads_whole : a->h));
    TRY(check_drop_heads(op, a->h, a->head_first, a->heads_whole));
    MAY_FLOAT(kv);
    if (a->kv.data)
        HAS_FLOAT(dkv);
    TRY(check_runs(op, &a->own, a->t, a->kv.data));
    return check_dropout(op, &a->dropout);
}
