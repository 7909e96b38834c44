/* store_slice — see store_slice.h. */
#include "mesh/store_slice.h"

#include "base/assert.h"
#include "mesh/store_inside.h"

enum status store_slice_elems_of(const struct param_table *table, int ranks, int parts_n,
                                 int64_t bucket_elems_min, int64_t *out)
{
    struct layout layout;
    TRY(layout_init(table, ranks, 0, bucket_elems_min, &layout));
    *out = layout.shard_elems * parts_n;
    layout_free(&layout);
    return ST_OK;
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

/* get_whole — a rank's slice of a part that lies whole here. */
static enum status get_whole(const struct store *s, int part, int rank, float *dst)
{
    for (int i = 0; i < s->layout.buckets_n; i++) {
        const struct layout_bucket *l = &s->layout.bucket[i];
        const struct part_extent own = part_extent(l->elems, s->layout.ranks, rank);
        TRY(dev_copy(s->c.stream, dst + l->shard_at,
                     tensor_at(held(s, part), l->first + own.first).data,
                     (size_t)own.elems * sizeof *dst));
    }
    return ST_OK;
}

enum status store_slice_get(const struct store *s, int rank, float *dst)
{
    const int64_t each = s->layout.shard_elems;
    check_kind(s);
    for (int part = 0; part < parts_n(s); part++, dst += each) {
        ASSERTF(rank == s->layout.rank || is_whole(s, part), "part %d of rank %d", part, rank);
        TRY(is_whole(s, part)
                ? get_whole(s, part, rank, dst)
                : dev_copy(s->c.stream, dst, held(s, part).data, (size_t)each * sizeof *dst));
    }
    return dev_sync(s->c.stream);
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
    TRY(store_drain(s));
    store_params_invalidate(s);
    for (int part = 0; part < parts_n(s); part++, src += each)
        TRY(is_whole(s, part)
                ? set_whole(s, part, src)
                : dev_copy(s->c.stream, held(s, part).data, src, (size_t)each * sizeof *src));
    return dev_sync(s->c.stream);
}
