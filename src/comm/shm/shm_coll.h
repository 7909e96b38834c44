/* shm_coll — the collectives of ranks that see each other's buffers: each reads what it needs
 * from all of them.
 *
 * A small all_reduce is one meeting: everybody brings its elements in its slot and adds up all of
 * them. A large one is two: each rank adds its part straight from all buffers and stores it to all,
 * then everybody waits for everybody. Buffers that others cannot see (a mapping shared by
 * processes, memory that is not from comm_alloc) go through stages, piece by piece: shm_bounce.h.
 * Must not know what holds the memory. */
#ifndef CONVOY_COMM_SHM_COLL_H
#define CONVOY_COMM_SHM_COLL_H

#include "comm/shm/shm_barrier.h"
#include "comm/core/part.h"

/* Where n ranks of nodes × locals stand, and what they sum with. */
struct shm_coll {
    struct shm_barrier barrier;
    int nodes, locals;
    /* of all ranks' buffers together, from which on stores go past the caches */
    int64_t nt_bytes;
    const void **in; /* n each: scratch */
    void **out;
    struct part_extent *parts; /* n: of the call under way */
};

/* Who gets what of a buffer: `each` extents for a rank, extents[rank · each + k]; a rank's are
 * taken one after the other. For reduce_scatter and all_gather it is one each; a transport of many
 * nodes deals its nodes' parts. */
struct shm_coll_partition {
    const struct part_extent *extents;
    int each;
};
int64_t shm_coll_partition_elems(const struct shm_coll_partition *partition, int rank);

enum status shm_coll_init(struct shm_coll *coll, void *memory, int nodes, int locals, int rank);
void shm_coll_free(struct shm_coll *coll);

enum status shm_coll_all_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                                const struct comm_call *call);
enum status shm_coll_reduce_scatter(struct shm_coll *coll, struct comm_ctx *ctx,
                                    const struct comm_call *call);
enum status shm_coll_all_gather(struct shm_coll *coll, struct comm_ctx *ctx,
                                const struct comm_call *call);
/* shm_coll_sum — moves->in, of call->dtype, into the outs_n of moves->out. */
void shm_coll_sum(const struct shm_coll *coll, const struct comm_call *call, int outs_n,
                  enum dtype dtype_out, int64_t elems);

/* shm_coll_reduce — the sum over all ranks' call->in (call->elems) of what `cut` gives to this
 * one, in a row, into `out`; dtype_out = call->dtype, or F32 of BF16: a sum that goes on elsewhere.
 * shm_coll_gather — what `cut` gave to each, in a row in its `in`, comes together in everybody's
 * call->out. */
enum status shm_coll_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                            const struct comm_call *call,
                            const struct shm_coll_partition *partition, void *out,
                            enum dtype dtype_out);
enum status shm_coll_gather(struct shm_coll *coll, struct comm_ctx *ctx,
                            const struct comm_call *call,
                            const struct shm_coll_partition *partition, const void *in);
enum status shm_coll_all_to_all(struct shm_coll *coll, struct comm_ctx *ctx,
                                const struct comm_call *call);
enum status shm_coll_broadcast(struct shm_coll *coll, struct comm_ctx *ctx,
                               const struct comm_call *call);
enum status shm_coll_send(struct shm_coll *coll, struct comm_ctx *ctx,
                          const struct comm_call *call);
enum status shm_coll_recv(struct shm_coll *coll, struct comm_ctx *ctx,
                          const struct comm_call *call);
enum status shm_coll_barrier(struct shm_coll *coll, struct comm_ctx *ctx,
                             const struct comm_call *call);

#endif
