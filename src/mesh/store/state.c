/* store_state — the state of a store, on this rank and on all ranks that share it
 * (store/state.h). */
#include "mesh/store/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "mesh/store/inside.h"

#define RUN_ELEMS ((int64_t)1 << 20) /* most elements of a message */

/* ---- on this rank ---- */

static enum store_extent extent_of(const struct store *s, int array)
{
    return array == 0 ? s->policy.masters : s->policy.moments;
}

static bool is_rest(const struct store *s, int array)
{
    return array == 2 && s->c.skips_hidden_second;
}

static struct tensor held_array(const struct store *s, int array)
{
    return array > 0 ? s->moment[array - 1] : s->params;
}

/* Narrows [*first, *end) of the table to this rank's part of a bucket; false: nothing is left. */
static bool own_range(const struct layout_bucket *l, int64_t *first, int64_t *end)
{
    int64_t own = l->first + l->own.first, own_end = own + l->own.elems;
    *first = *first > own ? *first : own;
    *end = *end < own_end ? *end : own_end;
    return *first < *end;
}

bool store_holds(const struct store *s, int array, int64_t first, int64_t n)
{
    if (extent_of(s, array) == STORE_WHOLE)
        return true;
    for (int i = 0; i < s->layout.buckets_n; i++) {
        int64_t from = first, end = first + n;
        if (own_range(&s->layout.bucket[i], &from, &end))
            return true;
    }
    return false;
}

/* set_rounded — writes numbers that are kept in 16 bits. */
static enum status set_rounded(struct store *s, struct tensor to, int64_t n, const float *values)
{
    uint16_t *half = memory_new(n > 0 ? (size_t)n : 1, sizeof *half);
    for (int64_t i = 0; i < n; i++)
        half[i] = to.dtype == DTYPE_BF16 ? bf16_from_float(values[i]) : f16_from_float(values[i]);
    enum status st = dev_copy(s->c.stream, to.data, half, (size_t)n * sizeof *half);
    if (st == ST_OK)
        st = dev_sync(s->c.stream);
    free(half);
    return st;
}

/* set_run — writes the numbers of table elements [first, first + n), which lie together from `at`
 * on. */
static enum status set_run(struct store *s, struct tensor to, int64_t at, int64_t n,
                           const float *values)
{
    if (to.dtype != DTYPE_F32)
        return set_rounded(s, tensor_at(to, at), n, values);
    return dev_copy(s->c.stream, tensor_at(to, at).data, values, (size_t)n * sizeof *values);
}

/* set_moment — writes a moment of the elements [first, end) of the table that this rank has. */
static enum status set_moment(struct store *s, int array, int64_t first, int64_t end,
                              const float *values)
{
    for (int64_t from = first, n; from < end; from += n) {
        n = end - from;
        int64_t at = store_memory_moment_run(s, array, from, &n);
        if (at >= 0)
            TRY(set_run(s, held_array(s, array), at, n, values + from - first));
    }
    return ST_OK;
}

static enum status own_write(const struct state *state, const struct state_range *r)
{
    struct store *s = state->store;
    const int array = r->array;
    const struct tensor to = held_array(s, array);
    const int64_t last = r->first + r->n;
    TRY(store_params_begin_write(s, array));
    if (extent_of(s, array) == STORE_WHOLE)
        TRY(array == 0 ? set_run(s, to, r->first, r->n, r->values)
                       : set_moment(s, array, r->first, last, r->values));
    for (int i = 0; extent_of(s, array) != STORE_WHOLE && i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        int64_t from = r->first, end = last;
        if (!own_range(l, &from, &end))
            continue;
        const float *values = r->values + from - r->first;
        TRY(array == 0
                ? set_run(s, to, l->shard_at + from - l->first - l->own.first, end - from, values)
                : set_moment(s, array, from, end, values));
    }
    return dev_sync(s->c.stream);
}

int store_state_count(const struct state *s, bool is_apart)
{
    (void)is_apart;
    return 1 + s->store->c.moments_n;
}

static void own_describe(const struct state *state, int array, int64_t first,
                         struct state_array *out)
{
    const struct store *s = state->store;
    *out = (struct state_array){.kind = STATE_REPLICA,
                                .moment = array,
                                .elems = s->c.table->total_elems,
                                .skips_hidden = is_rest(s, array),
                                .is_host = !s->is_discrete};
    out->here_elems = extent_of(s, array) == STORE_SHARD ? 0 : out->elems - first;
    if (array == 0 && s->params_dtype != DTYPE_F32)
        out->here_elems = 0; /* no floats */
    if (out->here_elems > 0 && !out->skips_hidden)
        out->here = tensor_at(held_array(s, array), first).data;
}

