/* shm_coll — collectives of ranks that share memory. Must not know how the memory is provided.
 *
 *   small all_reduce   (up to SHM_BARRIER_EAGER_BYTES) one barrier: each rank puts its elements
 *                      into its eager slot, then sums all slots by itself.
 *   large all_reduce   two barriers: each rank sums its part directly from all buffers, stores it
 *                      to all buffers, then waits for the others.
 *   buffers that other ranks cannot see (processes, and not from comm_alloc): through bounce
 *                      buffers, round by round (bounce.c). */
#ifndef CONVOY_COMM_SHM_COLL_H
#define CONVOY_COMM_SHM_COLL_H

#include "comm/core/part.h"
#include "comm/shm/barrier.h"

/* One rank's state: nodes × locals ranks, the barrier, scratch arrays. */
struct shm_coll {
    struct shm_barrier barrier;
    int nodes, locals;
    /* bytes of all ranks' buffers together, from which on stores bypass the caches */
    int64_t nt_bytes;
    const void **in; /* n each: scratch */
    void **out;
    struct part_extent *parts; /* n: parts of the call in progress */
};

/* The extents of a buffer that belong to each rank: extents[rank · each + k], k < each. A rank's
 * extents are packed one after the other in its own buffer. reduce_scatter and all_gather have one
 * extent each; a two-level collective has one for each node. */
struct shm_coll_partition {
    const struct part_extent *extents;
    int each;
};
/* shm_coll_partition_elems — returns the elements of all extents of a rank together. */
int64_t shm_coll_partition_elems(const struct shm_coll_partition *partition, int rank);

/* shm_coll_init — initializes the state. place: nodes × locals ranks. */
void shm_coll_init(struct shm_coll *coll, void *memory, const struct comm_place *place);
/* shm_coll_free — frees the arrays and zeroes the struct; the memory of the barrier is the
 * caller's. */
void shm_coll_free(struct shm_coll *coll);

/* shm_coll_run — executes a collective, send or recv; a call of any other kind is a barrier. */
enum status shm_coll_run(struct shm_coll *coll, struct comm_ctx *ctx, const struct comm_call *call);
/* shm_coll_sum — sums coll->in (n sources of call->dtype) into the outs_n buffers of coll->out.
 * Changes both arrays. */
void shm_coll_sum(const struct shm_coll *coll, const struct comm_call *call, int outs_n,
                  enum dtype dtype_out, int64_t elems);

/* shm_coll_reduce — does reduce_scatter by a partition: writes this rank's extents of the sum over
 * all ranks of call->in (call->elems), packed, to `out`. dtype_out = call->dtype, or F32 from BF16
 * for a sum that continues on other nodes. */
enum status shm_coll_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                            const struct comm_call *call,
                            const struct shm_coll_partition *partition, void *out,
                            enum dtype dtype_out);
/* shm_coll_gather — does all_gather by a partition: copies every rank's packed extents, in its
 * `in`, to call->out of all ranks. */
enum status shm_coll_gather(struct shm_coll *coll, struct comm_ctx *ctx,
                            const struct comm_call *call,
                            const struct shm_coll_partition *partition, const void *in);

/* ---- through bounce buffers (bounce.c); only for coll.c ---- */

/* shm_bounce_all_reduce — does all_reduce round by round. */
enum status shm_bounce_all_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                                  const struct comm_call *call);
/* shm_bounce_reduce — does shm_coll_reduce round by round. */
enum status shm_bounce_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                              const struct comm_call *call,
                              const struct shm_coll_partition *partition, void *out,
                              enum dtype dtype_out);
/* shm_bounce_gather — does shm_coll_gather round by round. */
enum status shm_bounce_gather(struct shm_coll *coll, struct comm_ctx *ctx,
                              const struct comm_call *call,
                              const struct shm_coll_partition *partition, const void *in);
/* shm_bounce_all_to_all — does all_to_all round by round. */
enum status shm_bounce_all_to_all(struct shm_coll *coll, struct comm_ctx *ctx,
                                  const struct comm_call *call);
/* shm_bounce_broadcast — does broadcast from rank call->peer round by round. */
enum status shm_bounce_broadcast(struct shm_coll *coll, struct comm_ctx *ctx,
                                 const struct comm_call *call);

#endif
