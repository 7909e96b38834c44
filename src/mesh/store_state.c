/* store_state — requests that rank 0 broadcasts and all ranks carry out (store_state.h). */
#include "mesh/store_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "mesh/store_inside.h"

#define BUFFER_ELEMS ((int64_t)1 << 20)

enum { REQUEST_GET = 1, REQUEST_PUT, REQUEST_END };

/* Doubles, which every transport carries; exact below 2^53. REQUEST_END: part is the status. */
struct request {
    double what, part, first, n;
};

static enum status broadcast_request(struct store *s, struct request *request)
{
    struct tensor t = {request, DTYPE_F64};
    return comm_broadcast(s->c.comm, t, 4, 0);
}

static bool is_sharded(const struct store *s, int part) { return !store_replicated(s, part).data; }

static struct tensor shard_of(const struct store *s, int part)
{
    return part == 0 ? s->params : s->moment[part - 1];
}

/* A run of elements of one owner, to dst on rank 0. */
static enum status fetch_run(struct store *s, int part, int owner, int64_t shard_at, int64_t n,
                             float *dst)
{
    struct tensor from = tensor_at(shard_of(s, part), shard_at), to = {dst, DTYPE_F32};
    if (s->rank == 0 && owner == 0) {
        TRY(dev_copy(s->c.stream, dst, from.data, (size_t)n * sizeof *dst));
        return dev_sync(s->c.stream);
    }
    if (s->rank == 0)
        return comm_recv(s->c.comm, to, n, owner);
    return s->rank == owner ? comm_send(s->c.comm, from, n, 0) : ST_OK;
}

/* Every rank takes the same steps; dst is NULL but on rank 0. */
static enum status gather_range(struct store *s, int part, int64_t first, int64_t n, float *dst)
{
    for (int64_t at = first; at < first + n;) {
        int bucket = layout_bucket_at(&s->layout, at);
        int64_t run, shard_at;
        int owner =
            layout_owner(&s->layout, bucket, at - s->layout.bucket[bucket].first, &run, &shard_at);
        run = run < first + n - at ? run : first + n - at;
        run = run < BUFFER_ELEMS ? run : BUFFER_ELEMS;
        TRY(fetch_run(s, part, owner, shard_at, run, dst ? dst + at - first : NULL));
        at += run;
    }
    return ST_OK;
}

enum status store_state_get(struct store *s, int part, int64_t first, int64_t n, float *dst)
{
    ASSERT(s->rank == 0);
    TRY(store_drain(s));
    if (is_sharded(s, part)) {
        TRY(broadcast_request(s, &(struct request){REQUEST_GET, part, (double)first, (double)n}));
        return gather_range(s, part, first, n, dst);
    }
    TRY(dev_copy(s->c.stream, dst, tensor_at(store_replicated(s, part), first).data,
                 (size_t)n * sizeof *dst));
    return dev_sync(s->c.stream);
}

/* From rank 0's src to all ranks, through a buffer; each rank stores what it holds. src is NULL but
 * on rank 0. */
static enum status scatter_range(struct store *s, int part, int64_t first, int64_t n,
                                 const float *src)
{
    int64_t buffer_elems = n < BUFFER_ELEMS ? n : BUFFER_ELEMS;
    float *buffer = malloc((size_t)(buffer_elems > 0 ? buffer_elems : 1) * sizeof *buffer);
    enum status st = ST_OK;
    if (!buffer)
        return FAIL(ST_RETRY,
                    "out of memory: a buffer of %lld elements for loading; use a machine "
                    "with more memory",
                    (long long)buffer_elems);
    for (int64_t at = 0; at < n; at += buffer_elems) {
        int64_t run = n - at < buffer_elems ? n - at : buffer_elems;
        struct tensor t = {buffer, DTYPE_F32};
        if (src)
            memcpy(buffer, src + at, (size_t)run * sizeof *buffer);
        TRY_OR(comm_broadcast(s->c.comm, t, run, 0), out_free);
        TRY_OR(store_set(s, part, first + at, run, buffer), out_free);
    }
out_free:
    free(buffer);
    return st;
}

enum status store_state_put(struct store *s, int part, int64_t first, int64_t n, const float *src)
{
    ASSERT(s->rank == 0);
    if (s->is_alone)
        return store_set(s, part, first, n, src);
    TRY(store_drain(s));
    TRY(broadcast_request(s, &(struct request){REQUEST_PUT, part, (double)first, (double)n}));
    return scatter_range(s, part, first, n, src);
}

enum status store_state_end(struct store *s, enum status st)
{
    ASSERT(s->rank == 0);
    if (s->is_alone)
        return ST_OK;
    struct status_saved saved;
    if (st != ST_OK)
        status_save(&saved);
    enum status sent =
        broadcast_request(s, &(struct request){.what = REQUEST_END, .part = (double)st});
    if (st == ST_OK)
        return sent;
    status_restore(&saved);
    return st;
}

/* The range came from rank 0: it is checked before it is used. */
static enum status serve_request(struct store *s, const struct request *request)
{
    int64_t first = (int64_t)request->first, n = (int64_t)request->n;
    int part = (int)request->part;
    if (part < 0 || part > s->c.moments_n || first < 0 || n < 0 ||
        first > s->c.table->total_elems - n)
        return FAIL(ST_BUG, "rank 0 asked for part %d, %lld elements from %lld", part, (long long)n,
                    (long long)first);
    if (request->what == REQUEST_PUT)
        return scatter_range(s, part, first, n, NULL);
    return gather_range(s, part, first, n, NULL);
}

enum status store_state_serve(struct store *s)
{
    struct request request = {0};
    if (s->is_alone)
        return ST_OK;
    ASSERT(s->rank > 0);
    TRY(store_drain(s));
    for (;;) {
        TRY(broadcast_request(s, &request));
        if (request.what == REQUEST_END)
            break;
        TRY(serve_request(s, &request));
    }
    if (request.part == 0)
        return ST_OK;
    return FAIL(ST_PEER, "rank 0 could not read or write the model's state: %s; its log says why",
                status_name((enum status)(int)request.part));
}
