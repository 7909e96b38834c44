/* comm_moves — collectives over a hall. Must not know what holds the memory. */
#include "comm/comm_moves.h"

#include <stdlib.h>
#include <string.h>

#include "comm/add.h"
#include "comm/order.h"

#define STREAM_BYTES ((int64_t)8 << 20) /* of all ranks' buffers together: larger than what caches keep for us */

enum status comm_moves_init(struct comm_moves *moves, void *memory, int nodes, int locals, int rank)
{
    int n = nodes * locals;
    *moves = (struct comm_moves){.nodes = nodes, .locals = locals};
    comm_hall_init(&moves->hall, memory, n, rank);
    moves->in = calloc((size_t)n, sizeof(*moves->in));
    moves->out = calloc((size_t)n, sizeof(*moves->out));
    if (moves->in != NULL && moves->out != NULL)
        return ST_OK;
    comm_moves_free(moves);
    return FAIL(ST_RETRY, "out of memory: the addresses of %d ranks", n);
}

void comm_moves_free(struct comm_moves *moves)
{
    free(moves->in);
    free(moves->out);
    moves->in = NULL;
    moves->out = NULL;
}

static int64_t bytes_of(const struct comm_call *call) { return call->elems * (int64_t)dtype_bytes(call->dtype); }

static struct order_extent part_of(const struct comm_moves *moves, const struct comm_call *call, int rank)
{
    return order_extent(call->elems, moves->hall.n, rank);
}

/* Adds what moves->in names into what moves->out names. */
static void add(const struct comm_moves *moves, const struct comm_call *call, int outs_n, int64_t elems)
{
    add_run(&(struct add){.in = moves->in,
                          .out = moves->out,
                          .nodes = moves->nodes,
                          .locals = moves->locals,
                          .outs_n = outs_n,
                          .dtype_in = call->dtype,
                          .dtype_out = call->dtype,
                          .elems = elems,
                          .stream = bytes_of(call) * moves->hall.n >= STREAM_BYTES});
}

static char *at(const struct comm_moves *moves, uint64_t where, int64_t elems, enum dtype dtype)
{
    return (char *)comm_hall_at(&moves->hall, where) + elems * (int64_t)dtype_bytes(dtype);
}

static enum status all_reduce_small(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_hall *hall = &moves->hall;
    TRY(comm_hall_enter(hall, wire, call->in, 0, NULL, 0, bytes_of(call)));
    for (int r = 0; r < hall->n; r++)
        moves->in[r] = comm_hall_slot(hall, r);
    moves->out[0] = call->out;
    add(moves, call, 1, call->elems);
    return ST_OK;
}

static enum status all_reduce_large(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_hall *hall = &moves->hall;
    TRY(comm_hall_enter(hall, wire, call->in, bytes_of(call), call->out, bytes_of(call), 0));
    struct order_extent part = part_of(moves, call, hall->rank);
    TRY(comm_hall_read_begin(hall, wire));
    for (int r = 0; r < hall->n; r++) {
        const struct comm_hall_card *card = comm_hall_card(hall, r);
        moves->in[r] = at(moves, card->in, part.first, call->dtype);
        moves->out[r] = at(moves, card->out, part.first, call->dtype);
    }
    add(moves, call, hall->n, part.elems);
    comm_hall_read_end(hall);
    return comm_hall_meet(hall, wire);
}

/* How a call ends: others must learn of a failure before this rank's buffers go away. */
static enum status end(struct comm_moves *moves, enum status st)
{
    return st == ST_OK ? ST_OK : comm_hall_fail(&moves->hall, st);
}

enum status comm_moves_all_reduce(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    bool is_small = bytes_of(call) <= COMM_HALL_SLOT;
    return end(moves, is_small ? all_reduce_small(moves, wire, call) : all_reduce_large(moves, wire, call));
}

/* Reads others' buffers, or their slots when they brought what they have on their cards. */
static const char *brought(const struct comm_moves *moves, bool is_small, int r)
{
    return is_small ? comm_hall_slot(&moves->hall, r) : comm_hall_at(&moves->hall, comm_hall_card(&moves->hall, r)->in);
}

