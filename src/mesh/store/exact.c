/* store_exact — EXACT=layout: gradients and their norm as functions of the batch's virtual shards,
 * not of the ranks (store.h).
 *
 * - A rank adds up the gradients of its shards in slots (shard_tree.h), unit by unit, right after
 *   the backward pass of each shard. Its partial sums then join the other ranks' partial sums along
 *   the same tree: by the comm's own sums if these follow that tree, else by grad/tree.h.
 * - The norm is a sum over blocks of each tensor, or, with tensor parallelism, of each rank's shard
 *   of it. A block lies on one rank (layout_pad_blocks), and its sum depends only on its numbers.
 *   All blocks' sums are all-reduced; all ranks but one add zero to each. Every rank then adds them
 *   in the order of the whole model, tensor rank by tensor rank. */
#include "mesh/store/exact.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "kernels/reduce.h"
#include "mesh/store/inside.h"

/* ---- the plan ---- */

/* A tensor and the tensors packed after it: elements [begin, end) of the table. If tensor ranks
 * hold shards of a pack in unequal numbers of copies (queries, and fewer key heads than ranks),
 * each kind is a run. Blocks are counted from the start of the pack, `pack`, so that they lie on
 * one rank. */
struct run {
    int64_t pack, begin, end;
    int next; /* the tensor after it */
};

static struct run run_at(const struct param_table *t, int first)
{
    int pack = first, last = first;
    while (t->param[pack].is_packed)
        pack--;
    while (last + 1 < t->params_n && t->param[last + 1].is_packed &&
           t->param[last + 1].tensor_copies == t->param[first].tensor_copies)
        last++;
    return (struct run){.pack = t->param[pack].offset,
                        .begin = t->param[first].offset,
                        .end = t->param[last].offset + t->param[last].elems,
                        .next = last + 1};
}

/* block_of — returns the block of element `at`, counted from the first block of the run. */
static int64_t block_of(struct run run, int64_t at)
{
    return (at - run.pack) / REDUCE_BLOCK_ELEMS - (run.begin - run.pack) / REDUCE_BLOCK_ELEMS;
}
static int64_t blocks_of(struct run run)
{
    return run.end > run.begin ? block_of(run, run.end - 1) + 1 : 0;
}

/* block_at — returns the first block of tensor `param` of all stages; for params_n the number of
 * blocks. */
static int64_t block_at(const struct param_table *shard, int param)
{
    int64_t blocks = 0;
    for (int i = 0; i < param; i = run_at(shard, i).next)
        blocks += blocks_of(run_at(shard, i));
    return blocks;
}

/* groups_n — returns the number of groups of ranks, each with shards of its own. own_group: this
 * rank's group. */
static int groups_n(const struct store *s)
{
    const int contexts = s->c.exact.context_ranks;
    ASSERTF(contexts >= 1 && s->layout.ranks % contexts == 0, "%d ranks in groups of %d",
            s->layout.ranks, contexts);
    return s->layout.ranks / contexts;
}
static int own_group(const struct store *s) { return s->layout.rank / s->c.exact.context_ranks; }

#define SPARE_SLOTS 2 /* for unequal runs, which may have more partial sums */

