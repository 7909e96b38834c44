/* mesh_state — requests that rank 0 broadcasts and all ranks carry out (mesh_state.h). */
#include "mesh/mesh_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/part_map.h"
#include "mesh/store/inside.h"
#include "mesh/store/state.h"

enum { REQUEST_GET = 1, REQUEST_PUT, REQUEST_END };

/* Doubles, which every transport carries; exact below 2^53. REQUEST_END: part is the status. */
struct request {
    double what, part, first, n;
};

static enum status broadcast_request(const struct mesh_state *m, struct request *request)
{
    struct tensor t = {request, DTYPE_F64};
    return comm_broadcast(m->world, t, 4, 0);
}

/* Host memory that grows to the largest range. */
struct buffer {
    float *data;
    int64_t elems;
};

static void reserve(struct buffer *b, int64_t elems)
{
    if (elems <= b->elems)
        return;
    free(b->data);
    b->data = memory_new((size_t)elems, sizeof *b->data);
    b->elems = elems;
}

static bool is_alone(const struct mesh_state *m) { return comm_place(m->world)->ranks == 1; }

/* ---- the parts of a model ---- */

static int own_part(const struct mesh_state *m)
{
    struct mesh_coord at = mesh_coord_of(&m->mesh, comm_place(m->world)->rank);
    return at.at[MESH_AXIS_PIPELINE] * m->mesh.size[MESH_AXIS_TENSOR] + at.at[MESH_AXIS_TENSOR];
}

/* leader_of — the world rank of a part's leader. */
static int leader_of(const struct mesh_state *m, int part)
{
    int tensor_ranks = m->mesh.size[MESH_AXIS_TENSOR];
    struct mesh_coord at = {
        .at = {
            [MESH_AXIS_TENSOR] = part % tensor_ranks, [MESH_AXIS_PIPELINE] = part / tensor_ranks}};
    return mesh_rank_of(&m->mesh, &at);
}

static bool is_leader(const struct mesh_state *m)
{
    return leader_of(m, own_part(m)) == comm_place(m->world)->rank;
}

/* get_chunk — every rank takes part; dst is NULL but on rank 0. */
static enum status get_chunk(const struct mesh_state *m, int part, int64_t first, int64_t n,
                             float *dst, struct buffer *b)
{
    struct part_map_range own = part_map_sources(m->map, own_part(m), first, n);
    if (own.n > 0 && is_leader(m))
        reserve(b, own.n);
    if (own.n > 0)
        TRY(store_state_gather(m->store, part, own.first, own.n, b->data));
    if (!dst)
        return own.n > 0 && is_leader(m)
                   ? comm_send(m->world, (struct tensor){b->data, DTYPE_F32}, own.n, 0)
                   : ST_OK;
    part_map_pad(m->map, first, n, dst);
    part_map_take(m->map, 0, first, n, own, b->data, dst);
    for (int i = 1; i < m->map->parts_n; i++) {
        struct part_map_range range = part_map_sources(m->map, i, first, n);
        if (range.n == 0)
            continue;
        reserve(b, range.n);
        TRY(comm_recv(m->world, (struct tensor){b->data, DTYPE_F32}, range.n, leader_of(m, i)));
        part_map_take(m->map, i, first, n, range, b->data, dst);
    }
    return ST_OK;
}

/* put_chunk — every rank takes part; src is NULL but on rank 0. Where a part holds nothing its
 * ranks meet all the same: all ranks then make as many collectives, which comm_activity counts. */
static enum status put_chunk(const struct mesh_state *m, int part, int64_t first, int64_t n,
                             const float *src, struct buffer *b)
{
    struct part_map_range own = part_map_held(m->map, own_part(m), first, n);
    if (src) {
        /* Rank 0 sends every other leader what its part holds. */
        for (int i = 1; i < m->map->parts_n; i++) {
            struct part_map_range range = part_map_held(m->map, i, first, n);
            if (range.n == 0)
                continue;
            reserve(b, range.n);
            part_map_give(m->map, i, first, n, range, src, b->data);
            TRY(comm_send(m->world, (struct tensor){b->data, DTYPE_F32}, range.n, leader_of(m, i)));
        }
    }
    reserve(b, own.n > 0 ? own.n : 1);
    b->data[0] = 0;
    if (src && own.n > 0)
        part_map_give(m->map, 0, first, n, own, src, b->data);
    else if (own.n > 0 && is_leader(m))
        TRY(comm_recv(m->world, (struct tensor){b->data, DTYPE_F32}, own.n, 0));
    return store_state_scatter(m->store, part, own.first, own.n, b->data);
}

/* ---- a model of one part: the store has the whole state ---- */

