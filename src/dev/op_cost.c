/* op_cost — the contracts of kernels/ as numbers of bytes and operations. Must not know devices. */
#include "dev/op_cost.h"

/* Returns the bytes of elems elements of a tensor; 0 for an absent tensor. */
static int64_t bytes_of(struct tensor t, int64_t elems)
{
    return t.data ? elems * (int64_t)dtype_bytes(t.dtype) : 0;
}

static int64_t at_most(int64_t x, int64_t most) { return x < most ? x : most; }

static struct op_cost cost_embed_fwd(const struct embed_fwd *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->tokens, a->n) + bytes_of(a->positions, a->n) +
                                          bytes_of(a->wte, a->n * a->c) +
                                          bytes_of(a->wpe, at_most(a->n, a->t) * a->c),
                            .bytes_written = bytes_of(a->x, a->n * a->c)};
}

static struct op_cost cost_embed_bwd(const struct embed_bwd *a)
{
    int64_t dwte = bytes_of(a->dwte, at_most(a->n, a->rows ? a->rows : a->v) * a->c),
            dwpe = bytes_of(a->dwpe, a->context * a->c);
    return (struct op_cost){.bytes_read = bytes_of(a->tokens, a->n) + bytes_of(a->dx, a->n * a->c) +
                                          dwte + (a->accumulate ? dwpe : 0),
                            .bytes_written = dwte + dwpe};
}

static struct op_cost cost_norm_fwd(const struct norm_fwd *a)
{
    return (struct op_cost){
        .bytes_read = bytes_of(a->x, a->n * a->c) + bytes_of(a->w, a->c) + bytes_of(a->b, a->c),
        .bytes_written =
            bytes_of(a->y, a->n * a->c) + bytes_of(a->mean, a->n) + bytes_of(a->rstd, a->n)};
}

static struct op_cost cost_norm_bwd(const struct norm_bwd *a)
{
    int64_t sums = bytes_of(a->dw, a->c) + bytes_of(a->db, a->c);
    return (struct op_cost){
        .bytes_read = bytes_of(a->dy, a->n * a->c) + bytes_of(a->x, a->n * a->c) +
                      bytes_of(a->dresidual, a->n * a->c) + bytes_of(a->mean, a->n) +
                      bytes_of(a->rstd, a->n) + bytes_of(a->w, a->c) + (a->accumulate ? sums : 0),
        .bytes_written = bytes_of(a->dx, a->n * a->c) + sums};
}

static struct op_cost cost_head_norm_fwd(const struct head_norm_fwd *a)
{
    int64_t elems = a->n * a->heads * a->d;
    return (struct op_cost){.bytes_read = bytes_of(a->x, elems) + bytes_of(a->w, a->d),
                            .bytes_written = bytes_of(a->y, elems)};
}

static struct op_cost cost_head_norm_bwd(const struct head_norm_bwd *a)
{
    int64_t elems = a->n * a->heads * a->d, sum = bytes_of(a->dw, a->d);
    return (struct op_cost){.bytes_read = bytes_of(a->dy, elems) + bytes_of(a->x, elems) +
                                          bytes_of(a->w, a->d) + (a->accumulate ? sum : 0),
                            .bytes_written = bytes_of(a->dx, elems) + sum};
}

static struct op_cost cost_rope_table(const struct rope_table *a)
{
    return (struct op_cost){.bytes_written = bytes_of(a->table, a->t * a->rot)};
}

static struct op_cost cost_rope(const struct rope *a)
{
    int64_t elems = a->n * (a->h + a->hk) * a->rot;
    return (struct op_cost){.bytes_read = bytes_of(a->x, elems) +
                                          bytes_of(a->table, at_most(a->n, a->t) * a->rot),
                            .bytes_written = bytes_of(a->x, elems)};
}

