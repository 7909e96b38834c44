/* store — the life of a store, gradients and their reduction, the update (store.h).
 *
 * Memory and the policy table are in store/memory.c, the compute copy in store/params.c, the norm
 * in store/grad_norm.c, the state of all ranks by ranges in store/state.c. */
#include "mesh/store/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/store/inside.h"

/* ---- life ---- */

enum status store_set_place(struct store *s, int rank, int ranks, bool is_discrete)
{
    /* On rank `rank` of `ranks`: with HYBRID every group has a layout of its own. */
    int group = store_is_hybrid(s) ? s->c.settings.group_ranks : ranks;
    ASSERTF(s->c.settings.shard < LAYOUT_SHARD_AUTO, "shard %d", (int)s->c.settings.shard);
    ASSERTF(group >= 1 && ranks % group == 0, "groups of %d of %d ranks", group, ranks);
    s->rank = rank;
    s->ranks = ranks;
    layout_init(s->c.table, group, rank % group, s->c.settings.bucket_elems_min, &s->layout);
    s->is_discrete = is_discrete;
    s->is_alone = s->layout.ranks == 1;
    s->policy = store_memory_policy(&s->c, s->layout.ranks);
    s->is_sparse = store_memory_uses_sparse(s);
    return s->c.shards > 0 ? store_exact_plan(s) : ST_OK;
}

enum status store_plan(const struct store_config *config, int rank, int ranks, bool is_discrete,
                       struct store_memory *out)
{
    struct store s = {.c = *config};
    TRY(store_set_place(&s, rank, ranks, is_discrete));
    *out = store_memory_plan(&s);
    store_exact_free(&s);
    layout_free(&s.layout);
    return ST_OK;
}

void store_new_lists(struct store *s)
{
    s->bucket = memory_new((size_t)s->layout.buckets_n, sizeof *s->bucket);
    s->sums = memory_new((size_t)s->layout.buckets_n + STORE_EXTRAS_MAX, sizeof *s->sums);
    s->embed_params = memory_new((size_t)s->c.table->params_n, sizeof *s->embed_params);
    if (s->has_groups)
        s->slots = memory_new((size_t)s->c.whole->params_n + STORE_EXTRAS_MAX, sizeof *s->slots);
}

enum status store_open(const struct store_config *config, struct store **out)
{
    struct store *s = memory_new(1, sizeof *s);
    const struct comm_place *place = comm_place(config->comm);
    enum status st;
    s->c = *config;
    /* The world is the comm's own ranks, or has other groups too. */
    if (s->c.world == NULL)
        s->c.world = s->c.comm;
    s->has_groups = s->c.world != s->c.comm;
    TRY_OR(store_set_place(s, place->rank, place->ranks, dev_is_discrete(config->dev)), failed);
    TRY_OR(store_memory_split(s), failed);
    s->grad_in_slot[0] = s->grad_in_slot[1] = -1;
    s->taken = store_memory_plan(s);
    store_new_lists(s);
    TRY_OR(store_memory_take(s), failed);
    if (config->shards > 0 && config->has_grads)
        TRY_OR(store_exact_open(s), failed);
    *out = s;
    return ST_OK;
failed:
    store_close(s);
    return st;
}

void store_quiesce(struct store *s)
{
    if (s->is_under_way) /* after a failure; the wait fails too, but then no call uses our memory */
        (void)comm_wait(s->c.world, s->newest);
    s->is_under_way = false;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    store_quiesce(s);
    for (int i = 0; i < s->memory_n; i++)
        if (!s->memory[i].is_comm)
            dev_free(s->c.dev, s->memory[i].data, s->memory[i].bytes);
    sparse_embed_close(s->sparse);
    grad_compress_close(s->grad_compress);
    if (s->within != s->c.comm)
        comm_close(s->within);
    comm_close(s->across);
    store_exact_free(s);
    layout_free(&s->layout);
    free(s->bucket);
    free(s->sums);
    free(s->slots);
    free(s->embed_params);
    free(s);
}