/* The first and the last meeting of a call that only reads others' `in` of in_bytes; small: one meeting does. */
static enum status read_begin(struct comm_moves *moves, struct comm_wire *wire, int64_t in_bytes, bool is_small)
{
    TRY(comm_hall_enter(&moves->hall, wire, wire->call->in, in_bytes, NULL, 0, is_small ? in_bytes : 0));
    return is_small ? ST_OK : comm_hall_read_begin(&moves->hall, wire);
}

static enum status read_end(struct comm_moves *moves, struct comm_wire *wire, bool is_small)
{
    if (is_small)
        return ST_OK;
    comm_hall_read_end(&moves->hall);
    return comm_hall_meet(&moves->hall, wire);
}

static enum status reduce_scatter(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    const bool is_small = bytes_of(call) <= COMM_HALL_SLOT;
    struct order_extent part = part_of(moves, call, moves->hall.rank);
    TRY(read_begin(moves, wire, bytes_of(call), is_small));
    for (int r = 0; r < moves->hall.n; r++)
        moves->in[r] = brought(moves, is_small, r) + part.first * (int64_t)dtype_bytes(call->dtype);
    moves->out[0] = call->out;
    add(moves, call, 1, part.elems);
    return read_end(moves, wire, is_small);
}

enum status comm_moves_reduce_scatter(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    return end(moves, reduce_scatter(moves, wire, call));
}

static enum status all_gather(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    const struct comm_hall *hall = &moves->hall;
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    const bool is_small = bytes_of(call) <= COMM_HALL_SLOT;
    TRY(read_begin(moves, wire, part_of(moves, call, hall->rank).elems * each, is_small));
    for (int i = 0; i < hall->n; i++) {
        int r = (hall->rank + i) % hall->n;
        struct order_extent part = part_of(moves, call, r);
        char *out = (char *)call->out + part.first * each;
        const void *in = r == hall->rank ? call->in : brought(moves, is_small, r);
        if (part.elems > 0 && out != in)
            add_copy(out, in, part.elems * each, bytes_of(call) >= STREAM_BYTES);
    }
    return read_end(moves, wire, is_small);
}

enum status comm_moves_all_gather(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    return end(moves, all_gather(moves, wire, call));
}

static enum status all_to_all(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    const struct comm_hall *hall = &moves->hall;
    const int64_t part = bytes_of(call), all = part * hall->n;
    const bool is_small = all <= COMM_HALL_SLOT;
    TRY(read_begin(moves, wire, all, is_small));
    for (int i = 0; i < hall->n && part > 0; i++) {
        int r = (hall->rank + i) % hall->n;
        add_copy((char *)call->out + r * part, brought(moves, is_small, r) + hall->rank * part, part,
                 all >= STREAM_BYTES);
    }
    return read_end(moves, wire, is_small);
}

enum status comm_moves_all_to_all(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    return end(moves, all_to_all(moves, wire, call));
}

static enum status broadcast(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    struct comm_hall *hall = &moves->hall;
    bool is_root = hall->rank == call->peer, is_small = bytes_of(call) <= COMM_HALL_SLOT;
    TRY(comm_hall_enter(hall, wire, call->in, bytes_of(call), NULL, 0, is_root && is_small ? bytes_of(call) : 0));
    if (is_small) {
        if (!is_root && call->elems > 0)
            memcpy(call->out, comm_hall_slot(hall, call->peer), (size_t)bytes_of(call));
        return ST_OK;
    }
    TRY(comm_hall_read_begin(hall, wire));
    if (!is_root)
        add_copy(call->out, at(moves, comm_hall_card(hall, call->peer)->in, 0, call->dtype), bytes_of(call),
                 bytes_of(call) >= STREAM_BYTES);
    comm_hall_read_end(hall);
    return comm_hall_meet(hall, wire);
}

enum status comm_moves_broadcast(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    return end(moves, broadcast(moves, wire, call));
}

enum status comm_moves_send(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    return end(moves, comm_hall_send(&moves->hall, wire, call));
}

enum status comm_moves_recv(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    return end(moves, comm_hall_recv(&moves->hall, wire, call));
}

enum status comm_moves_barrier(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call)
{
    (void)call;
    return end(moves, comm_hall_enter(&moves->hall, wire, NULL, 0, NULL, 0, 0));
}