static struct op_cost cost_matmul_fwd(const struct matmul_fwd *a)
{
    return (struct op_cost){
        .flops = 2 * a->n * a->in * a->out,
        .bytes_read = bytes_of(a->x, a->n * a->in) + bytes_of(a->w, a->in * a->out) +
                      bytes_of(a->b, a->out) + bytes_of(a->residual, a->n * a->out),
        .bytes_written = bytes_of(a->y, a->n * a->out) + bytes_of(a->pre, a->n * a->out)};
}

static struct op_cost cost_matmul_bwd_x(const struct matmul_bwd_x *a)
{
    return (struct op_cost){.flops = 2 * a->n * a->in * a->out,
                            .bytes_read = bytes_of(a->dy, a->n * a->out) +
                                          bytes_of(a->w, a->in * a->out) +
                                          bytes_of(a->pre, a->n * a->in),
                            .bytes_written = bytes_of(a->dx, a->n * a->in)};
}

static struct op_cost cost_matmul_bwd_w(const struct matmul_bwd_w *a)
{
    int64_t sums = bytes_of(a->dw, a->in * a->out) + bytes_of(a->db, a->out);
    return (struct op_cost){.flops = 2 * a->n * a->in * a->out,
                            .bytes_read = bytes_of(a->x, a->n * a->in) +
                                          bytes_of(a->dy, a->n * a->out) +
                                          (a->accumulate ? sums : 0),
                            .bytes_written = sums};
}

static struct op_cost cost_gelu_fwd(const struct gelu_fwd *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->x, a->n),
                            .bytes_written = bytes_of(a->y, a->n)};
}

static struct op_cost cost_gelu_bwd(const struct gelu_bwd *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->dy, a->n) + bytes_of(a->x, a->n),
                            .bytes_written = bytes_of(a->dx, a->n)};
}

static struct op_cost cost_relu2_fwd(const struct relu2_fwd *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->x, a->n),
                            .bytes_written = bytes_of(a->y, a->n)};
}

static struct op_cost cost_relu2_bwd(const struct relu2_bwd *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->dy, a->n) + bytes_of(a->x, a->n),
                            .bytes_written = bytes_of(a->dx, a->n)};
}

static struct op_cost cost_swiglu_fwd(const struct swiglu_fwd *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->gu, 2 * a->n * a->f),
                            .bytes_written = bytes_of(a->y, a->n * a->f)};
}

static struct op_cost cost_swiglu_bwd(const struct swiglu_bwd *a)
{
    return (struct op_cost){.bytes_read =
                                bytes_of(a->dy, a->n * a->f) + bytes_of(a->gu, 2 * a->n * a->f),
                            .bytes_written = bytes_of(a->dgu, 2 * a->n * a->f)};
}

/* Returns the FLOPs of one product over all pairs of a query and a key that it sees. Own queries
 * see, in each run, the keys up to its first position, and a triangle. */
static int64_t own_flops(int64_t b, int64_t t, int64_t h, int64_t d,
                         const struct attention_runs *own)
{
    int64_t pairs = 0;
    for (int i = 0; i < 2; i++)
        pairs += own->n[i] * own->first[i] + own->n[i] * (own->n[i] + 1) / 2;
    return 2 * b * h * d * (own->n[0] ? pairs : t * (t + 1) / 2);
}

/* Returns the bytes of mask and first keys. The FLOPs count causal attention: with first keys an
 * upper bound, because their values lie on the device. */
static int64_t hidden_bytes(struct tensor mask, struct tensor first_key, int64_t n)
{
    return bytes_of(mask, n) + bytes_of(first_key, n);
}

static struct op_cost cost_attention_fwd(const struct attention_fwd *a)
{
    int64_t queries = a->b * attention_rows(&a->own, a->t), elems = queries * a->h * a->d,
            rows = elems + 2 * a->b * a->t * a->hk * a->d;
    return (struct op_cost){
        .flops = 2 * own_flops(a->b, a->t, a->h, a->d, &a->own),
        .bytes_read = bytes_of(a->qkv, rows) + hidden_bytes(a->mask, a->first_key, a->b * a->t),
        .bytes_written = bytes_of(a->out, elems) + bytes_of(a->lse, a->h * queries)};
}

