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

static int parts_n(const struct store *s) { return 1 + s->c.moments_n; }

int64_t store_slice_elems(const struct store *s) { return s->layout.shard_elems * parts_n(s); }

static bool is_whole(const struct store *s, int part)
{
    return (part == 0 ? s->policy.masters : s->policy.moments) == STORE_WHOLE;
}

static struct tensor held(const struct store *s, int part)
{
    return part == 0 ? s->params : s->moment[part - 1];
}

bool store_slice_has_all(const struct store *s)
{
    bool has_all = true;
    for (int part = 0; part < parts_n(s); part++)
        has_all = has_all && is_whole(s, part);
    return has_all;
}

static void check_kind(const struct store *s)
{
    ASSERT(!store_is_hybrid(s) && !s->c.skips_hidden_second && s->c.has_grads);
}

/* each_whole — of a part that lies whole here. Parts of a bucket are equal and aligned on several
 * ranks (layout_pad), so that nothing lies between them. */
static void each_whole(const struct store *s, int part, int rank,
                       void (*take)(void *arg, const float *run, int64_t elems), void *arg)
{
    int64_t at = 0;
    for (int i = 0; i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        const struct part_extent own = part_extent(l->elems, s->layout.ranks, rank);
        ASSERTF(l->shard_at == at, "bucket %d at %lld, not %lld", i, (long long)l->shard_at,
                (long long)at);
        take(arg, tensor_at(held(s, part), l->first + own.first).data, own.elems);
        at += own.elems;
    }
    ASSERTF(at == s->layout.shard_elems, "%lld of %lld", (long long)at,
            (long long)s->layout.shard_elems);
}

void store_slice_each(const struct store *s, int rank,
                      void (*take)(void *arg, const float *run, int64_t elems), void *arg)
{
    check_kind(s);
    for (int i = 0; i < s->layout.buckets_n; i++)
        ASSERTF(!s->bucket[i].is_behind, "bucket %d of %d", i, s->layout.buckets_n);
    for (int part = 0; part < parts_n(s); part++) {
        ASSERTF(rank == s->layout.rank || is_whole(s, part), "part %d of rank %d", part, rank);
        if (is_whole(s, part))
            each_whole(s, part, rank, take, arg);
        else
            take(arg, held(s, part).data, s->layout.shard_elems);
    }
}

/* set_whole — this rank's slice of a part goes to all ranks, and theirs come here. */
static enum status set_whole(struct store *s, int part, const float *src)
{
    for (int i = 0; i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        const struct tensor all = tensor_at(held(s, part), l->first),
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

enum status store_slice_set(struct store *s, const float *src)
{
    const int64_t each = s->layout.shard_elems;
    check_kind(s);
    TRY(store_params_begin_write(s, 0));
    for (int part = 0; part < parts_n(s); part++, src += each)
        TRY(is_whole(s, part)
                ? set_whole(s, part, src)
                : dev_copy(s->c.stream, held(s, part).data, src, (size_t)each * sizeof *src));
    return dev_sync(s->c.stream);
}