const struct layout *store_layout(const struct store *s) { return &s->layout; }

void store_bind(const struct store *s, struct pass *p)
{
    p->table = s->policy.params == STORE_BUFFER ? &s->layout.buffer_table : s->c.table;
    p->grad_table = s->policy.grads == STORE_BUFFER ? &s->layout.buffer_table : s->c.table;
    p->params = s->compute_copy;
    p->grads = s->grads;
}

/* ---- waiting ---- */

/* Calls finish in the order in which they began: after the newest is waited for, none is left. */
enum status store_track(struct store *s, enum status st, struct comm_ticket ticket)
{
    TRY(st);
    s->newest = ticket;
    s->is_under_way = true;
    return ST_OK;
}

/* Work that the stream has recorded (dev_graph_begin) is launched before the host waits, because
 * the device would idle otherwise. It is launched even if the call has finished already: what is
 * launched together must be the same in each step. */
enum status store_wait(struct store *s, struct comm_ticket ticket)
{
    if (s->dry)
        return ST_OK;
    if (s->is_under_way && comm_place(s->c.world)->ranks > 1)
        TRY(dev_flush(s->c.stream));
    s->is_under_way = s->is_under_way && ticket.sequence != s->newest.sequence;
    return comm_wait(s->c.world, ticket);
}

/* The host goes on where the device executes the call: `newest` stays under way until it is waited
 * for, or until the store is closed. */
enum status store_stream_wait(struct store *s, struct comm_ticket ticket)
{
    if (s->dry || !comm_stays_on_device(s->c.world))
        return store_wait(s, ticket);
    return comm_wait_on(s->c.world, ticket, s->c.stream);
}

enum status store_comm_wait_stream(struct store *s)
{
    if (s->dry)
        return ST_OK;
    return s->grad_compress ? dev_sync(s->c.stream) : comm_wait_stream(s->c.comm, s->c.stream);
}

enum status store_all_reduce_begin(struct store *s, double *values, int n,
                                   struct comm_ticket *ticket)
{
    struct tensor all = {values, DTYPE_F64};
    return store_call_begin(
        s, &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_WORLD, -1, all, all, n}, ticket);
}

/* ---- parameters ---- */

enum status store_unshard(struct store *s, int unit, int direction)
{
    int last = s->layout.unit_bucket[unit], next = last + direction;
    for (int bucket = unit == 0 ? 0 : last; bucket <= last; bucket++)
        TRY(store_params_make_ready(s, bucket));
    bool is_next = direction != 0 && next < s->layout.buckets_n && next > s->layout.unit_bucket[0];
    return is_next ? store_params_prefetch(s, next) : ST_OK;
}

/* ---- gradients ---- */

/* The whole bucket, as passes wrote it. */
struct tensor store_grad_whole(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    return tensor_at(s->grads, s->policy.grads == STORE_BUFFER ? l->buffer_at : l->first);
}

/* grad_own — Returns the reduced gradients of this rank's part of a bucket. */
static struct tensor grad_own(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    return s->policy.grads == STORE_BUFFER ? tensor_at(s->grads_own, l->shard_at)
                                           : tensor_at(store_grad_whole(s, bucket), l->own.first);
}

/* The bucket's gradient as it travels, and this rank's part of that, which the sum replaces. */
static struct tensor sent_of(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    return store_rounds_grads(s)
               ? tensor_at(s->grads_rounded,
                           s->policy.grads == STORE_BUFFER ? l->buffer_at : l->first)
               : store_grad_whole(s, bucket);
}
static struct tensor sent_own(const struct store *s, int bucket)
{
    return store_rounds_grads(s) ? tensor_at(sent_of(s, bucket), s->layout.bucket[bucket].own.first)
                                 : grad_own(s, bucket);
}

/* Not the embedding where rows are exchanged: it is the largest bucket, its reduction starts first
 * and the next pass reads it first. So its dense gradient is all-reduced beside the backward pass,
 * and every rank adds all rows to all of it. */
static bool defers_update(const struct store *s, int bucket)
{
    return s->policy.gather == STORE_GATHER_GRADS && !(s->is_sparse && bucket == 0);
}