static struct op_cost cost_attention_decode(const struct attention_decode *a)
{
    int64_t row = a->b * a->h * a->d;
    return (struct op_cost){.flops = 4 * row * a->t,
                            .bytes_read = bytes_of(a->qkv, row + 2 * a->b * a->t * a->hk * a->d),
                            .bytes_written = bytes_of(a->out, row)};
}

static struct op_cost cost_attention_bwd(const struct attention_bwd *a)
{
    int64_t queries = a->b * attention_rows(&a->own, a->t), elems = queries * a->h * a->d,
            rows = elems + 2 * a->b * a->t * a->hk * a->d;
    return (struct op_cost){.flops = 5 * own_flops(a->b, a->t, a->h, a->d, &a->own),
                            .bytes_read = bytes_of(a->dout, elems) + bytes_of(a->out, elems) +
                                          bytes_of(a->qkv, rows) +
                                          bytes_of(a->lse, a->h * queries) +
                                          hidden_bytes(a->mask, a->first_key, a->b * a->t),
                            .bytes_written = bytes_of(a->dqkv, rows)};
}

static struct op_cost cost_softcap(const struct softcap *a)
{
    int64_t logits = bytes_of(a->x, a->n * a->v);
    return (struct op_cost){.bytes_read = logits, .bytes_written = logits};
}

static struct op_cost cost_xent(const struct xent *a)
{
    int64_t logits = bytes_of(a->logits, a->n * a->v);
    return (struct op_cost){.bytes_read = logits + bytes_of(a->targets, a->n),
                            .bytes_written = bytes_of(a->losses, a->n) + bytes_of(a->hits, a->n) +
                                             (a->want_grad ? logits : 0)};
}

static struct op_cost cost_qa_xent(const struct qa_xent *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->logits, 2 * a->b * a->t) +
                                          bytes_of(a->starts, a->b) + bytes_of(a->ends, a->b),
                            .bytes_written = bytes_of(a->losses, 2 * a->b) +
                                             bytes_of(a->dlogits, 2 * a->b * a->t)};
}

static struct op_cost cost_xent_shard(const struct xent_shard *a)
{
    return (struct op_cost){.bytes_read =
                                bytes_of(a->logits, a->n * a->v_n) + bytes_of(a->targets, a->n),
                            .bytes_written = bytes_of(a->stats, 3 * a->n)};
}

static struct op_cost cost_xent_join(const struct xent_join *a)
{
    int64_t all = bytes_of(a->logits, a->n * a->v_n), logits = a->want_grad ? all : 0;
    return (struct op_cost){
        .bytes_read = (a->hits.data ? all : logits) + bytes_of(a->stats, 3 * a->shards * a->n) +
                      bytes_of(a->targets, a->n),
        .bytes_written = bytes_of(a->losses, a->n) + bytes_of(a->hits, a->n) + logits};
}

static struct op_cost cost_branch_add(const struct branch_add *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->x, a->n * a->c) + bytes_of(a->b, a->c) +
                                          bytes_of(a->residual, a->n * a->c),
                            .bytes_written = bytes_of(a->y, a->n * a->c)};
}

static struct op_cost cost_copy_2d(const struct copy_2d *a)
{
    int64_t elems = a->rows * a->columns;
    return (struct op_cost){.bytes_read = bytes_of(a->x, elems),
                            .bytes_written = bytes_of(a->y, elems)};
}

static struct op_cost cost_drop(const struct drop *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->x, a->n),
                            .bytes_written = bytes_of(a->y, a->n)};
}

