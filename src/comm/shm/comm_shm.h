/* comm_shm — the mapping that the workers of one node share, and their collectives in it.
 *
 * The supervisor gives its workers one memfd (comm_config.shm_fd); its first part holds the seats
 * of a hall (and of some more, for groups), the rest is what comm_alloc deals out, each worker's
 * piece beside the others'. Buffers from there are added straight from all workers' pieces; others
 * go over stages. A memfd outlives a generation of the job: every worker makes its own seat new
 * when it joins, with the generation as its tag, and waits for the others' tags, so no word of an
 * earlier life counts.
 *
 * It is the whole transport for ucx with one node (comm_shm_ops), and below comm_p2p the part
 * inside a node: a reduction first adds inside each node, each worker getting its cut of the sum,
 * goes between nodes among the workers of equal `local`, and is then gathered inside the node. Must
 * not know networks. */
#ifndef CONVOY_COMM_COMM_SHM_H
#define CONVOY_COMM_COMM_SHM_H

#include "comm/shm/shm_coll.h"

#define COMM_SHM_LOCALS_MAX 64 /* workers of a node */

struct comm_shm;

extern const struct transport_ops comm_shm_ops;

/* For a transport's begin_open, end_open, close: `owner` (borrowed until close) gives place,
 * deadline, abort flag, spins and the numbers of ranks in messages. open: maps; with one worker
 * shm_fd may be -1. join: waits for the node's other workers of owner->config.generation. */
enum status comm_shm_open(struct comm_ctx *owner, struct comm_shm **out);
enum status comm_shm_join(struct comm_shm *shm);
void comm_shm_close(struct comm_shm *shm); /* accepts NULL */

/* comm_shm_split — for a transport's sub whose place has locals > 1: those of its members that are
 * on this node. `owner` is the sub's wire, `share` its parent's. Waits for them. Closed before
 * `share`. */
enum status comm_shm_split(struct comm_shm *shm, struct comm_ctx *owner, struct comm_shm **out);

/* comm_shm_alloc — comm_alloc: this worker's piece; waits for the others. Lies in the mapping
 * until close. */
enum status comm_shm_alloc(struct comm_shm *shm, int64_t bytes, void **out);
/* comm_shm_range — where the mapping lies in this process, to register it with a network device
 * once. */
void comm_shm_range(const struct comm_shm *shm, void **data, int64_t *bytes);

/* The parts inside a node of a collective under way, all its workers calling the same. call: what
 * comm.c gave, its `in` and `out` (elems in all) on every worker. As shm_coll_reduce,
 * shm_coll_gather: cut deals among the node's workers; root: a local number. */
enum status comm_shm_reduce(struct comm_shm *shm, const struct comm_call *call,
                            const struct shm_coll_partition *partition, void *out,
                            enum dtype dtype_out);
enum status comm_shm_gather(struct comm_shm *shm, const struct comm_call *call,
                            const struct shm_coll_partition *partition, const void *in);
enum status comm_shm_broadcast(struct comm_shm *shm, const struct comm_call *call, int root);
enum status comm_shm_barrier(struct comm_shm *shm, const struct comm_call *call);

/* Between two of this node: peer is a local number. Others of the node need not take part. */
enum status comm_shm_send(struct comm_shm *shm, const struct comm_call *call, int to);
enum status comm_shm_recv(struct comm_shm *shm, const struct comm_call *call, int from);

#endif
