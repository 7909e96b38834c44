/* store_exact — EXACT=layout: gradients and their norm as functions of the batch's virtual shards,
 * not of the ranks (store.h).
 *
 * - A rank adds up the gradients of its shards in slots (shard_tree.h), unit by unit, right after
 *   the backward pass of each shard. Its pieces then join those of other ranks along the same tree:
 *   by the comm's own sums where these follow that tree, else by grad_tree.h.
 * - The norm is a sum over blocks of each tensor. A block lies on one rank (layout_pad_blocks), and
 *   its sum depends on its numbers alone. All blocks' sums are all-reduced, where all ranks but one
 *   add zero, and every rank adds them in the order of the whole model. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/reduce.h"
#include "mesh/store_inside.h"

/* ---- what is planned ---- */

/* run_end — the end of tensor i and of those packed behind it; *next: the tensor after them. */
static int64_t run_end(const struct param_table *t, int i, int *next)
{
    int last = i;
    while (last + 1 < t->params_n && t->param[last + 1].is_packed)
        last++;
    *next = last + 1;
    return t->param[last].offset + t->param[last].elems;
}

static int64_t blocks_of(int64_t elems)
{
    return (elems + REDUCE_BLOCK_ELEMS - 1) / REDUCE_BLOCK_ELEMS;
}

/* block_at — the first block of tensor `param` of the whole model; params_n: how many there are. */
static int64_t block_at(const struct param_table *whole, int param)
{
    int64_t blocks = 0;
    for (int i = 0, next; i < param; i = next)
        blocks += blocks_of(run_end(whole, i, &next) - whole->param[i].offset);
    return blocks;
}

#define SPARE_SLOTS 2 /* of unequal runs, which may have more pieces */

static enum status plan_deal(struct store *s)
{
    const int ranks = s->layout.ranks;
    s->deal = calloc((size_t)ranks + 1, sizeof *s->deal);
    if (!s->deal)
        return FAIL(ST_RETRY, "out of memory: the shards of %d ranks", ranks);
    shard_tree_deal(s->c.shards, ranks, s->deal);
    for (int rank = 0; rank < ranks; rank++) {
        int slots = shard_tree_slots(s->deal, ranks, rank);
        s->slots_max = slots > s->slots_max ? slots : s->slots_max;
    }
    s->slots_max += s->c.deals_shards && ranks > 1 ? SPARE_SLOTS : 0;
    return shard_tree_init(s->deal, ranks, s->layout.rank, &s->shards);
}

enum status store_exact_plan(struct store *s)
{
    const struct param_table *t = s->c.table;
    TRY(plan_deal(s));
    s->blocks.n = block_at(s->c.whole, s->c.whole->params_n);
    s->blocks.first = calloc((size_t)t->params_n, sizeof *s->blocks.first);
    s->blocks.host =
        calloc((size_t)(s->blocks.n + s->c.shards) + STORE_EXTRAS_MAX, sizeof *s->blocks.host);
    if (!s->blocks.first || !s->blocks.host)
        return FAIL(ST_RETRY, "out of memory: sums of %lld blocks", (long long)s->blocks.n);
    for (int i = 0, next; i < t->params_n; i = next) {
        (void)run_end(t, i, &next);
        s->blocks.first[i] = block_at(s->c.whole, t->param[i].whole_param);
    }
    return ST_OK;
}

void store_exact_free(struct store *s)
{
    grad_tree_close(s->grad_tree);
    s->grad_tree = NULL;
    shard_tree_free(&s->shards);
    free(s->deal);
    s->deal = NULL;
    free(s->blocks.first);
    free(s->blocks.host);
    s->blocks.first = NULL;
    s->blocks.host = NULL;
}

int64_t store_exact_slots(const struct store *s)
{
    return s->c.shards > 0 ? (s->slots_max - 1) * s->c.table->total_elems : 0;
}

/* ---- slots ---- */

static struct tensor slot(const struct store *s, int i)
{
    return i == 0 ? s->grads : tensor_at(s->shard_grads, (i - 1) * s->c.table->total_elems);
}

void store_exact_bind(const struct store *s, int shard, struct pass *p)
{
    ASSERTF(shard >= 0 && shard < s->shards.shards_n, "shard %d of %d", shard, s->shards.shards_n);
    p->grads = slot(s, s->shards.shard_slot[shard]);
}

/* add — slot[to] += slot[from] of elements [first, first + n). */
static enum status add(struct store *s, struct sum_tree_step step, int64_t first, int64_t n)
{
    struct tensor to = tensor_at(slot(s, step.to), first),
                  from = tensor_at(slot(s, step.from), first);
    const struct combine sum = {
        .out = to, .in = to, .own = from, .elems = n, .stride = n, .sources_n = 2, .own_i = 1};
    return dev_op(s->c.dev)->combine(s->c.stream, &sum);
}

enum status store_exact_add(struct store *s, int shard, int unit)
{
    const struct shard_tree *t = &s->shards;
    int64_t first, n;
    param_unit_span(s->c.table, unit, &first, &n);
    for (int i = t->add_first[shard]; i < t->add_first[shard + 1] && n > 0; i++)
        TRY(add(s, t->add[i], first, n));
    return ST_OK;
}

