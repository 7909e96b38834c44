/* transformer_context — context parallelism: a pass has some positions of each sample, and its
 * queries attend to the keys of all positions. It must not know how ranks communicate.
 *
 * The T positions of a sample are 2·P equal chunks on P ranks. Rank i has chunks i and 2·P-1-i, so
 * all ranks have the same number of pairs of a query and a key that it attends to (zigzag; Dubey et
 * al. 2024). Own positions are neighbours in memory: R = T/P rows of each sample.
 *
 * Keys and values are gathered for each block and direction, and not kept. Their rows have the
 * layout of `kv` in attention.h. `exchange` holds them rank by rank, `kv` in the order of
 * positions. */
#include "dev/dev.h"
#include "model/transformer/transformer.h"

int64_t transformer_tokens(const struct pass *p) { return p->t * p->context->ranks; }

bool transformer_has_all_tokens(const struct pass *p) { return transformer_tokens(p) == p->t; }

/* Returns the positions of a rank. */
static struct attention_runs runs_of(const struct pass *p, int at)
{
    return model_shard_runs(at, p->context->ranks, transformer_tokens(p));
}

static struct attention_runs own_runs(const struct pass *p) { return runs_of(p, p->context->at); }

bool transformer_rows_next(const struct pass *p, int64_t end, struct transformer_rows *rows)
{
    const struct attention_runs own = own_runs(p);
    rows->first += rows->n;
    rows->n = end - rows->first;
    rows->index = rows->first;
    if (transformer_has_all_tokens(p) || rows->n <= 0)
        return rows->n > 0;
    int64_t row = rows->first % p->t, left = (row < own.n[0] ? own.n[0] : p->t) - row;
    rows->index = rows->first / p->t * transformer_tokens(p) + attention_position(&own, row);
    rows->n = rows->n < left ? rows->n : left;
    return true;
}

/* ---- dropout of own rows ---- */

enum status transformer_drop(const struct pass *p, struct drop drop)
{
    int64_t c = p->dims->embed, first, n = transformer_own_rows(p, &first);
    struct transformer_rows rows = {.first = first};
    while (transformer_rows_next(p, first + n, &rows)) {
        struct drop run = drop;
        run.y = tensor_at(drop.y, (rows.first - first) * c);
        run.x = tensor_at(drop.x, (rows.first - first) * c);
        run.n = rows.n * c;
        run.dropout.offset += (uint64_t)(rows.index * c);
        TRY(p->op->drop(p->stream, &run));
    }
    return ST_OK;
}

enum status transformer_branch_add(const struct pass *p, struct branch_add add)
{
    int64_t c = p->dims->embed, first, n = transformer_own_rows(p, &first);
    struct transformer_rows rows = {.first = first};
    while (transformer_rows_next(p, first + n, &rows)) {
        int64_t at = (rows.first - first) * c;
        struct branch_add run = add;
        run.y = tensor_at(add.y, at);
        run.x = tensor_at(add.x, at);
        run.residual = tensor_at(add.residual, at);
        run.n = rows.n;
        run.c = c;
        run.dropout.offset += (uint64_t)(rows.index * c);
        TRY(p->op->branch_add(p->stream, &run));
    }
    return ST_OK;
}

/* ---- embedding ---- */

/* Returns true if one call covers all rows: they are neighbours, or no row depends on its
 * number. */
static bool is_one_call(const struct pass *p, const struct dropout *dropout)
{
    return transformer_has_all_tokens(p) ||
           (dropout->p <= 0 && p->dims->features.position != MODEL_POSITION_LEARNED);
}