/* scatter_whole — every rank takes part, with a buffer; src is NULL but on rank 0. */
static enum status scatter_whole(const struct mesh_state *m, int part, int64_t first, int64_t n,
                                 const float *src, struct buffer *b)
{
    reserve(b, n < MESH_STATE_ELEMS ? n : MESH_STATE_ELEMS);
    for (int64_t at = 0; at < n; at += MESH_STATE_ELEMS) {
        int64_t run = n - at < MESH_STATE_ELEMS ? n - at : MESH_STATE_ELEMS;
        if (src)
            memcpy(b->data, src + at, (size_t)run * sizeof *src);
        TRY(store_state_scatter(m->store, part, first + at, run, b->data));
    }
    return ST_OK;
}

/* ---- rank 0 ---- */

enum status mesh_state_get(const struct mesh_state *m, int part, int64_t first, int64_t n,
                           float *dst)
{
    struct request request = {REQUEST_GET, part, (double)first, (double)n};
    ASSERT(comm_place(m->world)->rank == 0);
    TRY(store_drain(m->store));
    if (!m->map) {
        if (store_state_is_sharded(m->store, part))
            TRY(broadcast_request(m, &request));
        return store_state_gather(m->store, part, first, n, dst);
    }
    struct buffer b = {0};
    enum status st = ST_OK;
    for (int64_t at = 0, run; st == ST_OK && at < n; at += run) {
        run = n - at < MESH_STATE_ELEMS ? n - at : MESH_STATE_ELEMS;
        request.first = (double)(first + at);
        request.n = (double)run;
        st = broadcast_request(m, &request);
        if (st == ST_OK)
            st = get_chunk(m, part, first + at, run, dst + at, &b);
    }
    free(b.data);
    return st;
}

enum status mesh_state_put(const struct mesh_state *m, int part, int64_t first, int64_t n,
                           const float *src)
{
    const int64_t most = m->map ? MESH_STATE_ELEMS : n; /* of a request */
    struct buffer b = {0};
    enum status st = ST_OK;
    ASSERT(comm_place(m->world)->rank == 0);
    TRY(store_drain(m->store));
    if (!m->map && is_alone(m))
        return store_set(m->store, part, first, n, src);
    for (int64_t at = 0, run; st == ST_OK && at < n; at += run) {
        run = n - at < most ? n - at : most;
        st = broadcast_request(
            m, &(struct request){REQUEST_PUT, part, (double)(first + at), (double)run});
        if (st == ST_OK)
            st = m->map ? put_chunk(m, part, first + at, run, src + at, &b)
                        : scatter_whole(m, part, first + at, run, src + at, &b);
    }
    free(b.data);
    return st;
}

enum status mesh_state_end(const struct mesh_state *m, enum status st)
{
    ASSERT(comm_place(m->world)->rank == 0);
    if (is_alone(m))
        return ST_OK;
    struct status_saved saved;
    if (st != ST_OK)
        status_save(&saved);
    enum status sent =
        broadcast_request(m, &(struct request){.what = REQUEST_END, .part = (double)st});
    if (st == ST_OK)
        return sent;
    status_restore(&saved);
    return st;
}

/* ---- the other ranks ---- */

static enum status serve_request(const struct mesh_state *m, const struct request *request,
                                 struct buffer *b)
{
    /* The range came from rank 0: it is checked before it is used. */
    const struct param_table *whole = m->map ? m->map->whole : m->store->c.table;
    if (!(request->part >= 0 && request->part <= m->store->c.moments_n && request->first >= 0 &&
          request->n >= 0 && request->first <= (double)whole->total_elems - request->n &&
          (!m->map || request->n <= (double)MESH_STATE_ELEMS)))
        return FAIL(ST_BUG, "rank 0 asked for part %g, %g elements from %g of %lld", request->part,
                    request->n, request->first, (long long)whole->total_elems);
    int64_t first = (int64_t)request->first, n = (int64_t)request->n;
    int part = (int)request->part;
    if (request->what == REQUEST_PUT)
        return m->map ? put_chunk(m, part, first, n, NULL, b)
                      : scatter_whole(m, part, first, n, NULL, b);
    return m->map ? get_chunk(m, part, first, n, NULL, b)
                  : store_state_gather(m->store, part, first, n, NULL);
}

static enum status serve(const struct mesh_state *m, struct buffer *b)
{
    struct request request = {0};
    for (;;) {
        TRY(broadcast_request(m, &request));
        if (request.what == REQUEST_END)
            break;
        TRY(serve_request(m, &request, b));
    }
    if (request.part == 0)
        return ST_OK;
    return FAIL(ST_PEER, "rank 0 could not read or write the model's state: %s; its log says why",
                status_name((enum status)(int)request.part));
}

enum status mesh_state_serve(const struct mesh_state *m)
{
    struct buffer b = {0};
    if (is_alone(m))
        return ST_OK;
    ASSERT(comm_place(m->world)->rank > 0);
    TRY(store_drain(m->store));
    enum status st = serve(m, &b);
    free(b.data);
    return st;
}
