/* shm_bounce — collectives among ranks that do not see each other's buffers but have a stage each
 * in memory that all see: piece by piece, in rounds: everybody puts its piece on its stage, all
 * meet, everybody takes what it needs.
 *
 * A stage is kept twice, by the round's parity: who writes that of round j+2 has met everybody in
 * round j+1, so nobody still reads round j's. Called after everybody has entered the call, by which
 * all have left the one before. Must not know what holds the memory. */
#ifndef CONVOY_COMM_SHM_BOUNCE_H
#define CONVOY_COMM_SHM_BOUNCE_H

#include "comm/shm/shm_coll.h"

enum status shm_bounce_all_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                                  const struct comm_call *call);
enum status shm_bounce_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                              const struct comm_call *call,
                              const struct shm_coll_partition *partition, void *out,
                              enum dtype dtype_out);
enum status shm_bounce_gather(struct shm_coll *coll, struct comm_ctx *ctx,
                              const struct comm_call *call,
                              const struct shm_coll_partition *partition, const void *in);
enum status shm_bounce_all_to_all(struct shm_coll *coll, struct comm_ctx *ctx,
                                  const struct comm_call *call);
enum status shm_bounce_broadcast(struct shm_coll *coll, struct comm_ctx *ctx,
                                 const struct comm_call *call);

#endif
