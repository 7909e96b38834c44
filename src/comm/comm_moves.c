/* comm_moves — collectives over a hall, where everybody sees everybody's buffers; where not,
 * comm_stage does the moving. Must not know what holds the memory. */
#include "comm/comm_moves.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/add.h"
#include "comm/comm_stage.h"

/* of all ranks' buffers together, where the system does not tell its caches */
#define STREAM_LEAST ((int64_t)8 << 20)

enum status comm_moves_init(struct comm_moves *moves, void *memory, int nodes, int locals, int rank)
{
    int n = nodes * locals;
    /* What the last cache can keep is faster stored through it: 16 MiB, 2 ranks, 1.2 ms against 1.8
     * past it. */
    const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE) / 4 * 3;
    *moves = (struct comm_moves){.nodes = nodes,
                                 .locals = locals,
                                 .stream_bytes = cache > STREAM_LEAST ? cache : STREAM_LEAST};
    comm_hall_init(&moves->hall, memory, n, rank);
    moves->in = calloc((size_t)n, sizeof(*moves->in));
    moves->out = calloc((size_t)n, sizeof(*moves->out));
    moves->parts = calloc((size_t)n, sizeof(*moves->parts));
    if (moves->in != NULL && moves->out != NULL && moves->parts != NULL)
        return ST_OK;
    comm_moves_free(moves);
    return FAIL(ST_RETRY, "out of memory: the addresses of %d ranks", n);
}

void comm_moves_free(struct comm_moves *moves)
{
    free(moves->in);
    free(moves->out);
    free(moves->parts);
    *moves = (struct comm_moves){0};
}

int64_t comm_moves_cut_elems(const struct comm_moves_cut *cut, int rank)
{
    int64_t elems = 0;
    for (int k = 0; k < cut->each; k++)
        elems += cut->extents[rank * cut->each + k].elems;
    return elems;
}

static bool is_streamed(const struct comm_moves *moves, const struct comm_call *call)
{
    return comm_ops_bytes(call) * moves->hall.n >= moves->stream_bytes;
}

/* The parts that comm.h promises, as a cut. */
static struct comm_moves_cut cut_even(struct comm_moves *moves, const struct comm_call *call)
{
    for (int r = 0; r < moves->hall.n; r++)
        moves->parts[r] = order_extent(call->elems, moves->hall.n, r);
    return (struct comm_moves_cut){.extents = moves->parts, .each = 1};
}

void comm_moves_add(const struct comm_moves *moves, const struct comm_call *call, int outs_n,
                    enum dtype dtype_out, int64_t elems)
{
    add_run(&(struct add){.in = moves->in,
                          .out = moves->out,
                          .nodes = moves->nodes,
                          .locals = moves->locals,
                          .outs_n = outs_n,
                          .dtype_in = call->dtype,
                          .dtype_out = dtype_out,
                          .elems = elems,
                          .stream = is_streamed(moves, call)});
}

/* How a call ends: others must learn of a failure before this rank's buffers go away. */
static enum status end(struct comm_moves *moves, enum status st)
{
    return st == ST_OK ? ST_OK : comm_hall_fail(&moves->hall, st);
}

/* Everybody has entered: are all buffers where everybody sees them? The same answer on all
 * ranks. */
static bool is_visible(const struct comm_moves *moves)
{
    for (int r = 0; r < moves->hall.n; r++)
        if (comm_hall_card(&moves->hall, r)->in == 0 || comm_hall_card(&moves->hall, r)->out == 0)
            return false;
    return true;
}

/* Where rank r's `in` can be read: in its slot when it brought it along. */
static const char *brought(const struct comm_moves *moves, bool is_small, int r)
{
    return is_small ? comm_hall_slot(&moves->hall, r)
                    : comm_hall_at(&moves->hall, comm_hall_card(&moves->hall, r)->in);
}

/* ---- all_reduce ---- */

static enum status all_reduce_small(struct comm_moves *moves, struct comm_wire *wire,
                                    const struct comm_call *call)
{
    TRY(comm_hall_enter(&moves->hall, wire, call->in, 0, NULL, 0, comm_ops_bytes(call)));
    for (int r = 0; r < moves->hall.n; r++)
        moves->in[r] = comm_hall_slot(&moves->hall, r);
    moves->out[0] = call->out;
    comm_moves_add(moves, call, 1, call->dtype, call->elems);
    return ST_OK;
}

