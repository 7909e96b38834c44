/* store — the life of a store, its calls, the update (store.h).
 *
 * Memory and the policy table are in store/memory.c, the compute copy in store/params.c, gradients
 * and their reduction in store/reduce.c, the norm in store/grad_norm.c, the state in
 * store/state.c. */
#include "mesh/store/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/store/inside.h"
#include "mesh/store/state.h"

/* ---- waiting ---- */

/* Calls finish in the order in which they began: after the newest is waited for, none is in
 * progress. */
enum status store_track(struct store *s, enum status st, struct comm_ticket ticket)
{
    TRY(st);
    s->newest = ticket;
    s->is_under_way = true;
    return ST_OK;
}

/* Waits for a call on the host. Work that the stream has recorded (dev_graph_begin) is launched
 * before, because the device would idle otherwise. It is launched even if the call has finished
 * already, so that each step launches the same work together. */
static enum status wait_for_call(struct store *s, struct comm_ticket ticket)
{
    if (s->is_under_way && comm_place(s->c.world)->ranks > 1)
        TRY(dev_flush(s->c.stream));
    s->is_under_way = s->is_under_way && ticket.sequence != s->newest.sequence;
    TRY(dev_busy_pause(s->c.stream));
    TRY(comm_wait(s->c.world, ticket));
    return dev_busy_resume(s->c.stream);
}

/* Lets the stream wait for a call. If the device executes the call, the host goes on, and `newest`
 * counts as in progress until it is waited for or the store is closed. */
static enum status stream_wait_for_call(struct store *s, struct comm_ticket ticket)
{
    if (!comm_stays_on_device(s->c.world))
        return wait_for_call(s, ticket);
    return comm_wait_on(s->c.world, ticket, s->c.stream);
}

static enum status comm_wait_for_stream(struct store *s)
{
    return s->grad_compress ? dev_sync(s->c.stream) : comm_wait_stream(s->c.comm, s->c.stream);
}

/* ---- calls on the comms ---- */

static struct comm *comm_of(const struct store *s, enum store_group group)
{
    struct comm *const comms[] = {[STORE_GROUP_WITHIN] = s->within,
                                  [STORE_GROUP_ACROSS] = s->across,
                                  [STORE_GROUP_ALL] = s->c.comm,
                                  [STORE_GROUP_WORLD] = s->c.world};
    return comms[group];
}

static enum status begin_call(struct store *s, const struct store_call *call,
                              struct comm_ticket *ticket)
{
    struct comm *comm = comm_of(s, call->group);
    enum status st;
    if (call->kind == STORE_CALL_ALL_REDUCE)
        st = comm_all_reduce_begin(comm, call->out, call->in, call->elems, ticket);
    else if (call->kind == STORE_CALL_REDUCE_SCATTER)
        st = comm_reduce_scatter_begin(comm, call->out, call->in, call->elems, ticket);
    else
        st = comm_all_gather_begin(comm, call->out, call->in, call->elems, ticket);
    return store_track(s, st, *ticket);
}

static enum status reduce_compressed(struct store *s, int bucket, struct tensor from,
                                     struct tensor to_all, struct tensor to_own)
{
    struct store_bucket *p = &s->bucket[bucket];
    return store_track(s,
                       grad_compress_begin(s->grad_compress, bucket, from.data, to_all.data,
                                           to_own.data, &p->reduce),
                       p->reduce);
}

static enum status gather_compressed(struct store *s, int bucket, struct tensor to_all)
{
    struct store_bucket *p = &s->bucket[bucket];
    return store_track(
        s, grad_compress_gather_begin(s->grad_compress, bucket, to_all.data, &p->gather),
        p->gather);
}

static enum status sparse_ids(struct store *s, const int32_t *tokens, int64_t n)
{
    return store_track(s, sparse_embed_begin(s->sparse, tokens, n, &s->sparse_ticket),
                       s->sparse_ticket);
}

static enum status sparse_rows(struct store *s)
{
    return store_track(s, sparse_embed_exchange_begin(s->sparse, &s->sparse_ticket),
                       s->sparse_ticket);
}

static enum status sparse_add(struct store *s, struct part_extent part, struct tensor to)
{
    return sparse_embed_add(s->sparse, part, to);
}

static const struct store_calls comm_calls = {.wait = wait_for_call,
                                              .stream_wait = stream_wait_for_call,
                                              .wait_stream = comm_wait_for_stream,
                                              .begin = begin_call,
                                              .reduce_compressed = reduce_compressed,
                                              .gather_compressed = gather_compressed,
                                              .reduce_exact = store_exact_reduce,
                                              .sparse_ids = sparse_ids,
                                              .sparse_rows = sparse_rows,
                                              .sparse_add = sparse_add};

/* ---- life ---- */

