/* comm_stage — rounds over the stages of a hall. Must not know what holds the memory. */
#include "comm/comm_stage.h"

#include <string.h>

#include "base/must.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t at_least_0(int64_t a) { return a > 0 ? a : 0; }
static int64_t rounds_of(int64_t elems, int64_t piece)
{
    return elems / piece + (elems % piece != 0);
}

/* Elements of one of `parts` equal pieces of a stage. */
static int64_t piece_elems(const struct comm_call *call, int parts)
{
    int64_t elems = COMM_HALL_STAGE / parts / (int64_t)dtype_bytes(call->dtype);
    ASSERTF(elems >= ORDER_ALIGN, "%d pieces on a stage", parts);
    return elems / ORDER_ALIGN * ORDER_ALIGN;
}

/* Each rank adds its part of the piece where it lies on its own stage: nobody else reads that part
 * before the second meeting. */
enum status comm_stage_all_reduce(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call)
{
    struct comm_hall *hall = &moves->hall;
    const int64_t each = (int64_t)dtype_bytes(call->dtype), piece = piece_elems(call, 1);
    for (int64_t j = 0, rounds = rounds_of(call->elems, piece); j < rounds; j++) {
        const int64_t first = j * piece, elems = least(piece, call->elems - first);
        memcpy(comm_hall_stage(hall, hall->rank, j), (const char *)call->in + first * each,
               (size_t)(elems * each));
        TRY(comm_hall_meet(hall, wire));
        struct order_extent part = order_extent(elems, hall->n, hall->rank);
        for (int r = 0; r < hall->n; r++)
            moves->in[r] = comm_hall_stage(hall, r, j) + part.first * each;
        moves->out[0] = comm_hall_stage(hall, hall->rank, j) + part.first * each;
        comm_moves_add(moves, &(struct comm_call){.dtype = call->dtype}, 1, call->dtype,
                       part.elems);
        TRY(comm_hall_meet(hall, wire));
        for (int r = 0; r < hall->n; r++) {
            part = order_extent(elems, hall->n, r);
            memcpy((char *)call->out + (first + part.first) * each,
                   comm_hall_stage(hall, r, j) + part.first * each, (size_t)(part.elems * each));
        }
    }
    return ST_OK;
}

/* Elements [first, first + n) of what the cut gives rank r in a row, between a buffer and a
 * stage. */
static void cut_copy(const struct comm_moves_cut *cut, int r, int64_t first, int64_t n,
                     int64_t each, char *buffer, char *stage, bool to_stage)
{
    for (int k = 0; k < cut->each && n > 0; k++) {
        const struct order_extent *extent = &cut->extents[r * cut->each + k];
        if (first >= extent->elems) {
            first -= extent->elems;
            continue;
        }
        int64_t here = least(n, extent->elems - first);
        char *at = buffer + (extent->first + first) * each;
        memcpy(to_stage ? stage : at, to_stage ? at : stage, (size_t)(here * each));
        stage += here * each;
        first = 0;
        n -= here;
    }
}

static int64_t cut_rounds(const struct comm_moves *moves, const struct comm_moves_cut *cut,
                          int64_t piece)
{
    int64_t most = 0;
    for (int r = 0; r < moves->hall.n; r++) {
        int64_t rounds = rounds_of(comm_moves_cut_elems(cut, r), piece);
        most = rounds > most ? rounds : most;
    }
    return most;
}

enum status comm_stage_reduce(struct comm_moves *moves, struct comm_wire *wire,
                              const struct comm_call *call, const struct comm_moves_cut *cut,
                              void *out, enum dtype dtype_out)
{
    struct comm_hall *hall = &moves->hall;
    const int64_t each = (int64_t)dtype_bytes(call->dtype), piece = piece_elems(call, hall->n);
    for (int64_t j = 0, rounds = cut_rounds(moves, cut, piece); j < rounds; j++) {
        for (int r = 0; r < hall->n; r++)
            cut_copy(cut, r, j * piece,
                     least(piece, at_least_0(comm_moves_cut_elems(cut, r) - j * piece)), each,
                     (char *)(uintptr_t)call->in,
                     comm_hall_stage(hall, hall->rank, j) + r * piece * each, true);
        TRY(comm_hall_meet(hall, wire));
        for (int r = 0; r < hall->n; r++)
            moves->in[r] = comm_hall_stage(hall, r, j) + hall->rank * piece * each;
        moves->out[0] = (char *)out + j * piece * (int64_t)dtype_bytes(dtype_out);
        comm_moves_add(moves, &(struct comm_call){.dtype = call->dtype}, 1, dtype_out,
                       least(piece, at_least_0(comm_moves_cut_elems(cut, hall->rank) - j * piece)));
    }
    return ST_OK;
}

enum status comm_stage_gather(struct comm_moves *moves, struct comm_wire *wire,
                              const struct comm_call *call, const struct comm_moves_cut *cut,
                              const void *in)
{
    struct comm_hall *hall = &moves->hall;
    const int64_t each = (int64_t)dtype_bytes(call->dtype), piece = piece_elems(call, 1);
    const int64_t mine = comm_moves_cut_elems(cut, hall->rank);
    for (int64_t j = 0, rounds = cut_rounds(moves, cut, piece); j < rounds; j++) {
        int64_t here = least(piece, at_least_0(mine - j * piece));
        if (here > 0)
            memcpy(comm_hall_stage(hall, hall->rank, j), (const char *)in + j * piece * each,
                   (size_t)(here * each));
        TRY(comm_hall_meet(hall, wire));
        for (int r = 0; r < hall->n; r++)
            cut_copy(cut, r, j * piece,
                     least(piece, at_least_0(comm_moves_cut_elems(cut, r) - j * piece)), each,
                     call->out, comm_hall_stage(hall, r, j), false);
    }
    return ST_OK;
}

enum status comm_stage_all_to_all(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call)
{
    struct comm_hall *hall = &moves->hall;
    const int64_t each = (int64_t)dtype_bytes(call->dtype),
                  piece = piece_elems(call, hall->n) * each;
    const int64_t part = call->elems * each;
    for (int64_t j = 0, rounds = rounds_of(part, piece); j < rounds; j++) {
        const size_t here = (size_t)least(piece, part - j * piece);
        for (int r = 0; r < hall->n; r++)
            memcpy(comm_hall_stage(hall, hall->rank, j) + r * piece,
                   (const char *)call->in + r * part + j * piece, here);
        TRY(comm_hall_meet(hall, wire));
        for (int r = 0; r < hall->n; r++)
            memcpy((char *)call->out + r * part + j * piece,
                   comm_hall_stage(hall, r, j) + hall->rank * piece, here);
    }
    return ST_OK;
}

enum status comm_stage_broadcast(struct comm_moves *moves, struct comm_wire *wire,
                                 const struct comm_call *call)
{
    struct comm_hall *hall = &moves->hall;
    const int64_t bytes = comm_ops_bytes(call);
    for (int64_t j = 0, rounds = rounds_of(bytes, COMM_HALL_STAGE); j < rounds; j++) {
        const size_t here = (size_t)least(COMM_HALL_STAGE, bytes - j * COMM_HALL_STAGE);
        if (hall->rank == call->peer)
            memcpy(comm_hall_stage(hall, hall->rank, j),
                   (const char *)call->in + j * COMM_HALL_STAGE, here);
        TRY(comm_hall_meet(hall, wire));
        if (hall->rank != call->peer)
            memcpy((char *)call->out + j * COMM_HALL_STAGE, comm_hall_stage(hall, call->peer, j),
                   here);
    }
    return ST_OK;
}