enum status store_exact_plan(struct store *s)
{
    const struct param_table *t = s->c.table, *shard = s->c.exact.shard;
    const int ranks = groups_n(s);
    /* The most numbers that are sent with the blocks' sums. */
    const int64_t extras_n = (int64_t)s->c.shards * s->c.exact.context_ranks + STORE_EXTRAS_MAX;
    s->deal = memory_new((size_t)ranks + 1, sizeof *s->deal);
    shard_tree_deal(s->c.shards, ranks, s->deal);
    for (int rank = 0; rank < ranks; rank++) {
        int slots = shard_tree_slots(s->deal, ranks, rank);
        s->slots_max = slots > s->slots_max ? slots : s->slots_max;
    }
    s->slots_max += s->c.deals_shards && ranks > 1 ? SPARE_SLOTS : 0;
    shard_tree_init(s->deal, ranks, own_group(s), &s->shards);
    s->blocks.n = s->c.exact.tensor_ranks * block_at(shard, shard->params_n);
    s->blocks.first = memory_new((size_t)t->params_n, sizeof *s->blocks.first);
    s->blocks.host = calloc((size_t)(s->blocks.n + extras_n), sizeof *s->blocks.host);
    if (!s->blocks.host)
        return FAIL(ST_RETRY, "out of memory: sums of %lld blocks", (long long)s->blocks.n);
    for (int i = 0; i < t->params_n; i = run_at(t, i).next) {
        const int param = t->param[i].whole_param;
        ASSERTF(param < shard->params_n && shard->param[param].whole_param == param,
                "tensor %d of %d", param, shard->params_n);
        s->blocks.first[i] =
            s->c.exact.tensor_rank * block_at(shard, shard->params_n) + block_at(shard, param);
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

int64_t store_exact_received(const struct store *s)
{
    int64_t most = 0;
    if (s->c.shards == 0 || !s->is_discrete || s->is_alone)
        return 0;
    for (int i = 0; i < s->layout.buckets_n; i++)
        most = s->layout.bucket[i].elems > most ? s->layout.bucket[i].elems : most;
    /* A rank has at most a partial sum in each of its slots, however shards are dealt. */
    return s->c.deals_shards ? s->slots_max * most
                             : grad_tree_received_elems(s->deal, groups_n(s), most);
}

/* ---- slots ---- */

static struct tensor slot_grads(const struct store *s, int i)
{
    return i == 0 ? s->grads : tensor_at(s->shard_grads, (i - 1) * s->c.table->total_elems);
}

void store_exact_bind(const struct store *s, int shard, struct pass *p)
{
    ASSERTF(shard >= 0 && shard < s->shards.shards_n, "shard %d of %d", shard, s->shards.shards_n);
    p->grads = slot_grads(s, s->shards.shard_slot[shard]);
}

/* add_slots — adds slot[from] to slot[to] for elements [first, first + n). */
static enum status add_slots(struct store *s, struct sum_tree_step step, int64_t first, int64_t n)
{
    struct tensor to = tensor_at(slot_grads(s, step.to), first),
                  from = tensor_at(slot_grads(s, step.from), first);
    const struct combine sum = {
        .out = to, .in = to, .own = from, .elems = n, .stride = n, .sources_n = 2, .own_i = 1};
    return dev_op(s->c.dev)->combine(s->c.stream, &sum);
}

enum status store_exact_add(struct store *s, int shard, int64_t first, int64_t n)
{
    const struct shard_tree *t = &s->shards;
    for (int i = t->add_first[shard]; i < t->add_first[shard + 1] && n > 0; i++)
        TRY(add_slots(s, t->add[i], first, n));
    return ST_OK;
}

int store_exact_partials(const struct store *s) { return s->shards.partials_n; }

struct tensor store_exact_partial(const struct store *s, int k) { return slot_grads(s, k); }

/* ---- sums over the ranks ---- */

/* open_tree — opens the sum of the partial sums of all ranks. NCCL adds in an order of its own. */
static enum status open_tree(struct store *s)
{
    const struct comm_place *place = comm_place(s->c.comm);
    grad_tree_close(s->grad_tree);
    s->grad_tree = NULL;
    s->has_tree = !s->is_alone && (comm_stays_on_device(s->c.comm) ||
                                   !shard_tree_is_of_ranks(s->deal, s->c.exact.context_ranks,
                                                           place->nodes, place->locals));
    if (!s->has_tree)
        return ST_OK;
    const struct grad_tree_config config = {.comm = s->c.comm,
                                            .begin = s->deal,
                                            .contexts = s->c.exact.context_ranks,
                                            .buckets_n = s->layout.buckets_n,
                                            .dev = s->c.dev,
                                            .received = s->received.data};
    return grad_tree_open(&config, &s->grad_tree);
}

enum status store_exact_open(struct store *s)
{
    /* Zeroed here, because passes never write padding. */
    int64_t elems = store_exact_slots(s);
    TRY(elems > 0 ? dev_fill(s->c.stream, s->shard_grads.data, 0, (size_t)elems * sizeof(float))
                  : ST_OK);
    return open_tree(s);
}

const int *store_exact_deal(const struct store *s) { return s->deal; }

bool store_exact_fits(const struct store *s, const int *begin)
{
    const int ranks = groups_n(s);
    for (int rank = 0; rank < ranks; rank++)
        if (begin[rank + 1] <= begin[rank] || shard_tree_slots(begin, ranks, rank) > s->slots_max)
            return false;
    return begin[0] == 0 && begin[ranks] == s->c.shards;
}

enum status store_exact_redeal(struct store *s, const int *begin)
{
    struct shard_tree tree;
    ASSERT(store_exact_fits(s, begin));
    shard_tree_init(begin, groups_n(s), own_group(s), &tree);
    shard_tree_free(&s->shards);
    s->shards = tree;
    memcpy(s->deal, begin, ((size_t)groups_n(s) + 1) * sizeof *begin);
    TRY(open_tree(s));
    store_reduce_choose(s);
    return ST_OK;
}

enum status store_exact_reduce(struct store *s, int bucket, struct tensor to_all,
                               struct tensor to_own)
{
    struct comm_ticket *ticket = &s->bucket[bucket].reduce;
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const float *partial[GRAD_TREE_PARTIALS_MAX] = {store_reduce_grad(s, bucket).data};
    for (int i = 1; i < s->shards.partials_n; i++)
        partial[i] = tensor_at(slot_grads(s, i), l->first).data;
    return store_track(
        s,
        grad_tree_begin(s->grad_tree, bucket, partial, l->elems, to_all.data, to_own.data, ticket),
        *ticket);
}

/* ---- the norm ---- */

static enum status norm_reset(struct store *s)
{
    return dev_fill(s->c.stream, s->blocks.sums.data, 0, (size_t)s->blocks.n * sizeof(double));
}

static enum status add_squares(struct store *s, struct tensor sums, struct tensor x, int64_t n)
{
    const struct sumsq squares = {.out = sums, .x = x, .n = n, .by_block = true};
    return n > 0 ? dev_op(s->c.dev)->sumsq(s->c.stream, &squares) : ST_OK;
}

static bool ends_block(struct run run, int64_t at)
{
    return at == run.begin || at == run.end || (at - run.pack) % REDUCE_BLOCK_ELEMS == 0;
}

/* add_run — adds up the blocks of a run, whose sums begin at `sums`, that lie in elements [first,
 * end) of the table; `own` begins with element `first`. The first block of a run within a pack may
 * be short. */
static enum status add_run(struct store *s, struct run run, struct tensor sums, int64_t first,
                           int64_t end, struct tensor own)
{
    const int64_t from = run.begin > first ? run.begin : first, to = run.end < end ? run.end : end;
    if (from >= to)
        return ST_OK;
    ASSERTF(ends_block(run, from) && ends_block(run, to), "elements %lld to %lld of %lld to %lld",
            (long long)from, (long long)to, (long long)run.begin, (long long)run.end);
    const int64_t past = (from - run.pack) % REDUCE_BLOCK_ELEMS,
                  left = past > 0 ? REDUCE_BLOCK_ELEMS - past : 0,
                  lead = left < to - from ? left : to - from;
    const struct tensor at = tensor_at(sums, block_of(run, from));
    TRY(add_squares(s, at, tensor_at(own, from - first), lead));
    return add_squares(s, tensor_at(at, lead > 0), tensor_at(own, from + lead - first),
                       to - from - lead);
}

static enum status norm_add(struct store *s, int bucket, struct tensor own)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const struct param_table *t = s->c.table;
    const int64_t first = l->first + l->own.first, end = first + l->own.elems;
    for (int i = 0; i < t->params_n; i = run_at(t, i).next)
        TRY(add_run(s, run_at(t, i), tensor_at(s->blocks.sums, s->blocks.first[i]), first, end,
                    own));
    return ST_OK;
}

static enum status norm_begin(struct store *s)
{
    return dev_copy(s->c.stream, s->blocks.host, s->blocks.sums.data,
                    (size_t)s->blocks.n * sizeof(double));
}

static enum status norm_end(struct store *s, double *norm_sq_out, double *extra, int n)
{
    struct comm_ticket ticket;
    double total = 0, *sums = s->blocks.host;
    /* A tensor that another rank counts adds nothing, or makes the norm NaN: a number that is not
     * finite in only one copy must not go unnoticed. */
    const struct param_table *t = s->c.table;
    for (int i = 0; i < t->params_n; i = run_at(t, i).next) {
        double *own = s->blocks.host + s->blocks.first[i];
        for (int64_t k = 0; t->param[i].is_counted_elsewhere && k < blocks_of(run_at(t, i)); k++)
            own[k] *= 0;
    }
    memcpy(sums + s->blocks.n, extra, (size_t)n * sizeof *extra);
    TRY(store_all_reduce_begin(s, sums, (int)s->blocks.n + n, &ticket));
    TRY(store_wait(s, ticket));
    memcpy(extra, sums + s->blocks.n, (size_t)n * sizeof *extra);
    for (int64_t i = 0; i < s->blocks.n; i++)
        total += sums[i];
    *norm_sq_out = total;
    return ST_OK;
}

const struct store_norm store_norm_blocks = {norm_reset, norm_add, norm_begin, norm_end};