static enum status all_reduce_large(struct comm_moves *moves, struct comm_wire *wire,
                                    const struct comm_call *call)
{
    struct comm_hall *hall = &moves->hall;
    TRY(comm_hall_enter(hall, wire, call->in, comm_ops_bytes(call), call->out, comm_ops_bytes(call),
                        0));
    if (!is_visible(moves))
        return comm_stage_all_reduce(moves, wire, call);
    struct order_extent part = order_extent(call->elems, hall->n, hall->rank);
    const int64_t first = part.first * (int64_t)dtype_bytes(call->dtype);
    TRY(comm_hall_read_begin(hall, wire));
    for (int r = 0; r < hall->n; r++) {
        moves->in[r] = (char *)comm_hall_at(hall, comm_hall_card(hall, r)->in) + first;
        moves->out[r] = (char *)comm_hall_at(hall, comm_hall_card(hall, r)->out) + first;
    }
    comm_moves_add(moves, call, hall->n, call->dtype, part.elems);
    comm_hall_read_end(hall);
    return comm_hall_meet(hall, wire);
}

enum status comm_moves_all_reduce(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call)
{
    bool is_small = comm_ops_bytes(call) <= COMM_HALL_SLOT;
    return end(moves, is_small ? all_reduce_small(moves, wire, call)
                               : all_reduce_large(moves, wire, call));
}

/* ---- calls that read others' `in` and store at home: one meeting when small, else one before and
 * one after ---- */

static enum status read_begin(struct comm_moves *moves, struct comm_wire *wire, const void *in,
                              int64_t in_bytes, bool is_small)
{
    return comm_hall_enter(&moves->hall, wire, in, in_bytes, NULL, 0, is_small ? in_bytes : 0);
}

static enum status read_end(struct comm_moves *moves, struct comm_wire *wire, bool is_small)
{
    if (is_small)
        return ST_OK;
    comm_hall_read_end(&moves->hall);
    return comm_hall_meet(&moves->hall, wire);
}

static enum status reduce(struct comm_moves *moves, struct comm_wire *wire,
                          const struct comm_call *call, const struct comm_moves_cut *cut, void *out,
                          enum dtype dtype_out)
{
    const bool is_small = comm_ops_bytes(call) <= COMM_HALL_SLOT;
    struct comm_hall *hall = &moves->hall;
    TRY(read_begin(moves, wire, call->in, comm_ops_bytes(call), is_small));
    if (!is_small && !is_visible(moves))
        return comm_stage_reduce(moves, wire, call, cut, out, dtype_out);
    if (!is_small)
        TRY(comm_hall_read_begin(hall, wire));
    char *to = out;
    for (int k = 0; k < cut->each; k++) {
        const struct order_extent *extent = &cut->extents[hall->rank * cut->each + k];
        for (int r = 0; r < hall->n; r++)
            moves->in[r] =
                brought(moves, is_small, r) + extent->first * (int64_t)dtype_bytes(call->dtype);
        moves->out[0] = to;
        comm_moves_add(moves, call, 1, dtype_out, extent->elems);
        to += extent->elems * (int64_t)dtype_bytes(dtype_out);
    }
    return read_end(moves, wire, is_small);
}

enum status comm_moves_reduce(struct comm_moves *moves, struct comm_wire *wire,
                              const struct comm_call *call, const struct comm_moves_cut *cut,
                              void *out, enum dtype dtype_out)
{
    return end(moves, reduce(moves, wire, call, cut, out, dtype_out));
}

enum status comm_moves_reduce_scatter(struct comm_moves *moves, struct comm_wire *wire,
                                      const struct comm_call *call)
{
    struct comm_moves_cut cut = cut_even(moves, call);
    return comm_moves_reduce(moves, wire, call, &cut, call->out, call->dtype);
}