enum status transformer_embed_fwd(const struct pass *p, const struct embed_fwd *embed)
{
    int64_t t = transformer_tokens(p), c = embed->c;
    struct transformer_rows rows = {0};
    if (is_one_call(p, &embed->dropout))
        return p->op->embed_fwd(p->stream, embed);
    while (transformer_rows_next(p, embed->n, &rows)) {
        struct embed_fwd run = *embed;
        run.x = tensor_at(embed->x, rows.first * c);
        run.tokens = tensor_at(embed->tokens, rows.first);
        if (embed->positions.data)
            run.positions = tensor_at(embed->positions, rows.first);
        else
            run.wpe = tensor_at(embed->wpe, rows.index % t * c);
        run.n = run.t = rows.n;
        run.dropout.offset += (uint64_t)(rows.index * c);
        TRY(p->op->embed_fwd(p->stream, &run));
    }
    return ST_OK;
}

/* The gradient of the positions is summed over the runs, so the first pass of a step begins with
 * zeros. */
static enum status embed_bwd(const struct pass *p, const struct embed_bwd *embed)
{
    int64_t t = transformer_tokens(p), c = embed->c;
    struct transformer_rows rows = {0};
    if (is_one_call(p, &embed->dropout))
        return p->op->embed_bwd(p->stream, embed);
    if (embed->dwpe.data && !embed->accumulate)
        TRY(dev_fill(p->stream, embed->dwpe.data, 0,
                     (size_t)(embed->context * c) * dtype_bytes(embed->dwpe.dtype)));
    while (transformer_rows_next(p, embed->n, &rows)) {
        struct embed_bwd run = *embed;
        run.dx = tensor_at(embed->dx, rows.first * c);
        run.tokens = tensor_at(embed->tokens, rows.first);
        run.dwpe = tensor_at(embed->dwpe, rows.index % t * c);
        run.n = run.t = run.context = rows.n;
        run.accumulate = true;
        run.dropout.offset += (uint64_t)(rows.index * c);
        TRY(p->op->embed_bwd(p->stream, &run));
    }
    return ST_OK;
}

/* Positions of their own are looked up like tokens. */
enum status transformer_embed_bwd(const struct pass *p, const struct embed_bwd *embed)
{
    struct embed_bwd tokens = *embed, positions = *embed;
    if (!p->positions.data || !embed->dwpe.data)
        return embed_bwd(p, embed);
    tokens.dwpe = positions.dwpe = (struct tensor){0};
    positions.dwte = embed->dwpe;
    positions.tokens = p->positions;
    positions.v = embed->context;
    positions.first = positions.rows = 0;
    if (!embed->accumulate)
        TRY(dev_fill(p->stream, embed->dwpe.data, 0,
                     (size_t)(embed->context * embed->c) * dtype_bytes(embed->dwpe.dtype)));
    TRY(embed_bwd(p, &tokens));
    return embed_bwd(p, &positions);
}

/* ---- all positions ---- */

/* Copies rows of `width` numbers from the order of ranks (P,B,R) to the order of positions (B,T),
 * or back. */
static enum status reorder_rows(const struct pass *p, struct tensor by_rank,
                                struct tensor by_position, int64_t width, bool is_back)
{
    int64_t t = transformer_tokens(p);
    for (int i = 0; i < 2 * p->context->ranks; i++) {
        struct attention_runs runs = runs_of(p, i / 2);
        int64_t row = i / 2 * p->b * p->t + (i % 2 ? runs.n[0] : 0);
        struct tensor of_rank = tensor_at(by_rank, row * width),
                      of_positions = tensor_at(by_position, runs.first[i % 2] * width);
        struct copy_2d copy = {.y = is_back ? of_rank : of_positions,
                               .x = is_back ? of_positions : of_rank,
                               .rows = p->b,
                               .columns = runs.n[i % 2] * width,
                               .y_stride = (is_back ? p->t : t) * width,
                               .x_stride = (is_back ? t : p->t) * width};
        TRY(p->op->copy_2d(p->stream, &copy));
    }
    return ST_OK;
}

/* Returns the own rows in `exchange`. */
static struct tensor own_rows_in(const struct pass *p, struct tensor exchange, int64_t width)
{
    return tensor_at(exchange, p->context->at * p->b * p->t * width);
}

/* Gathers the rows of all ranks in `exchange`, which has own rows at their offset, and copies them
 * to `positions`. */
