/* shm_bounce — collectives through bounce buffers, for ranks that share memory but cannot see each
 * other's buffers. Must not know what provides the memory.
 *
 * A call runs in rounds. In each round every rank copies a chunk into its bounce buffer. All ranks
 * wait at a barrier. Then every rank copies or sums what it needs. Bounce buffers exist twice and
 * alternate by round: a rank that overwrites round j in round j+2 has met all ranks in round j+1,
 * so no rank still reads round j. Call these after all ranks have entered the call: by then all
 * have left the previous one. */
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