struct store_config store_frozen_config(const struct store_config *config)
{
    struct store_settings settings = config->settings;
    if (settings.shard != LAYOUT_SHARD_FULL && settings.shard != LAYOUT_SHARD_HYBRID)
        settings.shard = LAYOUT_SHARD_NONE; /* the others divide gradients or moments */
    settings.compress = GRAD_COMPRESS_KIND_NONE;
    settings.has_whole_embed = true;
    return (struct store_config){.dev = config->dev,
                                 .stream = config->stream,
                                 .comm = config->frozen_comm ? config->frozen_comm : config->comm,
                                 .world = config->frozen_comm ? NULL : config->world,
                                 .table = config->frozen,
                                 .whole = config->frozen,
                                 .is_frozen = true,
                                 .settings = settings,
                                 .pass_tokens = config->pass_tokens,
                                 .heartbeat = config->heartbeat,
                                 .heartbeat_arg = config->heartbeat_arg};
}

enum status store_set_place(struct store *s, int rank, int ranks, bool is_discrete)
{
    const char *why; /* not used here: the allocation logs it */
    /* On rank `rank` of `ranks`: with HYBRID every group has a layout of its own. */
    int group = store_is_hybrid(s) ? s->c.settings.group_ranks : ranks;
    ASSERTF(s->c.settings.shard < LAYOUT_SHARD_AUTO, "shard %d", (int)s->c.settings.shard);
    ASSERTF(group >= 1 && ranks % group == 0, "groups of %d of %d ranks", group, ranks);
    s->rank = rank;
    s->ranks = ranks;
    s->own = (struct state){.ops = &store_state_own, .store = s};
    s->params_dtype = s->c.is_frozen ? s->c.settings.dtype : DTYPE_F32;
    layout_init(s->c.table, group, rank % group, s->c.settings.bucket_elems_min, &s->layout);
    s->is_discrete = is_discrete;
    s->is_alone = s->layout.ranks == 1;
    s->policy = store_memory_policy(&s->c, s->layout.ranks);
    s->is_sparse = store_memory_uses_sparse(s, &why);
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
    if (!config->frozen)
        return ST_OK;
    const struct store_config frozen = store_frozen_config(config);
    struct store_memory m;
    TRY(store_plan(&frozen, rank, ranks, is_discrete, &m));
    out->frozen = m.params + m.unsharded;
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
    s->calls = &comm_calls;
    /* The world is the comm's own ranks, or also has other groups. */
    if (s->c.world == NULL)
        s->c.world = s->c.comm;
    s->has_groups = s->c.world != s->c.comm;
    TRY_OR(store_set_place(s, place->rank, place->ranks, dev_is_discrete(config->dev)), failed);
    TRY_OR(store_memory_split(s), failed);
    s->grad_in_slot[0] = s->grad_in_slot[1] = -1;
    s->allocated = store_memory_plan(s);
    if (config->frozen) {
        const struct store_config frozen = store_frozen_config(config);
        TRY_OR(store_open(&frozen, &s->frozen), failed);
        s->allocated.frozen = store_memory_bytes(s->frozen);
    }
    store_new_lists(s);
    TRY_OR(store_memory_alloc(s), failed);
    if (config->shards > 0 && config->has_grads)
        TRY_OR(store_exact_open(s), failed);
    store_reduce_choose(s);
    *out = s;
    return ST_OK;
failed:
    store_close(s);
    return st;
}

void store_quiesce(struct store *s)
{
    if (s->frozen)
        store_quiesce(s->frozen);
    if (s->is_under_way) /* after a failure; the wait fails too, but then no call uses our memory */
        (void)comm_wait(s->c.world, s->newest);
    s->is_under_way = false;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    store_quiesce(s);
    store_close(s->frozen);
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

struct store *store_frozen(const struct store *s) { return s->frozen; }

const struct layout *store_layout(const struct store *s) { return &s->layout; }

void store_bind(const struct store *s, struct pass *p)
{
    p->table = s->policy.params == STORE_BUFFER ? &s->layout.buffer_table : s->c.table;
    p->grad_table = s->policy.grads == STORE_BUFFER ? &s->layout.buffer_table : s->c.table;
    p->params = s->compute_copy;
    p->grads = s->grads;
    if (!s->frozen)
        return;
    struct pass frozen;
    store_bind(s->frozen, &frozen);
    p->adapter.table = p->table;
    p->adapter.params = p->params;
    p->table = frozen.table;
    p->params = frozen.params;
}

/* ---- calls of this store ---- */

enum status store_wait(struct store *s, struct comm_ticket ticket)
{
    return s->calls->wait(s, ticket);
}

enum status store_call_and_wait(struct store *s, const struct store_call *call)
{
    struct comm_ticket ticket;
    TRY(s->calls->wait_stream(s));
    TRY(s->calls->begin(s, call, &ticket));
    return s->calls->stream_wait(s, ticket);
}

/* ---- sums of numbers ---- */

enum status store_all_reduce_begin(struct store *s, double *values, int n,
                                   struct comm_ticket *ticket)
{
    struct tensor all = {values, DTYPE_F64};
    return s->calls->begin(
        s, &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_WORLD, -1, all, all, n}, ticket);
}