static enum status gather_rows(const struct pass *p, struct tensor exchange,
                               struct tensor positions, int64_t width)
{
    TRY(p->context->gather(p->context->arg, p->stream, own_rows_in(p, exchange, width), &exchange,
                           p->b * transformer_tokens(p) * width));
    return reorder_rows(p, exchange, positions, width, false);
}

/* ---- keys and values ---- */

static int64_t kv_width(const struct pass *p)
{
    return 2 * model_kv_heads(p->dims) * model_head_dim(p->dims);
}

/* Copies own keys and values from rows of qkv to rows of their own, or back. */
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

enum status transformer_all_gather_kv(const struct pass *p, struct tensor qkv, struct tensor *kv,
                                      struct attention_runs *own)
{
    const struct transformer_acts *m = transformer_acts(p);
    if (transformer_has_all_tokens(p)) /* attention reads all keys from qkv */
        return ST_OK;
    *kv = m->kv;
    *own = own_runs(p);
    TRY(copy_kv(p, qkv, own_rows_in(p, m->exchange, kv_width(p)), false));
    return gather_rows(p, m->exchange, m->kv, kv_width(p));
}

/* The sums by rank overwrite kv, and own sums are written to `exchange` again. */
enum status transformer_reduce_scatter_kv(const struct pass *p, struct tensor dqkv)
{
    const struct transformer_acts *m = transformer_acts(p);
    if (transformer_has_all_tokens(p))
        return ST_OK;
    TRY(reorder_rows(p, m->kv, m->exchange, kv_width(p), true));
    TRY(p->context->scatter_sum(p->context->arg, p->stream, m->exchange, m->kv,
                                p->b * transformer_tokens(p) * kv_width(p)));
    return copy_kv(p, dqkv, m->exchange, true);
}

/* ---- logits ---- */

struct tensor transformer_own_spans(const struct pass *p, struct tensor whole)
{
    struct tensor exchange = {transformer_acts(p)->exchange.data, whole.dtype};
    return transformer_has_all_tokens(p) ? whole : own_rows_in(p, exchange, 2);
}

enum status transformer_all_gather_spans(const struct pass *p, struct tensor whole)
{
    struct tensor exchange = {transformer_acts(p)->exchange.data, whole.dtype};
    return transformer_has_all_tokens(p) ? ST_OK : gather_rows(p, exchange, whole, 2);
}

enum status transformer_slice_spans(const struct pass *p, struct tensor whole, struct tensor *out)
{
    const struct attention_runs own = own_runs(p);
    *out = whole;
    if (transformer_has_all_tokens(p))
        return ST_OK;
    *out = transformer_acts(p)->exchange;
    for (int i = 0; i < 2; i++) {
        struct copy_2d copy = {.y = tensor_at(*out, i * own.n[0] * 2),
                               .x = tensor_at(whole, own.first[i] * 2),
                               .rows = p->b,
                               .columns = own.n[i] * 2,
                               .y_stride = p->t * 2,
                               .x_stride = transformer_tokens(p) * 2};
        TRY(p->op->copy_2d(p->stream, &copy));
    }
    return ST_OK;
}

int64_t transformer_row_of(const struct pass *p, int64_t row, bool *is_own)
{
    int64_t t = transformer_tokens(p), position = row % t;
    const struct attention_runs own = own_runs(p);
    *is_own = true;
    for (int i = 0; i < 2; i++)
        if (position >= own.first[i] && position < own.first[i] + own.n[i])
            return row / t * p->t + i * own.n[0] + position - own.first[i];
    *is_own = false;
    return 0;
}

enum status transformer_broadcast(const struct pass *p, struct tensor x, int64_t elems, bool is_own)
{
    if (!is_own)
        TRY(dev_fill(p->stream, x.data, 0, (size_t)elems * dtype_bytes(x.dtype)));
    return p->context->sum(p->context->arg, p->stream, x, elems, p->context->ranks);
}
