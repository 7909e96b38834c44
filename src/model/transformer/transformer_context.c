/* transformer_context — context parallelism: a pass has some positions of each sample, and attends
 * from them to the keys of all. Without an axis the samples are whole. It must not know how the
 * others are reached (struct model_axis).
 *
 * The T positions of a sample are 2·P equal chunks, where P parts share it. Part i has chunks i and
 * 2·P-1-i, so all have the same number of pairs of a query and a key that it sees (zigzag;
 * Dubey et al. 2024). They lie behind each other: R = T/P rows of each sample.
 *
 * Keys and values are gathered for each block and direction, and not kept. Rows of them are as
 * attention.h has them in `kv`. `exchange` holds them part by part, `kv` in the order of
 * positions. */
#include "base/assert.h"
#include "dev/dev.h"
#include "model/transformer/transformer.h"

static int parts_of(const struct pass *p) { return p->context ? p->context->parts : 1; }

int64_t transformer_context_tokens(const struct pass *p) { return p->t * parts_of(p); }

/* runs_of — the positions of a part. */
static struct attention_runs runs_of(const struct pass *p, int part)
{
    return model_shard_runs(part, parts_of(p), transformer_context_tokens(p));
}

/* own_runs — the pass's positions; all zero: all. */
static struct attention_runs own_runs(const struct pass *p)
{
    return p->context ? runs_of(p, p->context->part) : (struct attention_runs){{0}, {0}};
}

bool transformer_context_next(const struct pass *p, int64_t end, struct transformer_rows *rows)
{
    struct attention_runs own = own_runs(p);
    int64_t row;
    rows->first += rows->n;
    rows->n = end - rows->first;
    rows->index = rows->first;
    if (!p->context || rows->n <= 0)
        return rows->n > 0;
    row = rows->first % p->t;
    rows->index = rows->first / p->t * transformer_context_tokens(p);
    rows->index += attention_position(&own, row);
    int64_t left = (row < own.n[0] ? own.n[0] : p->t) - row;
    rows->n = rows->n < left ? rows->n : left;
    return true;
}

/* ---- dropout of own rows ---- */

enum status transformer_context_drop(const struct pass *p, struct drop drop)
{
    int64_t c = p->dims->embed, first, n = transformer_tensor_own_rows(p, &first);
    struct transformer_rows rows = {.first = first};
    while (transformer_context_next(p, first + n, &rows)) {
        struct drop part = drop;
        part.y = tensor_at(drop.y, (rows.first - first) * c);
        part.x = tensor_at(drop.x, (rows.first - first) * c);
        part.n = rows.n * c;
        part.dropout.offset += (uint64_t)(rows.index * c);
        TRY(p->op->drop(p->stream, &part));
    }
    return ST_OK;
}

enum status transformer_context_branch_add(const struct pass *p, struct branch_add add)
{
    int64_t c = p->dims->embed, first, n = transformer_tensor_own_rows(p, &first);
    struct transformer_rows rows = {.first = first};
    while (transformer_context_next(p, first + n, &rows)) {
        int64_t at = (rows.first - first) * c;
        struct branch_add part = add;
        part.y = tensor_at(add.y, at);
        part.x = tensor_at(add.x, at);
        part.residual = tensor_at(add.residual, at);
        part.n = rows.n;
        part.c = c;
        part.dropout.offset += (uint64_t)(rows.index * c);
        TRY(p->op->branch_add(p->stream, &part));
    }
    return ST_OK;
}

/* ---- embedding ---- */

/* is_by_runs — positions or dropout make a difference between the runs of rows. */
static bool is_by_runs(const struct pass *p, const struct dropout *dropout)
{
    return p->context && (dropout->p > 0 || p->dims->features.position == MODEL_POSITION_LEARNED);
}

enum status transformer_context_embed_fwd(const struct pass *p, const struct embed_fwd *embed)
{
    int64_t t = transformer_context_tokens(p), c = embed->c;
    struct transformer_rows rows = {0};
    if (!is_by_runs(p, &embed->dropout))
        return p->op->embed_fwd(p->stream, embed);
    while (transformer_context_next(p, embed->n, &rows)) {
        struct embed_fwd part = *embed;
        part.x = tensor_at(embed->x, rows.first * c);
        part.tokens = tensor_at(embed->tokens, rows.first);
        part.wpe = tensor_at(embed->wpe, rows.index % t * c);
        part.n = part.t = rows.n;
        part.dropout.offset += (uint64_t)(rows.index * c);
        TRY(p->op->embed_fwd(p->stream, &part));
    }
    return ST_OK;
}

