/* store_state — see store/state.h. */
#include "mesh/store/state.h"

#include <string.h>

#include "base/assert.h"
#include "mesh/store/inside.h"

#define RUN_ELEMS ((int64_t)1 << 20) /* of a message */

bool store_state_is_sharded(const struct store *s, int part)
{
    return (part == 0 ? s->policy.masters : s->policy.moments) == STORE_SHARD;
}

/* A run of elements of one owner, to dst on rank 0. */
static enum status fetch_run(struct store *s, int part, int owner, int64_t shard_at, int64_t n,
                             float *dst)
{
    struct tensor from = tensor_at((part == 0 ? s->params : s->moment[part - 1]), shard_at),
                  to = {dst, DTYPE_F32};
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
    bool is_rest = part == 2 && s->c.skips_hidden_second;
    if (store_state_is_sharded(s, part))
        return is_rest ? gather_rest(s, part, first, n, dst)
                       : gather_shards(s, part, first, n, dst);
    if (s->rank != 0)
        return ST_OK;
    if (is_rest) {
        /* On rank 0, which holds all of a second moment that hidden matrices do not have: there it
         * is zero. */
        memset(dst, 0, (size_t)n * sizeof *dst);
        for (int64_t at = first, run; at < first + n; at += run) {
            run = first + n - at;
            int64_t from = store_memory_moment_run(s, part, at, &run);
            if (from >= 0)
                TRY(dev_copy(s->c.stream, dst + at - first,
                             tensor_at(s->moment[part - 1], from).data, (size_t)run * sizeof *dst));
        }
        return dev_sync(s->c.stream);
    }
    TRY(dev_copy(s->c.stream, dst, tensor_at(store_replicated(s, part), first).data,
                 (size_t)n * sizeof *dst));
    return dev_sync(s->c.stream);
}

enum status store_state_scatter(struct store *s, int part, int64_t first, int64_t n, float *values)
{
    if (!s->is_alone)
        TRY(comm_broadcast(s->c.comm, (struct tensor){values, DTYPE_F32}, n > 0 ? n : 1, 0));
    return n > 0 ? store_set(s, part, first, n, values) : ST_OK;
}
