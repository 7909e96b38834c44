/* state — requests that rank 0 broadcasts and all ranks carry out, and the state of the whole model
 * (state.h).
 *
 * If the model has shards (part_map.h), each shard is held by the ranks of one store. The first of
 * them, the shard's leader, exchanges one message with rank 0 for each range of STATE_RANGE_ELEMS
 * elements of the whole model; its store gathers or scatters the elements of the message. */
#include "mesh/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/part_map.h"
#include "mesh/store/inside.h"
#include "mesh/store/state.h"

enum { REQUEST_READ = 1, REQUEST_WRITE, REQUEST_END };

/* A request as doubles, which every transport carries; exact below 2^53. REQUEST_END: array is the
 * status. */
struct request {
    double what, array, first, n;
};

static bool is_alone(const struct state *s) { return comm_place(s->world)->ranks == 1; }

static enum status broadcast_request(const struct state *s, struct request *request)
{
    return is_alone(s) ? ST_OK
                       : comm_broadcast(s->world, (struct tensor){request, DTYPE_F64}, 4, 0);
}

/* ---- a request, on every rank ---- */

/* carry_out — carries out a request range by range. dst, src: buffers of rank 0 for a read or a
 * write; NULL on the others. */
static enum status carry_out(const struct state *s, const struct request *q, float *dst,
                             const float *src)
{
    const int64_t first = (int64_t)q->first, all = (int64_t)q->n,
                  most = all < STATE_RANGE_ELEMS ? all : STATE_RANGE_ELEMS;
    float *buffer = dst ? NULL : memory_new((size_t)most, sizeof *buffer);
    struct state_room room = {0};
    struct state_range r = {.array = (int)q->array, .room = &room};
    enum status st = ST_OK;
    for (int64_t at = 0; st == ST_OK && at < all; at += r.n) {
        r.first = first + at;
        r.n = all - at < most ? all - at : most;
        r.values = dst ? dst + at : buffer;
        if (src)
            memcpy(r.values, src + at, (size_t)r.n * sizeof *src);
        st = q->what == REQUEST_WRITE ? s->ops->write(s, &r) : s->ops->read(s, &r);
    }
    free(buffer);
    free(room.data);
    return st;
}

/* ---- rank 0 ---- */

static enum status run_request(const struct state *s, struct request q, float *dst,
                               const float *src)
{
    ASSERT(s->world && comm_place(s->world)->rank == 0);
    TRY(store_drain(s->store));
    TRY(broadcast_request(s, &q));
    return carry_out(s, &q, dst, src);
}

int state_count(const struct state *s, bool is_apart) { return s->ops->count(s, is_apart); }

struct state_array state_describe(const struct state *s, int array, int64_t first)
{
    struct state_array out = {.kind = STATE_REPLICA};
    ASSERTF(array >= 0 && array < state_count(s, true), "array %d", array);
    s->ops->describe(s, array, first, &out);
    return out;
}

enum status state_read(const struct state *s, int array, int64_t first, int64_t n, float *dst)
{
    const struct state_array p = state_describe(s, array, first);
    const struct request q = {REQUEST_READ, array, (double)first, (double)n};
    if (p.here_elems < n)
        return run_request(s, q, dst, NULL);
    TRY(store_drain(s->store));
    if (!p.here)
        return carry_out(s, &q, dst, NULL);
    TRY(dev_copy(s->store->c.stream, dst, p.here, (size_t)n * sizeof *dst));
    return dev_sync(s->store->c.stream);
}

enum status state_write(const struct state *s, int array, int64_t first, int64_t n,
                        const float *src)
{
    const struct state_range all = {
        .array = array, .first = first, .n = n, .values = (float *)(uintptr_t)src};
    return s->world
               ? run_request(s, (struct request){REQUEST_WRITE, array, (double)first, (double)n},
                             NULL, src)
               : s->ops->write(s, &all);
}

enum status state_end(const struct state *s, enum status st)
{
    ASSERT(comm_place(s->world)->rank == 0);
    if (is_alone(s))
        return st;
    struct status_saved saved;
    if (st != ST_OK)
        status_save(&saved);
    enum status sent =
        broadcast_request(s, &(struct request){.what = REQUEST_END, .array = (double)st});
    if (st == ST_OK)
        return sent;
    status_restore(&saved);
    return st;
}

/* ---- the other ranks ---- */

/* check_request — checks a range that rank 0 sent, before it is used. */
static enum status check_request(const struct state *s, const struct request *q)
{
    const bool is_array = q->array >= 0 && q->array < state_count(s, true);
    const int64_t elems = is_array ? state_describe(s, (int)q->array, 0).elems : 0;
    return is_array && q->first >= 0 && q->n >= 0 && q->first <= (double)elems - q->n
               ? ST_OK
               : FAIL(ST_BUG, "rank 0 requested array %g, %g elements from %g of %lld", q->array,
                      q->n, q->first, (long long)elems);
}