static enum status gather(struct comm_moves *moves, struct comm_wire *wire,
                          const struct comm_call *call, const struct comm_moves_cut *cut,
                          const void *in)
{
    const struct comm_hall *hall = &moves->hall;
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    const bool is_small = comm_ops_bytes(call) <= COMM_HALL_SLOT;
    TRY(read_begin(moves, wire, in, comm_moves_cut_elems(cut, hall->rank) * each, is_small));
    if (!is_small && !is_visible(moves))
        return comm_stage_gather(moves, wire, call, cut, in);
    if (!is_small)
        TRY(comm_hall_read_begin(&moves->hall, wire));
    for (int i = 0; i < hall->n; i++) {
        int r = (hall->rank + i) % hall->n;
        const char *from = r == hall->rank ? in : brought(moves, is_small, r);
        for (int k = 0; k < cut->each; k++) {
            const struct order_extent *extent = &cut->extents[r * cut->each + k];
            char *to = (char *)call->out + extent->first * each;
            if (extent->elems > 0 && to != from)
                add_copy(to, from, extent->elems * each, is_streamed(moves, call));
            from += extent->elems * each;
        }
    }
    return read_end(moves, wire, is_small);
}

enum status comm_moves_gather(struct comm_moves *moves, struct comm_wire *wire,
                              const struct comm_call *call, const struct comm_moves_cut *cut,
                              const void *in)
{
    return end(moves, gather(moves, wire, call, cut, in));
}

enum status comm_moves_all_gather(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call)
{
    struct comm_moves_cut cut = cut_even(moves, call);
    return comm_moves_gather(moves, wire, call, &cut, call->in);
}

static enum status all_to_all(struct comm_moves *moves, struct comm_wire *wire,
                              const struct comm_call *call)
{
    struct comm_hall *hall = &moves->hall;
    const int64_t part = comm_ops_bytes(call), all = part * hall->n;
    const bool is_small = all <= COMM_HALL_SLOT;
    TRY(read_begin(moves, wire, call->in, all, is_small));
    if (!is_small && !is_visible(moves))
        return comm_stage_all_to_all(moves, wire, call);
    if (!is_small)
        TRY(comm_hall_read_begin(hall, wire));
    for (int i = 0; i < hall->n && part > 0; i++) {
        int r = (hall->rank + i) % hall->n;
        add_copy((char *)call->out + r * part, brought(moves, is_small, r) + hall->rank * part,
                 part, is_streamed(moves, call));
    }
    return read_end(moves, wire, is_small);
}

enum status comm_moves_all_to_all(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call)
{
    return end(moves, all_to_all(moves, wire, call));
}

static enum status broadcast(struct comm_moves *moves, struct comm_wire *wire,
                             const struct comm_call *call)
{
    struct comm_hall *hall = &moves->hall;
    const int64_t bytes = comm_ops_bytes(call);
    bool is_root = hall->rank == call->peer, is_small = bytes <= COMM_HALL_SLOT;
    TRY(comm_hall_enter(hall, wire, call->in, is_root ? bytes : 0, NULL, 0,
                        is_root && is_small ? bytes : 0));
    if (!is_small && !is_visible(moves))
        return comm_stage_broadcast(moves, wire, call);
    if (!is_small)
        TRY(comm_hall_read_begin(hall, wire));
    if (!is_root && bytes > 0)
        add_copy(call->out, brought(moves, is_small, call->peer), bytes, is_streamed(moves, call));
    return read_end(moves, wire, is_small);
}

enum status comm_moves_broadcast(struct comm_moves *moves, struct comm_wire *wire,
                                 const struct comm_call *call)
{
    return end(moves, broadcast(moves, wire, call));
}

/* ---- between two, and none ---- */

enum status comm_moves_send(struct comm_moves *moves, struct comm_wire *wire,
                            const struct comm_call *call)
{
    return end(moves, comm_hall_send(&moves->hall, wire, call));
}

enum status comm_moves_recv(struct comm_moves *moves, struct comm_wire *wire,
                            const struct comm_call *call)
{
    return end(moves, comm_hall_recv(&moves->hall, wire, call));
}

enum status comm_moves_barrier(struct comm_moves *moves, struct comm_wire *wire,
                               const struct comm_call *call)
{
    (void)call;
    return end(moves, comm_hall_enter(&moves->hall, wire, NULL, 0, NULL, 0, 0));
}