/* Reduce-scatter: each rank gets its part of the sum; else all-reduce. */
static bool is_reduce_scattered(const struct store *s, int bucket)
{
    return s->policy.moments == STORE_SHARD || defers_update(s, bucket);
}

/* No dense gradient goes into the embedding (TASK=qa): its gradient is zero before the rows are
 * added, and is not reduced. */
static bool is_embedding_sparse_only(const struct store *s)
{
    return s->is_sparse && s->c.table->param[0].grad_is_added && !s->c.accumulates;
}

enum status store_cast(struct store *s, struct tensor to, struct tensor from, int64_t elems)
{
    return dev_op(s->c.dev)->cast(s->c.stream, &(struct cast){.y = to, .x = from, .n = elems});
}

/* The sum that came back as 16-bit numbers: all of it, or this rank's part. */
static enum status widen(struct store *s, int bucket, bool is_own_only)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    if (!store_rounds_grads(s))
        return ST_OK;
    return is_own_only ? store_cast(s, grad_own(s, bucket), sent_own(s, bucket), l->own.elems)
                       : store_cast(s, store_grad_whole(s, bucket), sent_of(s, bucket), l->elems);
}

enum status store_grad_gathered(struct store *s, int bucket) { return widen(s, bucket, false); }

/* reduce_parts — this rank's part of the sum: of its group, then of all groups. Parts may be empty,
 * but every rank makes the same calls, so that they are numbered alike. */
static enum status reduce_parts(struct store *s, int bucket, struct comm_ticket *ticket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    struct tensor own = sent_own(s, bucket);
    const struct store_call scatter = {STORE_CALL_REDUCE_SCATTER,
                                       STORE_GROUP_WITHIN,
                                       bucket,
                                       own,
                                       sent_of(s, bucket),
                                       l->elems},
                            sum = {STORE_CALL_ALL_REDUCE, STORE_GROUP_ACROSS, bucket, own, own,
                                   l->own.elems};
    TRY(store_call_begin(s, &scatter, ticket));
    return store_is_hybrid(s) ? store_call_begin(s, &sum, ticket) : ST_OK;
}

static enum status reduce(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    struct store_bucket *p = &s->bucket[bucket];
    struct tensor from = store_grad_whole(s, bucket), sent = sent_of(s, bucket), none = {0};
    if (p->is_reduce_begun)
        return ST_OK;
    p->is_reduce_begun = true;
    if (s->is_alone || (bucket == 0 && is_embedding_sparse_only(s)))
        return ST_OK;
    p->is_reducing = true;
    if (store_rounds_grads(s))
        TRY(store_cast(s, sent, from, l->elems));
    TRY(store_comm_wait_stream(s));
    if (store_memory_compresses(s))
        return store_call_reduce_compressed(
            s, bucket, from, is_reduce_scattered(s, bucket) ? none : from, grad_own(s, bucket));
    if (s->grad_tree)
        return store_exact_reduce(s, bucket, is_reduce_scattered(s, bucket) ? none : from,
                                  grad_own(s, bucket), &p->reduce);
    if (is_reduce_scattered(s, bucket))
        return reduce_parts(s, bucket, &p->reduce);
    return store_call_begin(
        s,
        &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_ALL, bucket, sent, sent, l->elems},
        &p->reduce);
}

static enum status finish_reduce(struct store *s, int bucket)
{
    struct store_bucket *p = &s->bucket[bucket];
    if (!p->is_reduce_begun || p->is_finished)
        return ST_OK;
    p->is_finished = true;
    if (p->is_reducing) {
        p->is_reducing = false;
        TRY(store_stream_wait(s, p->reduce));
        TRY(widen(s, bucket, is_reduce_scattered(s, bucket)));
    }
    if (bucket == 0 && s->is_sparse) {
        /* Adds the rows that lie in what this rank has of the reduced gradient. */
        const struct part_extent all = {.elems = s->c.table->param[0].elems};
        bool is_own_only = is_reduce_scattered(s, 0);
        struct part_extent part = is_own_only ? s->layout.bucket[0].own : all;
        struct tensor to = is_own_only ? grad_own(s, 0) : store_grad_whole(s, 0);
        TRY(store_stream_wait(s, s->sparse_ticket));
        TRY(store_call_sparse_add(s, part, to));
    }
    return store_grad_norm_add(s, bucket, grad_own(s, bucket));
}

