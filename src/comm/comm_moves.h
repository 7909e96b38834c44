/* comm_moves — the collectives of ranks that see each other's buffers: each reads what it needs
 * from all of them.
 *
 * A small all_reduce is one meeting: everybody brings its elements in its slot and adds up all of
 * them. A large one is two: each rank adds its part straight from all buffers and stores it to all,
 * then everybody waits for everybody. Buffers that others cannot see (a mapping shared by
 * processes, memory that is not from comm_alloc) go through stages, piece by piece: comm_stage.h.
 * Must not know what holds the memory. */
#ifndef CONVOY_COMM_COMM_MOVES_H
#define CONVOY_COMM_COMM_MOVES_H

#include "comm/comm_hall.h"
#include "comm/order.h"

/* Where n ranks of nodes × locals stand, and what they sum with. */
struct comm_moves {
    struct comm_hall hall;
    int nodes, locals;
    /* of all ranks' buffers together, from which on stores go past the caches */
    int64_t stream_bytes;
    const void **in; /* n each: scratch */
    void **out;
    struct order_extent *parts; /* n: of the call under way */
};

/* Who gets what of a buffer: `each` extents for a rank, extents[rank · each + k]; a rank's are
 * taken one after the other. For reduce_scatter and all_gather it is one each; a transport of many
 * nodes deals its nodes' parts. */
struct comm_moves_cut {
    const struct order_extent *extents;
    int each;
};
int64_t comm_moves_cut_elems(const struct comm_moves_cut *cut, int rank);

enum status comm_moves_init(struct comm_moves *moves, void *memory, int nodes, int locals,
                            int rank);
void comm_moves_free(struct comm_moves *moves);

enum status comm_moves_all_reduce(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call);
enum status comm_moves_reduce_scatter(struct comm_moves *moves, struct comm_wire *wire,
                                      const struct comm_call *call);
enum status comm_moves_all_gather(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call);
/* comm_moves_add — moves->in, of call->dtype, into the outs_n of moves->out. */
void comm_moves_add(const struct comm_moves *moves, const struct comm_call *call, int outs_n,
                    enum dtype dtype_out, int64_t elems);

/* comm_moves_reduce — the sum over all ranks' call->in (call->elems) of what `cut` gives to this
 * one, in a row, into `out`; dtype_out = call->dtype, or F32 of BF16: a sum that goes on elsewhere.
 * comm_moves_gather — what `cut` gave to each, in a row in its `in`, comes together in everybody's
 * call->out. */
enum status comm_moves_reduce(struct comm_moves *moves, struct comm_wire *wire,
                              const struct comm_call *call, const struct comm_moves_cut *cut,
                              void *out, enum dtype dtype_out);
enum status comm_moves_gather(struct comm_moves *moves, struct comm_wire *wire,
                              const struct comm_call *call, const struct comm_moves_cut *cut,
                              const void *in);
enum status comm_moves_all_to_all(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call);
enum status comm_moves_broadcast(struct comm_moves *moves, struct comm_wire *wire,
                                 const struct comm_call *call);
enum status comm_moves_send(struct comm_moves *moves, struct comm_wire *wire,
                            const struct comm_call *call);
enum status comm_moves_recv(struct comm_moves *moves, struct comm_wire *wire,
                            const struct comm_call *call);
enum status comm_moves_barrier(struct comm_moves *moves, struct comm_wire *wire,
                               const struct comm_call *call);

#endif
