/* comm_stage — collectives among ranks that do not see each other's buffers but have a stage each
 * in memory that all see: piece by piece, in rounds: everybody puts its piece on its stage, all
 * meet, everybody takes what it needs.
 *
 * A stage is kept twice, by the round's parity: who writes that of round j+2 has met everybody in
 * round j+1, so nobody still reads round j's. Called after everybody has entered the call, by which
 * all have left the one before. Must not know what holds the memory. */
#ifndef CONVOY_COMM_COMM_STAGE_H
#define CONVOY_COMM_COMM_STAGE_H

#include "comm/comm_moves.h"

enum status comm_stage_all_reduce(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call);
enum status comm_stage_reduce(struct comm_moves *moves, struct comm_wire *wire,
                              const struct comm_call *call, const struct comm_moves_cut *cut,
                              void *out, enum dtype dtype_out);
enum status comm_stage_gather(struct comm_moves *moves, struct comm_wire *wire,
                              const struct comm_call *call, const struct comm_moves_cut *cut,
                              const void *in);
enum status comm_stage_all_to_all(struct comm_moves *moves, struct comm_wire *wire,
                                  const struct comm_call *call);
enum status comm_stage_broadcast(struct comm_moves *moves, struct comm_wire *wire,
                                 const struct comm_call *call);

#endif
