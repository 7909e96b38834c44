/* comm_shm — shared memory between the workers of one node, and their collectives in it. Must not
 * know networks.
 *
 * The supervisor passes one memfd to its workers (comm_config.shm_fd). Its first part holds control
 * blocks (barrier.h): one for all workers, some for splits. comm_alloc allocates from the rest,
 * with the workers' memory in one range. Buffers from there are summed in place; other buffers go
 * through bounce buffers.
 *
 * The memfd outlives a generation of the job. Each worker resets its own peer_ctl when it joins,
 * with the generation as its tag, and waits for the others' tags. So no value of an earlier
 * generation is mistaken for a new one. The memfd has no name: only processes that inherit it, and
 * processes that may trace such a process, reach it.
 *
 * comm_shm is the whole transport of HOST on one node (comm_shm_ops). With several nodes it is the
 * level inside a node, below comm_nodes: workers reduce inside each node, exchange their parts with
 * the workers of the same local number on other nodes, and gather inside each node. */
#ifndef CONVOY_COMM_COMM_SHM_H
#define CONVOY_COMM_COMM_SHM_H

#include "comm/shm/coll.h"

#define COMM_SHM_LOCALS_MAX 64 /* most workers of a node */

struct comm_shm;

extern const struct transport_ops comm_shm_ops;

/* comm_shm_open — maps the memory, for a transport's begin_open. `owner` (borrowed until close)
 * supplies place, deadline, abort flag, wait policy, and the rank numbers in messages. shm_fd may
 * be -1 with one worker. */
enum status comm_shm_open(struct comm_ctx *owner, struct comm_shm **out);
/* comm_shm_join — waits for the node's other workers of owner->generation, for a transport's
 * end_open. */
enum status comm_shm_join(struct comm_shm *shm);
void comm_shm_close(struct comm_shm *shm); /* accepts NULL */

/* comm_shm_split — implements a transport's split with locals > 1, for the members on this node.
 * owner: the split's ctx. shm: its parent's. Waits for the members. Close it before `shm`. */
enum status comm_shm_split(struct comm_shm *shm, struct comm_ctx *owner, struct comm_shm **out);

/* comm_shm_alloc — implements alloc of struct transport_ops: returns this worker's memory; waits
 * for the others. shm NULL: one worker, which shares no memory. */
enum status comm_shm_alloc(struct comm_shm *shm, int64_t bytes, void **out);

/* The level of a collective inside a node. All workers of the node call the same function. call:
 * the call that comm.c passed, with in and out of call->elems elements on every worker. partition:
 * among the node's workers. */

/* comm_shm_reduce — does shm_coll_reduce among the workers of the node. */
enum status comm_shm_reduce(struct comm_shm *shm, const struct comm_call *call,
                            const struct shm_coll_partition *partition, void *out,
                            enum dtype dtype_out);
/* comm_shm_gather — does shm_coll_gather among the workers of the node. */
enum status comm_shm_gather(struct comm_shm *shm, const struct comm_call *call,
                            const struct shm_coll_partition *partition, const void *in);
/* comm_shm_broadcast — copies call->in of the worker with local number `root` to call->out of the
 * others. */
enum status comm_shm_broadcast(struct comm_shm *shm, const struct comm_call *call, int root);

#endif