enum status store_grad_sync_begin(struct store *s, const int32_t *tokens, int64_t n)
{
    for (int i = 0; i < s->layout.buckets_n; i++)
        s->bucket[i].is_reduce_begun = s->bucket[i].is_reducing = s->bucket[i].is_finished = false;
    s->grad_in_slot[0] = s->grad_in_slot[1] = -1;
    TRY(store_grad_norm_reset(s));
    if (!s->is_sparse)
        return ST_OK;
    if (is_embedding_sparse_only(s) && s->policy.grads == STORE_BUFFER)
        TRY(dev_fill(s->c.stream, grad_own(s, 0).data, 0,
                     (size_t)s->layout.bucket[0].own.elems * sizeof(float)));
    TRY(store_call_sparse_ids(s, tokens, n));
    /* No head adds to it, and this pass writes rows: what earlier passes added is complete. */
    return s->c.table->param[0].grad_is_added ? reduce(s, 0) : ST_OK;
}

enum status store_prepare_grad(struct store *s, int unit)
{
    int bucket = s->layout.unit_bucket[unit], slot = s->layout.bucket[bucket].slot;
    if (s->policy.grads == STORE_WHOLE || slot < 0)
        return ST_OK;
    if (s->grad_in_slot[slot] == bucket)
        return ST_OK;
    if (s->grad_in_slot[slot] >= 0)
        TRY(finish_reduce(s, s->grad_in_slot[slot]));
    s->grad_in_slot[slot] = bucket;
    /* Zeroes the padding between the tensors of a bucket; the slot held another bucket before. */
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const struct param_table *t = s->c.table;
    for (int i = 0; i < t->params_n; i++) {
        const struct param *param = &t->param[i];
        int64_t end = i + 1 < t->params_n ? param[1].offset : t->total_elems,
                from = param->offset + param->elems;
        if (param->offset >= l->first && param->offset < l->first + l->elems && from < end)
            TRY(dev_fill(s->c.stream, tensor_at(store_grad_whole(s, bucket), from - l->first).data,
                         0, (size_t)(end - from) * sizeof(float)));
    }
    return ST_OK;
}

enum status store_post_backward(struct store *s, int unit)
{
    int last = s->layout.unit_bucket[unit];
    if (s->layout.bucket[last].unit_first != unit)
        return ST_OK; /* other units of the bucket follow */
    if (unit == 0 && s->is_sparse)
        TRY(store_call_sparse_rows(s));
    for (int bucket = last; bucket >= (unit == 0 ? 0 : last); bucket--) {
        TRY(reduce(s, bucket));
        if (s->is_alone)
            TRY(finish_reduce(s, bucket)); /* its squares are added while it is in cache */
    }
    return ST_OK;
}

enum status store_embedding_grad_ready(void *store)
{
    struct store *s = store;
    return s->is_sparse ? reduce(s, 0) : ST_OK;
}

enum status store_sparse_embed_pass(struct store *s, const struct pass *from, struct pass *out)
{
    *out = *from;
    if (!s->sparse)
        return ST_OK;
    float *rows = NULL;
    TRY(store_stream_wait(s, s->sparse_ticket));
    TRY(sparse_embed_rows(s->sparse, &rows, &out->tokens));
    s->embed_table = *from->grad_table;
    memcpy(s->embed_params, from->grad_table->param,
           (size_t)s->c.table->params_n * sizeof *s->embed_params);
    s->embed_table.param = s->embed_params;
    s->embed_params[0].offset = rows - (float *)s->grads.data;
    out->grad_table = &s->embed_table;
    return ST_OK;
}

