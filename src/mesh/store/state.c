/* store_state — the state of a store: on this rank, and of the ranks that share it (store/state.h). */
#include "mesh/store/state.h"

#include <string.h>

#include "base/assert.h"
#include "mesh/store/inside.h"

#define RUN_ELEMS ((int64_t)1 << 20) /* of a message */

/* ---- on this rank ---- */

static enum store_extent extent_of(const struct store *s, int part)
{
    return part == 0 ? s->policy.masters : s->policy.moments;
}

static bool is_rest(const struct store *s, int part)
{
    return part == 2 && s->c.skips_hidden_second;
}

struct tensor store_state_held(const struct store *s, int part)
{
    return part > 0 ? s->moment[part - 1] : s->params;
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
            TRY(set_run(s, store_state_held(s, part), at, n, values + from - first));
    }
    return ST_OK;
}

static enum status own_write(const struct state *state, const struct state_range *r)
{
    struct store *s = state->store;
    const int part = r->part;
    const struct tensor to = store_state_held(s, part);
    const int64_t last = r->first + r->n;
    TRY(store_params_begin_write(s, part));
    if (extent_of(s, part) == STORE_WHOLE)
        TRY(part == 0 ? set_run(s, to, r->first, r->n, r->values)
                      : set_moment(s, part, r->first, last, r->values));
    for (int i = 0; extent_of(s, part) != STORE_WHOLE && i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        int64_t from = r->first, end = last;
        if (!own_range(l, &from, &end))
            continue;
        const float *values = r->values + from - r->first;
        TRY(part == 0
                ? set_run(s, to, l->shard_at + from - l->first - l->own.first, end - from, values)
                : set_moment(s, part, from, end, values));
    }
    return dev_sync(s->c.stream);
}

static int own_count(const struct state *s, bool is_apart)
{
    (void)is_apart;
    return 1 + s->store->c.moments_n;
}

static void own_describe(const struct state *state, int part, int64_t first, struct state_part *out)
{
    const struct store *s = state->store;
    *out = (struct state_part){.kind = STATE_REPLICA,
                               .moment = part,
                               .elems = s->c.table->total_elems,
                               .skips_hidden = is_rest(s, part),
                               .is_host = !s->is_discrete};
    if (extent_of(s, part) == STORE_SHARD || out->skips_hidden)
        return;
    out->here = tensor_at(store_state_held(s, part), first).data;
    out->here_elems = out->elems - first;
}

const struct state_ops store_state_own = {own_count, own_describe, NULL, own_write};

const struct state *store_state(const struct store *s) { return &s->own; }

/* ---- of the ranks that share it ---- */

/* A run of elements of one owner, to dst on rank 0. */
static enum status fetch_run(struct store *s, int part, int owner, int64_t shard_at, int64_t n,
                             float *dst)
{
    struct tensor from = tensor_at(store_state_held(s, part), shard_at), to = {dst, DTYPE_F32};
    if (s->rank == 0 && owner == 0) {
        TRY(dev_copy(s->c.stream, dst, from.data, (size_t)n * sizeof *dst));
        return dev_sync(s->c.stream);
    }
    if (s->rank == 0)
        return comm_recv(s->c.comm, to, n, owner);
    return s->rank == owner ? comm_send(s->c.comm, from, n, 0) : ST_OK;
}

/* Every rank takes the same steps. */
static enum status gather_shards(struct store *s, int part, int64_t first, int64_t n, float *dst)
{
    for (int64_t at = first; at < first + n;) {
        int bucket = layout_bucket_at(&s->layout, at);
        int64_t run, shard_at;
        int owner =
            layout_owner(&s->layout, bucket, at - s->layout.bucket[bucket].first, &run, &shard_at);
        run = run < first + n - at ? run : first + n - at;
        run = run < RUN_ELEMS ? run : RUN_ELEMS;
        if (part > 0 && s->rank == owner)
            shard_at = store_memory_moment_run(s, part, at, &run);
        TRY(fetch_run(s, part, owner, shard_at, run, s->rank == 0 ? dst + at - first : NULL));
        at += run;
    }
    return ST_OK;
}

/* gather_rest — the same of shards. */
static enum status gather_rest(struct store *s, int part, int64_t first, int64_t n, float *dst)
{
    const struct param_table *t = s->c.table;
    for (int64_t at = first, run; at < first + n; at += run) {
        int param = param_at(t, at);
        run = param_end(t, param) < first + n ? param_end(t, param) - at : first + n - at;
        if (!t->param[param].is_hidden)
            TRY(gather_shards(s, part, at, run, s->rank == 0 ? dst + at - first : NULL));
        else if (s->rank == 0)
            memset(dst + at - first, 0, (size_t)run * sizeof *dst);
    }
    return ST_OK;
}

enum status store_state_gather(struct store *s, int part, int64_t first, int64_t n, float *dst)
{
    if (extent_of(s, part) == STORE_SHARD)
        return is_rest(s, part) ? gather_rest(s, part, first, n, dst)
                                : gather_shards(s, part, first, n, dst);
    if (s->rank != 0)
        return ST_OK;
    if (is_rest(s, part)) {
        /* On rank 0, which holds all of a second moment that hidden matrices do not have: there it
         * is zero. */
        memset(dst, 0, (size_t)n * sizeof *dst);
        for (int64_t at = first, run; at < first + n; at += run) {
            run = first + n - at;
            int64_t from = store_memory_moment_run(s, part, at, &run);
            if (from >= 0)
                TRY(dev_copy(s->c.stream, dst + at - first,
                             tensor_at(store_state_held(s, part), from).data,
                             (size_t)run * sizeof *dst));
        }
        return dev_sync(s->c.stream);
    }
    TRY(dev_copy(s->c.stream, dst, tensor_at(store_state_held(s, part), first).data,
                 (size_t)n * sizeof *dst));
    return dev_sync(s->c.stream);
}

enum status store_state_scatter(struct store *s, int part, int64_t first, int64_t n, float *values)
{
    if (!s->is_alone)
        TRY(comm_broadcast(s->c.comm, (struct tensor){values, DTYPE_F32}, n > 0 ? n : 1, 0));
    return n > 0 ? state_write(&s->own, part, first, n, values) : ST_OK;
}
