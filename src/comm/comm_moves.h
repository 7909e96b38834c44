/* comm_moves — the collectives of ranks that see each other's buffers: each reads what it needs from all of them.
 *
 * A small all_reduce is one meeting: everybody brings its elements in its slot and adds up all of them. A large one is
 * two: each rank adds its part straight from all buffers and stores it to all, then everybody waits for everybody.
 * Buffers that others cannot see (a mapping shared by processes, memory that is not from comm_alloc) go through
 * a stage, piece by piece. Must not know what holds the memory. */
#ifndef CONVOY_COMM_COMM_MOVES_H
#define CONVOY_COMM_COMM_MOVES_H

#include "comm/comm_hall.h"

/* Where n ranks of nodes × locals stand, and what they sum with. */
struct comm_moves {
    struct comm_hall hall;
    int nodes, locals;
    const void **in; /* n each: scratch */
    void **out;
};

enum status comm_moves_init(struct comm_moves *moves, void *memory, int nodes, int locals, int rank);
void comm_moves_free(struct comm_moves *moves);

enum status comm_moves_all_reduce(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call);
enum status comm_moves_reduce_scatter(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call);
enum status comm_moves_all_gather(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call);
enum status comm_moves_all_to_all(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call);
enum status comm_moves_broadcast(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call);
enum status comm_moves_send(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call);
enum status comm_moves_recv(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call);
enum status comm_moves_barrier(struct comm_moves *moves, struct comm_wire *wire, const struct comm_call *call);

#endif