/* ---- sums over the ranks ---- */

/* zero_slots — padding is never written. */
static enum status zero_slots(struct store *s)
{
    int64_t elems = store_exact_slots(s);
    return elems > 0 ? dev_fill(s->c.stream, s->shard_grads.data, 0, (size_t)elems * sizeof(float))
                     : ST_OK;
}

/* open_tree — how the pieces of all ranks join. */
static enum status open_tree(struct store *s)
{
    const struct comm_place *place = comm_place(s->c.comm);
    bool is_of_ranks;
    grad_tree_close(s->grad_tree);
    s->grad_tree = NULL;
    if (s->is_alone)
        return ST_OK;
    TRY(shard_tree_is_of_ranks(s->deal, place->nodes, place->locals, &is_of_ranks));
    if (is_of_ranks)
        return ST_OK;
    const struct grad_tree_config config = {
        .comm = s->c.comm, .begin = s->deal, .buckets_n = s->layout.buckets_n};
    return grad_tree_open(&config, &s->grad_tree);
}

enum status store_exact_open(struct store *s)
{
    TRY(zero_slots(s));
    return open_tree(s);
}

const int *store_exact_deal(const struct store *s) { return s->deal; }

bool store_exact_takes(const struct store *s, const int *begin)
{
    for (int rank = 0; rank < s->layout.ranks; rank++)
        if (begin[rank + 1] <= begin[rank] ||
            shard_tree_slots(begin, s->layout.ranks, rank) > s->slots_max)
            return false;
    return begin[0] == 0 && begin[s->layout.ranks] == s->c.shards;
}

enum status store_exact_redeal(struct store *s, const int *begin)
{
    struct shard_tree tree;
    ASSERT(store_exact_takes(s, begin));
    TRY(shard_tree_init(begin, s->layout.ranks, s->layout.rank, &tree));
    shard_tree_free(&s->shards);
    s->shards = tree;
    memcpy(s->deal, begin, ((size_t)s->layout.ranks + 1) * sizeof *begin);
    return open_tree(s);
}

enum status store_exact_reduce(struct store *s, int bucket, struct tensor to_all,
                               struct tensor to_own, struct comm_ticket *ticket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const float *piece[GRAD_TREE_PIECES_MAX] = {store_grad_whole(s, bucket).data};
    for (int i = 1; i < s->shards.pieces_n; i++)
        piece[i] = tensor_at(slot(s, i), l->first).data;
    return store_track(
        s, grad_tree_begin(s->grad_tree, bucket, piece, l->elems, to_all.data, to_own.data, ticket),
        *ticket);
}

/* ---- the norm ---- */

enum status store_exact_norm_reset(struct store *s)
{
    return dev_fill(s->c.stream, s->blocks.sums.data, 0, (size_t)s->blocks.n * sizeof(double));
}

/* add_run — the blocks of tensor i, and those packed behind it up to `run`, that lie in elements
 * [first, end) of the table, of which `own` is the first. */
static enum status add_run(struct store *s, int i, int64_t run, int64_t first, int64_t end,
                           struct tensor own)
{
    const int64_t begin = s->c.table->param[i].offset, from = begin > first ? begin : first,
                  to = run < end ? run : end;
    if (from >= to || s->c.table->param[i].is_counted_elsewhere)
        return ST_OK;
    ASSERTF((from - begin) % REDUCE_BLOCK_ELEMS == 0 &&
                (to == run || (to - begin) % REDUCE_BLOCK_ELEMS == 0),
            "elements %lld to %lld of tensor %d", (long long)(from - begin),
            (long long)(to - begin), i);
    const struct sumsq squares = {
        .out = tensor_at(s->blocks.sums, s->blocks.first[i] + (from - begin) / REDUCE_BLOCK_ELEMS),
        .x = tensor_at(own, from - first),
        .n = to - from,
        .by_block = true};
    return dev_op(s->c.dev)->sumsq(s->c.stream, &squares);
}

enum status store_exact_norm_add(struct store *s, int bucket, struct tensor own)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const int64_t first = l->first + l->own.first, end = first + l->own.elems;
    for (int i = 0, next; i < s->c.table->params_n; i = next) {
        int64_t run = run_end(s->c.table, i, &next);
        TRY(add_run(s, i, run, first, end, own));
    }
    return ST_OK;
}

enum status store_exact_norm_begin(struct store *s)
{
    return dev_copy(s->c.stream, s->blocks.host, s->blocks.sums.data,
                    (size_t)s->blocks.n * sizeof(double));
}

enum status store_exact_norm_end(struct store *s, double *norm_sq_out, double *extra, int n)
{
    struct comm_ticket ticket;
    double total = 0, *sums = s->blocks.host;
    memcpy(sums + s->blocks.n, extra, (size_t)n * sizeof *extra);
    TRY(store_all_reduce_begin(s, sums, (int)s->blocks.n + n, &ticket));
    TRY(store_wait(s, ticket));
    memcpy(extra, sums + s->blocks.n, (size_t)n * sizeof *extra);
    for (int64_t i = 0; i < s->blocks.n; i++)
        total += sums[i];
    *norm_sq_out = total;
    return ST_OK;
}