const struct state_ops store_state_own = {store_state_count, own_describe, NULL, own_write};

const struct state *store_state(const struct store *s) { return &s->own; }

/* ---- on the ranks that share it ---- */

/* Copies a run of elements from their owner to dst on rank 0. */
static enum status fetch_run(struct store *s, int array, int owner, int64_t shard_at, int64_t n,
                             float *dst)
{
    struct tensor from = tensor_at(held_array(s, array), shard_at), to = {dst, DTYPE_F32};
    if (s->rank == 0 && owner == 0) {
        TRY(dev_copy(s->c.stream, dst, from.data, (size_t)n * sizeof *dst));
        return dev_sync(s->c.stream);
    }
    if (s->rank == 0)
        return comm_recv(s->c.comm, to, n, owner);
    return s->rank == owner ? comm_send(s->c.comm, from, n, 0) : ST_OK;
}

/* Copies elements of a sharded array to rank 0. Every rank makes the same calls. */
static enum status gather_shards(struct store *s, int array, int64_t first, int64_t n, float *dst)
{
    for (int64_t at = first; at < first + n;) {
        int bucket = layout_bucket_at(&s->layout, at);
        int64_t run, shard_at;
        int owner =
            layout_owner(&s->layout, bucket, at - s->layout.bucket[bucket].first, &run, &shard_at);
        run = run < first + n - at ? run : first + n - at;
        run = run < RUN_ELEMS ? run : RUN_ELEMS;
        if (array > 0 && s->rank == owner)
            shard_at = store_memory_moment_run(s, array, at, &run);
        TRY(fetch_run(s, array, owner, shard_at, run, s->rank == 0 ? dst + at - first : NULL));
        at += run;
    }
    return ST_OK;
}

/* gather_run — copies a run of elements that the array has. */
static enum status gather_run(struct store *s, int array, int64_t first, int64_t n, float *dst)
{
    if (extent_of(s, array) == STORE_SHARD)
        return gather_shards(s, array, first, n, dst);
    if (s->rank != 0)
        return ST_OK;
    const int64_t at = is_rest(s, array) ? store_memory_moment_run(s, array, first, &n) : first;
    TRY(dev_copy(s->c.stream, dst, tensor_at(held_array(s, array), at).data,
                 (size_t)n * sizeof *dst));
    return dev_sync(s->c.stream);
}

enum status store_state_gather(struct store *s, int array, int64_t first, int64_t n, float *dst)
{
    const struct param_table *t = s->c.table;
    if (!is_rest(s, array))
        return gather_run(s, array, first, n, dst);
    for (int64_t at = first, run; at < first + n; at += run) {
        int param = param_at(t, at);
        float *to = s->rank == 0 ? dst + at - first : NULL;
        run = param_end(t, param) < first + n ? param_end(t, param) - at : first + n - at;
        if (!t->param[param].is_hidden)
            TRY(gather_run(s, array, at, run, to));
        else if (to)
            memset(to, 0, (size_t)run * sizeof *to);
    }
    return ST_OK;
}

enum status store_state_scatter(struct store *s, int array, int64_t first, int64_t n, float *values)
{
    if (!s->is_alone)
        TRY(comm_broadcast(s->c.comm, (struct tensor){values, DTYPE_F32}, n > 0 ? n : 1, 0));
    return n > 0 ? state_write(&s->own, array, first, n, values) : ST_OK;
}

static enum status whole_read(const struct state *s, const struct state_range *r)
{
    return store_state_gather(s->store, r->array, r->first, r->n, r->values);
}

static enum status whole_write(const struct state *s, const struct state_range *r)
{
    return store_state_scatter(s->store, r->array, r->first, r->n, r->values);
}

const struct state_ops store_state_whole = {store_state_count, own_describe, whole_read,
                                            whole_write};

/* ---- slices ---- */

int64_t store_slice_elems_of(const struct param_table *table, int ranks, int arrays_n,
                             int64_t bucket_elems_min)
{
    struct layout layout;
    layout_init(table, ranks, 0, bucket_elems_min, &layout);
    int64_t elems = layout.shard_elems * arrays_n;
    layout_free(&layout);
    return elems;
}

/* runs_within — calls on_run with the runs of elements [first, end) of the table, which lie at
 * slice_at. */