enum status store_cast(struct store *s, struct tensor to, struct tensor from, int64_t elems)
{
    return dev_op(s->c.dev)->cast(s->c.stream, &(struct cast){.y = to, .x = from, .n = elems});
}

/* ---- parameters ---- */

enum status store_unshard(struct store *s, int unit, int direction)
{
    if (s->frozen)
        TRY(store_unshard(s->frozen, unit, direction));
    int last = s->layout.unit_bucket[unit], next = last + direction;
    for (int bucket = unit == 0 ? 0 : last; bucket <= last; bucket++)
        TRY(store_params_make_ready(s, bucket));
    bool is_next = direction != 0 && next < s->layout.buckets_n && next > s->layout.unit_bucket[0];
    return is_next ? store_params_prefetch(s, next) : ST_OK;
}

/* ---- gradients ---- */

enum status store_sparse_embed_pass(struct store *s, const struct pass *from, struct pass *out)
{
    *out = *from;
    if (!s->sparse)
        return ST_OK;
    float *rows = NULL;
    TRY(s->calls->stream_wait(s, s->sparse_ticket));
    TRY(sparse_embed_rows(s->sparse, &rows, &out->tokens));
    s->embed_table = *from->grad_table;
    memcpy(s->embed_params, from->grad_table->param,
           (size_t)s->c.table->params_n * sizeof *s->embed_params);
    s->embed_table.param = s->embed_params;
    s->embed_params[0].offset = rows - (float *)s->grads.data;
    out->grad_table = &s->embed_table;
    return ST_OK;
}

struct tensor store_bucket_norms_sq(const struct store *s) { return s->norms; }

struct tensor store_loss_sum(const struct store *s)
{
    return tensor_at(s->norms, s->layout.buckets_n);
}

enum status store_gather_device(struct store *s, struct tensor all, int64_t each)
{
    const struct store_call call = {STORE_CALL_ALL_GATHER,          STORE_GROUP_ALL, -1, all,
                                    tensor_at(all, s->rank * each), s->ranks * each};
    return store_call_and_wait(s, &call);
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
                                      .g = store_reduce_own(s, bucket),
                                      .m = store_memory_moment_at(s, 1, bucket),
                                      .v = store_memory_moment_at(s, 2, bucket)};
}

enum status store_update(struct store *s)
{
    for (int bucket = 0; bucket < s->layout.buckets_n; bucket++)
        s->bucket[bucket].is_behind = true;
    for (int bucket = 0; bucket < s->layout.buckets_n; bucket++) {
        struct store_bucket *p = &s->bucket[bucket];
        if (p->is_deferred) {
            TRY(p->reducer->gather(s, bucket));
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
 * The data are sent from and to the memory of the bucket's gradient, which has been reduced and
 * whose squares are added. So nothing reads the gradient any more, and no further memory is
 * needed. */

static bool has_shards(const struct store *s) { return s->policy.moments == STORE_SHARD; }

enum status store_update_gather(struct store *s, int bucket, struct store_update_whole *out)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    *out = (struct store_update_whole){store_reduce_grad(s, bucket), l->first, s->rank, s->ranks};
    if (!has_shards(s))
        return ST_OK;
    return store_call_and_wait(s, &(struct store_call){STORE_CALL_ALL_GATHER, STORE_GROUP_WITHIN,
                                                       bucket, out->g, store_reduce_own(s, bucket),
                                                       l->elems});
}

/* If each rank holds all moments, every rank needs the whole sum. With groups, each group's part of
 * it is then added up over the groups. */
enum status store_update_scatter(struct store *s, int bucket)
{
    const struct layout_bucket *l = &s->layout.bucket[bucket];
    const struct tensor all = store_reduce_grad(s, bucket), own = store_reduce_own(s, bucket);
    if (!has_shards(s) && s->ranks == 1)
        return ST_OK;
    if (!has_shards(s))
        return store_call_and_wait(s, &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_ALL,
                                                           bucket, all, all, l->elems});
    TRY(store_call_and_wait(s, &(struct store_call){STORE_CALL_REDUCE_SCATTER, STORE_GROUP_WITHIN,
                                                    bucket, own, all, l->elems}));
    if (!store_is_hybrid(s))
        return ST_OK;
    return store_call_and_wait(s, &(struct store_call){STORE_CALL_ALL_REDUCE, STORE_GROUP_ACROSS,
                                                       bucket, own, own, l->own.elems});
}

enum status store_drain(struct store *s)
{
    for (int i = 0; i < s->layout.buckets_n; i++)
        TRY(store_params_drain(s, i));
    TRY(dev_sync(s->c.stream)); /* for the deferred updates */
    return comm_check(s->c.world);
}

struct tensor store_grads(const struct store *s)
{
    return s->policy.moments == STORE_WHOLE ? s->grads : (struct tensor){0};
}
