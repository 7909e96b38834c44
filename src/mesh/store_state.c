/* store_state — see store_state.h. */
#include "mesh/store_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "mesh/store_inside.h"

#define STAGE_ELEMS ((int64_t)1 << 20)

enum { WISH_GET = 1, WISH_PUT, WISH_END };

/* What rank 0 wants, as doubles, which any comm can carry; exact below 2^53. */
struct wish {
    double what, part, first, n;
};

static enum status say(struct store *s, struct wish *wish)
{
    struct tensor t = {wish, DTYPE_F64};
    return comm_broadcast(s->c.comm, t, 4, 0);
}

/* Is the part in buckets on the ranks? */
static bool is_spread(const struct store *s, int part) { return !store_replicated(s, part).data; }

static struct tensor shard_of(const struct store *s, int part)
{
    return part == 0 ? s->params : s->moment[part - 1];
}

/* One run of elements that lie with one rank: from it to dst on rank 0. */
static enum status bring(struct store *s, int part, int owner, int64_t shard_at, int64_t n,
                         float *dst)
{
    struct tensor from = tensor_at(shard_of(s, part), shard_at), to = {dst, DTYPE_F32};
    if (s->layout.rank == 0 && owner == 0) {
        TRY(dev_copy(s->c.stream, dst, from.data, (size_t)n * sizeof *dst));
        return dev_sync(s->c.stream);
    }
    if (s->layout.rank == 0)
        return comm_recv(s->c.comm, to, n, owner);
    return s->layout.rank == owner ? comm_send(s->c.comm, from, n, 0) : ST_OK;
}

/* The same walk on every rank. */
static enum status collect(struct store *s, int part, int64_t first, int64_t n, float *dst)
{
    for (int64_t at = first; at < first + n;) {
        int bucket = layout_bucket_at(&s->layout, at);
        int64_t run, shard_at;
        int owner =
            layout_owner(&s->layout, bucket, at - s->layout.bucket[bucket].first, &run, &shard_at);
        run = run < first + n - at ? run : first + n - at;
        run = run < STAGE_ELEMS ? run : STAGE_ELEMS;
        TRY(bring(s, part, owner, shard_at, run, dst ? dst + at - first : NULL));
        at += run;
    }
    return ST_OK;
}

enum status store_state_get(struct store *s, int part, int64_t first, int64_t n, float *dst)
{
    ASSERT(s->layout.rank == 0);
    TRY(store_drain(s));
    if (is_spread(s, part)) {
        TRY(say(s, &(struct wish){WISH_GET, part, (double)first, (double)n}));
        return collect(s, part, first, n, dst);
    }
    TRY(dev_copy(s->c.stream, dst, tensor_at(store_replicated(s, part), first).data,
                 (size_t)n * sizeof *dst));
    return dev_sync(s->c.stream);
}

/* From rank 0's src to all, through a stage that every rank has; each keeps what it holds. */
static enum status spread(struct store *s, int part, int64_t first, int64_t n, const float *src)
{
    int64_t stage_elems = n < STAGE_ELEMS ? n : STAGE_ELEMS;
    float *stage = malloc((size_t)(stage_elems > 0 ? stage_elems : 1) * sizeof *stage);
    enum status st = ST_OK;
    if (!stage)
        return FAIL(ST_RETRY, "out of memory: a stage for loading; use a machine with more memory");
    for (int64_t at = 0; at < n; at += stage_elems) {
        int64_t run = n - at < stage_elems ? n - at : stage_elems;
        struct tensor t = {stage, DTYPE_F32};
        if (src)
            memcpy(stage, src + at, (size_t)run * sizeof *stage);
        TRY_OR(comm_broadcast(s->c.comm, t, run, 0), out_free);
        TRY_OR(store_set(s, part, first + at, run, stage), out_free);
    }
out_free:
    free(stage);
    return st;
}

enum status store_state_put(struct store *s, int part, int64_t first, int64_t n, const float *src)
{
    ASSERT(s->layout.rank == 0);
    if (s->is_alone)
        return store_set(s, part, first, n, src);
    TRY(store_drain(s));
    TRY(say(s, &(struct wish){WISH_PUT, part, (double)first, (double)n}));
    return spread(s, part, first, n, src);
}

enum status store_state_end(struct store *s, enum status st)
{
    ASSERT(s->layout.rank == 0);
    if (s->is_alone)
        return ST_OK;
    struct status_saved saved;
    if (st != ST_OK)
        status_save(&saved);
    enum status said = say(s, &(struct wish){.what = WISH_END, .part = (double)st});
    if (st == ST_OK)
        return said;
    status_restore(&saved);
    return st;
}

/* The range comes from rank 0: not trusted to be inside. */
static enum status obey(struct store *s, const struct wish *wish)
{
    int64_t first = (int64_t)wish->first, n = (int64_t)wish->n;
    int part = (int)wish->part;
    if (part < 0 || part > s->c.moments || first < 0 || n < 0 ||
        first > s->c.table->total_elems - n)
        return FAIL(ST_BUG, "rank 0 wants part %d, %lld elements from %lld", part, (long long)n,
                    (long long)first);
    if (wish->what == WISH_PUT)
        return spread(s, part, first, n, NULL);
    return collect(s, part, first, n, NULL);
}

enum status store_state_follow(struct store *s)
{
    struct wish wish = {0};
    if (s->is_alone)
        return ST_OK;
    ASSERT(s->layout.rank > 0);
    TRY(store_drain(s));
    for (;;) {
        TRY(say(s, &wish));
        if (wish.what == WISH_END)
            break;
        TRY(obey(s, &wish));
    }
    if (wish.part == 0)
        return ST_OK;
    return FAIL(ST_PEER, "rank 0 could not read or write the model's state: %s; its log says why",
                status_name((enum status)(int)wish.part));
}