static struct op_cost cost_of_sum(struct tensor out, struct tensor x, int64_t n, bool accumulate)
{
    int64_t sum = bytes_of(out, 1);
    return (struct op_cost){.bytes_read = bytes_of(x, n) + (accumulate ? sum : 0),
                            .bytes_written = sum};
}
static struct op_cost cost_sum(const struct sum *a)
{
    return cost_of_sum(a->out, a->x, a->n, a->accumulate);
}
static struct op_cost cost_sumsq(const struct sumsq *a)
{
    const int64_t blocks = (a->n + REDUCE_BLOCK_ELEMS - 1) / REDUCE_BLOCK_ELEMS;
    if (a->by_block)
        return (struct op_cost){.bytes_read = bytes_of(a->x, a->n),
                                .bytes_written = bytes_of(a->out, blocks)};
    return cost_of_sum(a->out, a->x, a->n, a->accumulate);
}

static struct op_cost cost_checksum(const struct checksum *a)
{
    const int64_t sums = CHECKSUM_N * (int64_t)sizeof *a->out;
    return (struct op_cost){.bytes_read = bytes_of(a->x, a->n) + sums, .bytes_written = sums};
}

static struct op_cost cost_grad_scale(const struct grad_scale *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->squares, a->squares_n) + bytes_of(a->loss, 1),
                            .bytes_written = bytes_of(a->out, 2)};
}

static int64_t span_elems(const struct optim_span *spans, int64_t spans_n)
{
    int64_t elems = 0;
    for (int64_t i = 0; i < spans_n; i++)
        elems += spans[i].elems;
    return elems;
}

static struct op_cost cost_adamw(const struct adamw *a)
{
    int64_t n = span_elems(a->spans, a->spans_n),
            state = bytes_of(a->p, n) + bytes_of(a->m, n) + bytes_of(a->v, n);
    return (struct op_cost){.bytes_read = state + bytes_of(a->g, n) + bytes_of(a->grad_scale, 1),
                            .bytes_written = state + bytes_of(a->copy, n)};
}

static struct op_cost cost_sgd(const struct sgd *a)
{
    int64_t n = span_elems(a->spans, a->spans_n), m = a->momentum != 0 ? bytes_of(a->m, n) : 0;
    return (struct op_cost){.bytes_read = bytes_of(a->p, n) + bytes_of(a->g, n) +
                                          (a->step > 1 ? m : 0) + bytes_of(a->grad_scale, 1),
                            .bytes_written = bytes_of(a->p, n) + m};
}

static struct op_cost cost_compress(const struct compress *a)
{
    int64_t residual = bytes_of(a->residual, a->n);
    return (struct op_cost){.bytes_read = bytes_of(a->x, a->n) + residual,
                            .bytes_written = compress_bytes(a->n) + residual};
}

static struct op_cost cost_expand(const struct expand *a)
{
    return (struct op_cost){.bytes_read = compress_bytes(a->n),
                            .bytes_written = bytes_of(a->y, a->n)};
}

static struct op_cost cost_cast(const struct cast *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->x, a->n),
                            .bytes_written = bytes_of(a->y, a->n)};
}

static struct op_cost cost_combine(const struct combine *a)
{
    return (struct op_cost){.bytes_read = bytes_of(a->in, (a->sources_n - 1) * a->elems) +
                                          bytes_of(a->own, a->elems),
                            .bytes_written = bytes_of(a->out, a->elems)};
}

bool op_cost(enum op_kind op, const void *args, struct op_cost *out)
{
    switch (op) {
#define OP_COST_CASE(name)        \
    case OP_KIND_##name:          \
        *out = cost_##name(args); \
        return true;
        OP_LIST(OP_COST_CASE)
#undef OP_COST_CASE
    case OP_KIND_N:
        break;
    }
    return false;
}

const char *op_cost_name(enum op_kind op)
{
#define OP_NAME(name) [OP_KIND_##name] = #name,
    static const char *const names[OP_KIND_N] = {OP_LIST(OP_NAME)};
#undef OP_NAME
    return (unsigned)op < OP_KIND_N ? names[op] : "unknown";
}
