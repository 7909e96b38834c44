/* store_slice — slices of the state (store/state.h). */
#include "mesh/store/state.h"

#include "base/assert.h"
#include "mesh/store/inside.h"

int64_t store_slice_elems_of(const struct param_table *table, int ranks, int parts_n,
                             int64_t bucket_elems_min)
{
    struct layout layout;
    layout_init(table, ranks, 0, bucket_elems_min, &layout);
    int64_t elems = layout.shard_elems * parts_n;
    layout_free(&layout);
    return elems;
}

/* runs_within — those of elements [first, end) of the table, which lie at slice_at. */
static enum status runs_within(const struct param_table *table, int64_t first, int64_t end,
                               int64_t slice_at,
                               enum status (*take)(void *arg, const struct store_slice_run *run),
                               void *arg)
{
    for (int i = 0; i < table->params_n; i++) {
        const int64_t begin = table->param[i].offset, last = begin + table->param[i].elems,
                      from = begin > first ? begin : first, to = last < end ? last : end;
        const struct store_slice_run run = {slice_at + from - first, i, from - begin, to - from};
        if (from < to)
            TRY(take(arg, &run));
    }
    return ST_OK;
}

enum status store_slice_runs(const struct param_table *table, int ranks, int rank,
                             int64_t bucket_elems_min,
                             enum status (*take)(void *arg, const struct store_slice_run *run),
                             void *arg)
{
    struct layout layout;
    layout_init(table, ranks, rank, bucket_elems_min, &layout);
    enum status st = ST_OK;
    for (int i = 0; i < layout.buckets_n && st == ST_OK; i++) {
        const struct layout_bucket *l = &layout.bucket[i];
        const int64_t first = l->first + l->own.first;
        st = runs_within(table, first, first + l->own.elems, l->shard_at, take, arg);
    }
    layout_free(&layout);
    return st;
}

/* ---- the slice of a store ---- */

static void check_kind(const struct store *s)
{
    ASSERT(!store_is_hybrid(s) && !s->c.skips_hidden_second && s->c.has_grads);
    for (int i = 0; i < s->layout.buckets_n; i++)
        ASSERTF(!s->bucket[i].is_behind, "bucket %d of %d", i, s->layout.buckets_n);
}

static bool is_whole(const struct store *s, int part)
{
    return (part == 0 ? s->policy.masters : s->policy.moments) == STORE_WHOLE;
}

static int count(const struct state *state, bool is_apart)
{
    return state_count(store_state(state->store), is_apart);
}

/* whole_run — where the elements from `first` on lie, of a part that lies whole here. Parts of a
 * bucket are equal and aligned on several ranks (layout_pad), so that nothing lies between them. */
static void whole_run(const struct state *state, int part, int64_t first, struct state_part *out)
{
    const struct store *s = state->store;
    for (int i = 0; i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        const struct part_extent own = part_extent(l->elems, s->layout.ranks, state->rank);
        if (first >= l->shard_at + own.elems)
            continue;
        ASSERTF(first >= l->shard_at, "element %lld before bucket %d", (long long)first, i);
        out->here =
            tensor_at(store_state_held(s, part), l->first + own.first + first - l->shard_at).data;
        out->here_elems = l->shard_at + own.elems - first;
        return;
    }
}

static void describe(const struct state *state, int part, int64_t first, struct state_part *out)
{
    const struct store *s = state->store;
    check_kind(s);
    ASSERTF(state->rank == s->layout.rank || is_whole(s, part), "part %d of rank %d", part,
            state->rank);
    *out = (struct state_part){.kind = STATE_REPLICA,
                               .moment = part,
                               .elems = s->layout.shard_elems,
                               .is_host = !s->is_discrete};
    if (is_whole(s, part)) {
        whole_run(state, part, first, out);
        return;
    }
    out->here = tensor_at(store_state_held(s, part), first).data;
    out->here_elems = out->elems - first;
}

/* write_whole — this rank's slice of a part goes to all ranks, and theirs come here. */
static enum status write_whole(struct store *s, int part, const float *src)
{
    for (int i = 0; i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        const struct tensor all = tensor_at(store_state_held(s, part), l->first),
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

static enum status write(const struct state *state, const struct state_range *r)
{
    struct store *s = state->store;
    ASSERTF(state->rank == s->layout.rank && r->first == 0 && r->n == s->layout.shard_elems,
            "elements %lld and %lld of rank %d", (long long)r->first, (long long)r->n, state->rank);
    TRY(store_params_begin_write(s, r->part));
    TRY(is_whole(s, r->part) ? write_whole(s, r->part, r->values)
                             : dev_copy(s->c.stream, store_state_held(s, r->part).data, r->values,
                                        (size_t)r->n * sizeof *r->values));
    return dev_sync(s->c.stream);
}

static const struct state_ops slice = {count, describe, NULL, write};

struct state store_slice(struct store *s, int rank)
{
    return (struct state){.ops = &slice, .store = s, .rank = rank};
}