static enum status runs_within(const struct param_table *table, int64_t first, int64_t end,
                               int64_t slice_at,
                               enum status (*on_run)(void *arg, const struct store_slice_run *run),
                               void *arg)
{
    for (int i = 0; i < table->params_n; i++) {
        const int64_t begin = table->param[i].offset, last = begin + table->param[i].elems,
                      from = begin > first ? begin : first, to = last < end ? last : end;
        const struct store_slice_run run = {slice_at + from - first, i, from - begin, to - from};
        if (from < to)
            TRY(on_run(arg, &run));
    }
    return ST_OK;
}

enum status store_slice_runs(const struct param_table *table, int ranks, int rank,
                             int64_t bucket_elems_min,
                             enum status (*on_run)(void *arg, const struct store_slice_run *run),
                             void *arg)
{
    struct layout layout;
    layout_init(table, ranks, rank, bucket_elems_min, &layout);
    enum status st = ST_OK;
    for (int i = 0; i < layout.buckets_n && st == ST_OK; i++) {
        const struct layout_bucket *l = &layout.bucket[i];
        const int64_t first = l->first + l->own.first;
        st = runs_within(table, first, first + l->own.elems, l->shard_at, on_run, arg);
    }
    layout_free(&layout);
    return st;
}

static void check_kind(const struct store *s)
{
    ASSERT(!store_is_hybrid(s) && !s->c.skips_hidden_second && s->c.has_grads);
    for (int i = 0; i < s->layout.buckets_n; i++)
        ASSERTF(!s->bucket[i].is_behind, "bucket %d of %d", i, s->layout.buckets_n);
}

static bool is_whole(const struct store *s, int array)
{
    return state_describe(&s->own, array, 0).here != NULL;
}

/* whole_run — finds the elements from `first` on of an array that is whole on this rank. Parts of a
 * bucket are equal and aligned on several ranks (layout_pad), so that nothing lies between them. */
static void whole_run(const struct state *state, int array, int64_t first, struct state_array *out)
{
    const struct store *s = state->store;
    for (int i = 0; i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        const struct part_extent own = part_extent(l->elems, s->layout.ranks, state->rank);
        if (first >= l->shard_at + own.elems)
            continue;
        ASSERTF(first >= l->shard_at, "element %lld before bucket %d", (long long)first, i);
        out->here =
            tensor_at(held_array(s, array), l->first + own.first + first - l->shard_at).data;
        out->here_elems = l->shard_at + own.elems - first;
        return;
    }
}

static void slice_describe(const struct state *state, int array, int64_t first,
                           struct state_array *out)
{
    const struct store *s = state->store;
    check_kind(s);
    ASSERTF(state->rank == s->layout.rank || is_whole(s, array), "array %d of rank %d", array,
            state->rank);
    *out = (struct state_array){.kind = STATE_REPLICA,
                                .moment = array,
                                .elems = s->layout.shard_elems,
                                .is_host = !s->is_discrete};
    if (is_whole(s, array)) {
        whole_run(state, array, first, out);
        return;
    }
    out->here = tensor_at(held_array(s, array), first).data;
    out->here_elems = out->elems - first;
}

/* write_whole — sends this rank's slice of an array to all ranks, and receives theirs. */
static enum status write_whole(struct store *s, int array, const float *src)
{
    for (int i = 0; i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        const struct tensor all = tensor_at(held_array(s, array), l->first),
                            own = tensor_at(all, l->own.first);
        TRY(dev_copy(s->c.stream, own.data, src + l->shard_at, (size_t)l->own.elems * sizeof *src));
        TRY(dev_sync(s->c.stream));
        if (!s->is_alone)
            TRY(comm_all_gather(s->c.comm, all, own, l->elems));
        if (s->c.heartbeat)
            s->c.heartbeat(s->c.heartbeat_arg);
    }
    return ST_OK;
}

static enum status slice_write(const struct state *state, const struct state_range *r)
{
    struct store *s = state->store;
    ASSERTF(state->rank == s->layout.rank && r->first == 0 && r->n == s->layout.shard_elems,
            "elements %lld and %lld of rank %d", (long long)r->first, (long long)r->n, state->rank);
    TRY(store_params_begin_write(s, r->array));
    TRY(is_whole(s, r->array) ? write_whole(s, r->array, r->values)
                              : dev_copy(s->c.stream, held_array(s, r->array).data, r->values,
                                         (size_t)r->n * sizeof *r->values));
    return dev_sync(s->c.stream);
}

static const struct state_ops slice = {store_state_count, slice_describe, NULL, slice_write};

struct state store_slice(struct store *s, int rank)
{
    return (struct state){.ops = &slice, .store = s, .rank = rank};
}