/* The gradient of the positions is added up over the runs, so the first pass of a step begins with
 * zeros. */
enum status transformer_context_embed_bwd(const struct pass *p, const struct embed_bwd *embed)
{
    int64_t t = transformer_context_tokens(p), c = embed->c;
    struct transformer_rows rows = {0};
    if (!is_by_runs(p, &embed->dropout))
        return p->op->embed_bwd(p->stream, embed);
    if (embed->dwpe.data && !embed->accumulate)
        TRY(dev_fill(p->stream, embed->dwpe.data, 0,
                     (size_t)(embed->context * c) * dtype_bytes(embed->dwpe.dtype)));
    while (transformer_context_next(p, embed->n, &rows)) {
        struct embed_bwd part = *embed;
        part.dx = tensor_at(embed->dx, rows.first * c);
        part.tokens = tensor_at(embed->tokens, rows.first);
        part.dwpe = tensor_at(embed->dwpe, rows.index % t * c);
        part.n = part.t = part.context = rows.n;
        part.accumulate = true;
        part.dropout.offset += (uint64_t)(rows.index * c);
        TRY(p->op->embed_bwd(p->stream, &part));
    }
    return ST_OK;
}

/* ---- rows of all parts ---- */

/* reorder — rows of `width` numbers, from the order of parts (P,B,R) to that of positions (B,T), or
 * back. */
static enum status reorder(const struct pass *p, struct tensor parts, struct tensor positions,
                           int64_t width, bool to_parts)
{
    int64_t t = transformer_context_tokens(p);
    for (int i = 0; i < 2 * parts_of(p); i++) {
        struct attention_runs runs = runs_of(p, i / 2);
        int64_t row = i / 2 * p->b * p->t + (i % 2 ? runs.n[0] : 0);
        struct tensor of_part = tensor_at(parts, row * width),
                      of_positions = tensor_at(positions, runs.first[i % 2] * width);
        struct copy_2d copy = {.y = to_parts ? of_part : of_positions,
                               .x = to_parts ? of_positions : of_part,
                               .rows = p->b,
                               .columns = runs.n[i % 2] * width,
                               .y_stride = (to_parts ? p->t : t) * width,
                               .x_stride = (to_parts ? t : p->t) * width};
        TRY(p->op->copy_2d(p->stream, &copy));
    }
    return ST_OK;
}

/* own_place — where own rows lie in `exchange`, in elements. */
static int64_t own_place(const struct pass *p, int64_t width)
{
    return p->context->part * p->b * p->t * width;
}

/* gather — rows of all parts, own ones at their place in `exchange`, to `positions`. */
static enum status gather(const struct pass *p, struct tensor exchange, struct tensor positions,
                          int64_t width)
{
    const struct model_axis *axis = p->context;
    struct tensor own = tensor_at(exchange, own_place(p, width));
    TRY(axis->gather(axis->arg, p->stream, exchange, own, p->b * p->t * axis->parts * width));
    return reorder(p, exchange, positions, width, false);
}

/* ---- keys and values ---- */

static int64_t kv_width(const struct pass *p)
{
    return 2 * model_kv_heads(p->dims) * model_head_dim(p->dims);
}

/* copy_kv — own keys and values from rows of qkv to rows of their own, or back. */
static enum status copy_kv(const struct pass *p, struct tensor qkv, struct tensor kv, bool to_qkv)
{
    int64_t d = model_head_dim(p->dims), hk = model_kv_heads(p->dims), h = p->dims->heads,
            row = transformer_params_qkv(p->dims);
    bool is_heads = transformer_arch(p->dims->arch)->heads == ATTENTION_LAYOUT_HEADS;
    struct tensor columns = tensor_at(qkv, is_heads ? d : h * d);
    int64_t width = is_heads ? 2 * d : kv_width(p), stride = is_heads ? 3 * d : row;
    struct copy_2d copy = {.y = to_qkv ? columns : kv,
                           .x = to_qkv ? kv : columns,
                           .rows = p->b * p->t * (is_heads ? hk : 1),
                           .columns = width,
                           .y_stride = to_qkv ? stride : width,
                           .x_stride = to_qkv ? width : stride};
    return p->op->copy_2d(p->stream, &copy);
}