enum status store_finish_reductions(struct store *s)
{
    for (int bucket = s->layout.buckets_n - 1; bucket >= 0; bucket--) {
        ASSERTF(s->bucket[bucket].is_reduce_begun, "bucket %d has no gradient", bucket);
        TRY(finish_reduce(s, bucket));
    }
    return ST_OK;
}

struct tensor store_bucket_norms_sq(const struct store *s) { return s->norms; }

struct tensor store_loss_sum(const struct store *s)
{
    return tensor_at(s->norms, s->layout.buckets_n);
}

enum status store_gather_device(struct store *s, struct tensor all, int64_t each)
{
    struct comm_ticket ticket;
    struct tensor own = tensor_at(all, s->rank * each);
    const struct store_call call = {STORE_CALL_ALL_GATHER, STORE_GROUP_ALL, -1, all, own,
                                    s->ranks * each};
    TRY(store_comm_wait_stream(s));
    TRY(store_call_begin(s, &call, &ticket));
    return store_stream_wait(s, ticket);
}

/* ---- the update ---- */

struct store_local_shard store_local_shard(const struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    if (s->policy.moments == STORE_WHOLE)
        return (struct store_local_shard){.first = l->first,
                                          .elems = l->elems,
                                          .p = tensor_at(s->params, l->first),
                                          .g = tensor_at(s->grads, l->first),
                                          .m = store_memory_moment_at(s, 1, bucket),
                                          .v = store_memory_moment_at(s, 2, bucket)};
    return (struct store_local_shard){.first = l->first + l->own.first,
                                      .elems = l->own.elems,
                                      .p = store_params_shard(s, bucket),
                                      .g = grad_own(s, bucket),
                                      .m = store_memory_moment_at(s, 1, bucket),
                                      .v = store_memory_moment_at(s, 2, bucket)};
}

enum status store_update(struct store *s)
{
    for (int bucket = 0; bucket < s->layout.buckets_n; bucket++)
        s->bucket[bucket].is_behind = true;
    for (int bucket = 0; bucket < s->layout.buckets_n; bucket++) {
        if (defers_update(s, bucket)) {
            struct store_bucket *p = &s->bucket[bucket];
            TRY(store_comm_wait_stream(s));
            const struct store_call call = {
                STORE_CALL_ALL_GATHER, STORE_GROUP_ALL,     bucket,
                sent_of(s, bucket),    sent_own(s, bucket), s->layout.bucket[bucket].elems};
            TRY(store_memory_compresses(s)
                    ? store_call_gather_compressed(s, bucket, store_grad_whole(s, bucket))
                    : store_call_begin(s, &call, &p->gather));
            p->is_gathering = p->is_update_due = true;
            continue;
        }
        TRY(s->c.update(s->c.update_arg, bucket));
        TRY(store_params_after_update(s, bucket));
    }
    return ST_OK;
}

/* ---- whole tensors for an update that cannot be made part by part ----
 *
 * What travels lies where the bucket's gradient lay: it has been reduced and its squares are added,
 * so nothing reads it any more, and no memory is needed. */

static bool has_shards(const struct store *s) { return s->policy.moments == STORE_SHARD; }

/* call_and_wait — Makes a call, for which the stream waits. */
static enum status call_and_wait(struct store *s, const struct store_call *call)
{
    struct comm_ticket ticket;
    TRY(store_comm_wait_stream(s));
    TRY(store_call_begin(s, call, &ticket));
    return store_stream_wait(s, ticket);
}

enum status store_update_gather(struct store *s, int bucket, struct store_update_whole *out)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    *out = (struct store_update_whole){store_grad_whole(s, bucket), l->first, s->rank, s->ranks};
    if (!has_shards(s))
        return ST_OK;
    return call_and_wait(s, &(struct store_call){STORE_CALL_ALL_GATHER, STORE_GROUP_WITHIN, bucket,
                                                 out->g, grad_own(s, bucket), l->elems});
}

/* Where each rank holds all moments, the sum is needed everywhere; with groups, each group's part
 * of it is then added up over the groups. */