enum status state_serve(const struct state *s)
{
    struct request q = {0};
    if (is_alone(s))
        return ST_OK;
    ASSERT(comm_place(s->world)->rank > 0);
    TRY(store_drain(s->store));
    for (;;) {
        TRY(broadcast_request(s, &q));
        if (q.what == REQUEST_END)
            break;
        TRY(check_request(s, &q));
        TRY(carry_out(s, &q, NULL, NULL));
    }
    if (q.array == 0)
        return ST_OK;
    return FAIL(ST_PEER, "rank 0 could not read or write the model's state: %s; see its log",
                status_name((enum status)(int)q.array));
}

/* ---- the shards of a model ---- */

static void shards_describe(const struct state *s, int array, int64_t first,
                            struct state_array *out)
{
    (void)first;
    *out = state_describe(store_state(s->store), array, 0);
    out->elems = s->map->whole->total_elems;
    out->here = NULL;
    out->here_elems = 0;
}

static void reserve_room(struct state_room *room, int64_t elems)
{
    if (elems <= room->elems)
        return;
    free(room->data);
    room->data = memory_new((size_t)elems, sizeof *room->data);
    room->elems = elems;
}

static int own_shard(const struct state *s)
{
    struct mesh_coord at = mesh_coord_of(s->mesh, comm_place(s->world)->rank);
    return at.at[MESH_AXIS_PIPELINE] * s->mesh->size[MESH_AXIS_TENSOR] + at.at[MESH_AXIS_TENSOR];
}

/* leader_of — returns the world rank of a shard's leader. */
static int leader_of(const struct state *s, int shard)
{
    int tensor_ranks = s->mesh->size[MESH_AXIS_TENSOR];
    struct mesh_coord at = {.at = {[MESH_AXIS_TENSOR] = shard % tensor_ranks,
                                   [MESH_AXIS_PIPELINE] = shard / tensor_ranks}};
    return mesh_rank_of(s->mesh, &at);
}

static bool is_leader(const struct state *s)
{
    return leader_of(s, own_shard(s)) == comm_place(s->world)->rank;
}

static enum status shards_read(const struct state *s, const struct state_range *r)
{
    struct state_room *room = r->room;
    const struct part_map_range own = part_map_sources(s->map, own_shard(s), r->first, r->n);
    if (own.n > 0 && is_leader(s))
        reserve_room(room, own.n);
    if (own.n > 0)
        TRY(store_state_gather(s->store, r->array, own.first, own.n, room->data));
    if (comm_place(s->world)->rank > 0)
        return own.n > 0 && is_leader(s)
                   ? comm_send(s->world, (struct tensor){room->data, DTYPE_F32}, own.n, 0)
                   : ST_OK;
    part_map_pad(s->map, r->first, r->n, r->values);
    part_map_copy_to_whole(s->map, 0, r->first, r->n, own, room->data, r->values);
    for (int i = 1; i < s->map->parts_n; i++) {
        struct part_map_range range = part_map_sources(s->map, i, r->first, r->n);
        if (range.n == 0)
            continue;
        reserve_room(room, range.n);
        TRY(comm_recv(s->world, (struct tensor){room->data, DTYPE_F32}, range.n, leader_of(s, i)));
        part_map_copy_to_whole(s->map, i, r->first, r->n, range, room->data, r->values);
    }
    return ST_OK;
}

/* If a shard holds no element of the range, its ranks still make the collective calls: all ranks
 * then make the same number of calls, which comm_activity counts. */
static enum status shards_write(const struct state *s, const struct state_range *r)
{
    const bool is_first = comm_place(s->world)->rank == 0;
    const struct part_map_range own = part_map_held(s->map, own_shard(s), r->first, r->n);
    for (int i = 1; is_first && i < s->map->parts_n; i++) {
        /* Rank 0 sends the elements of every other shard to the shard's leader. */
        struct part_map_range range = part_map_held(s->map, i, r->first, r->n);
        if (range.n == 0)
            continue;
        reserve_room(r->room, range.n);
        part_map_copy_from_whole(s->map, i, r->first, r->n, range, r->values, r->room->data);
        TRY(comm_send(s->world, (struct tensor){r->room->data, DTYPE_F32}, range.n,
                      leader_of(s, i)));
    }
    reserve_room(r->room, own.n > 0 ? own.n : 1);
    r->room->data[0] = 0;
    if (is_first && own.n > 0)
        part_map_copy_from_whole(s->map, 0, r->first, r->n, own, r->values, r->room->data);
    else if (own.n > 0 && is_leader(s))
        TRY(comm_recv(s->world, (struct tensor){r->room->data, DTYPE_F32}, own.n, 0));
    return store_state_scatter(s->store, r->array, own.first, own.n, r->room->data);
}

static const struct state_ops shards = {store_state_count, shards_describe, shards_read,
                                        shards_write};

struct state state_of_model(struct comm *world, struct store *store, const struct mesh *mesh,
                            const struct part_map *map)
{
    return (struct state){.ops = map ? &shards : &store_state_whole,
                          .store = store,
                          .world = world,
                          .mesh = mesh,
                          .map = map};
}