static enum status gather_kv(const struct pass *p, struct tensor qkv)
{
    const struct transformer_acts *m = transformer_acts(p);
    TRY(copy_kv(p, qkv, tensor_at(m->exchange, own_place(p, kv_width(p))), false));
    return gather(p, m->exchange, m->kv, kv_width(p));
}

enum status transformer_context_attention_fwd(const struct pass *p, struct attention_fwd attention)
{
    if (p->context) {
        TRY(gather_kv(p, attention.qkv));
        attention.kv = transformer_acts(p)->kv;
        attention.own = own_runs(p);
    }
    return p->op->attention_fwd(p->stream, &attention);
}

/* The keys' gradients of own queries take the place of `exchange`, those by parts that of kv, own
 * sums that of `exchange` again. */
enum status transformer_context_attention_bwd(const struct pass *p, struct attention_bwd attention)
{
    const struct transformer_acts *m = transformer_acts(p);
    const struct model_axis *axis = p->context;
    if (!axis)
        return p->op->attention_bwd(p->stream, &attention);
    TRY(gather_kv(p, attention.qkv));
    attention.kv = m->kv;
    attention.dkv = m->exchange;
    attention.own = own_runs(p);
    TRY(p->op->attention_bwd(p->stream, &attention));
    TRY(reorder(p, m->kv, m->exchange, kv_width(p), true));
    TRY(axis->scatter_sum(axis->arg, p->stream, m->exchange, m->kv,
                          p->b * p->t * axis->parts * kv_width(p)));
    return copy_kv(p, attention.dqkv, m->exchange, true);
}

/* ---- logits ---- */

struct tensor transformer_context_spans_place(const struct pass *p, struct tensor whole)
{
    struct tensor exchange = {transformer_acts(p)->exchange.data, whole.dtype};
    return p->context ? tensor_at(exchange, own_place(p, 2)) : whole;
}

enum status transformer_context_spans_gather(const struct pass *p, struct tensor whole)
{
    struct tensor exchange = {transformer_acts(p)->exchange.data, whole.dtype};
    return p->context ? gather(p, exchange, whole, 2) : ST_OK;
}

enum status transformer_context_spans_take(const struct pass *p, struct tensor whole,
                                           struct tensor *out)
{
    struct attention_runs own = own_runs(p);
    int64_t t = transformer_context_tokens(p);
    *out = whole;
    if (!p->context)
        return ST_OK;
    *out = transformer_acts(p)->exchange;
    for (int i = 0; i < 2; i++) {
        struct copy_2d copy = {.y = tensor_at(*out, i * own.n[0] * 2),
                               .x = tensor_at(whole, own.first[i] * 2),
                               .rows = p->b,
                               .columns = own.n[i] * 2,
                               .y_stride = p->t * 2,
                               .x_stride = t * 2};
        TRY(p->op->copy_2d(p->stream, &copy));
    }
    return ST_OK;
}

int64_t transformer_context_row(const struct pass *p, int64_t row, bool *is_own)
{
    int64_t t = transformer_context_tokens(p), position = row % t;
    struct attention_runs own = own_runs(p);
    *is_own = true;
    if (!p->context)
        return row;
    for (int i = 0; i < 2; i++)
        if (position >= own.first[i] && position < own.first[i] + own.n[i])
            return row / t * p->t + i * own.n[0] + position - own.first[i];
    *is_own = false;
    return 0;
}

enum status transformer_context_share(const struct pass *p, struct tensor x, int64_t elems,
                                      bool is_own)
{
    const struct model_axis *axis = p->context;
    if (!axis)
        return ST_OK;
    if (!is_own)
        TRY(dev_fill(p->stream, x.data, 0, (size_t)elems * dtype_bytes(x.dtype)));
    return axis->sum(axis->arg, p->stream, x, elems, axis->parts);
}