enum status store_update_scatter(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const struct tensor all = store_grad_whole(s, bucket), own = grad_own(s, bucket);
    if (!has_shards(s) && s->ranks == 1)
        return ST_OK;
    if (!has_shards(s))
        return call_and_wait(s, &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_ALL, bucket,
                                                     all, all, l->elems});
    TRY(call_and_wait(s, &(struct store_call){STORE_CALL_REDUCE_SCATTER, STORE_GROUP_WITHIN, bucket,
                                              own, all, l->elems}));
    if (!store_is_hybrid(s))
        return ST_OK;
    return call_and_wait(s, &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_ACROSS, bucket,
                                                 own, own, l->own.elems});
}

/* ---- the state ---- */

static enum store_extent extent_of(const struct store *s, int part)
{
    ASSERTF(part >= 0 && part <= s->c.moments_n, "part %d", part);
    return part == 0 ? s->policy.masters : s->policy.moments;
}

static struct tensor held(const struct store *s, int part)
{
    return part > 0 ? s->moment[part - 1] : s->params;
}

struct tensor store_replicated(const struct store *s, int part)
{
    bool is_table = part < 2 || !s->c.skips_hidden_second;
    return is_table && extent_of(s, part) == STORE_WHOLE ? held(s, part) : (struct tensor){0};
}

struct tensor store_grads(const struct store *s)
{
    return s->policy.moments == STORE_WHOLE ? s->grads : (struct tensor){0};
}

enum status store_drain(struct store *s)
{
    for (int i = 0; i < s->layout.buckets_n; i++)
        TRY(store_params_drain(s, i));
    TRY(dev_sync(s->c.stream)); /* for the deferred updates */
    return comm_check(s->c.world);
}

/* Narrows [*first, *end) of the table to this rank's part of a bucket; false: nothing is left. */
static bool own_range(const struct layout_bucket *l, int64_t *first, int64_t *end)
{
    int64_t own = l->first + l->own.first, own_end = own + l->own.elems;
    *first = *first > own ? *first : own;
    *end = *end < own_end ? *end : own_end;
    return *first < *end;
}

bool store_holds(const struct store *s, int part, int64_t first, int64_t n)
{
    if (extent_of(s, part) == STORE_WHOLE)
        return true;
    for (int i = 0; i < s->layout.buckets_n; i++) {
        int64_t from = first, end = first + n;
        if (own_range(&s->layout.bucket[i], &from, &end))
            return true;
    }
    return false;
}

/* set_run — the numbers of table elements [first, first + n), which lie together from `at` on. */
static enum status set_run(struct store *s, struct tensor to, int64_t at, int64_t n,
                           const float *values)
{
    return dev_copy(s->c.stream, tensor_at(to, at).data, values, (size_t)n * sizeof *values);
}

/* set_moment — elements [first, end) of the table, of a moment: those of them that this rank
 * has. */
static enum status set_moment(struct store *s, int part, int64_t first, int64_t end,
                              const float *values)
{
    for (int64_t from = first, n; from < end; from += n) {
        n = end - from;
        int64_t at = store_memory_moment_run(s, part, from, &n);
        if (at >= 0)
            TRY(set_run(s, held(s, part), at, n, values + from - first));
    }
    return ST_OK;
}

enum status store_set(struct store *s, int part, int64_t first, int64_t n, const float *values)
{
    struct tensor to = held(s, part);
    bool is_whole = extent_of(s, part) == STORE_WHOLE;
    TRY(store_params_begin_write(s, part));
    if (is_whole)
        TRY(part == 0 ? set_run(s, to, first, n, values)
                      : set_moment(s, part, first, first + n, values));
    for (int i = 0; !is_whole && i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        int64_t from = first, end = first + n;
        if (!own_range(l, &from, &end))
            continue;
        TRY(part == 0 ? set_run(s, to, l->shard_at + from - l->first - l->own.first, end - from,
                                values + from - first)
                      : set_moment(s, part, from, end, values + from - first));
    }
    return dev_sync(s->c.stream);
}
