/* comm_share — the mapping that the workers of one node share, and their collectives in it.
 *
 * The supervisor gives its workers one memfd (comm_config.share_fd); its first part holds the seats
 * of a hall (and of some more, for groups), the rest is what comm_alloc deals out, each worker's
 * piece beside the others'. Buffers from there are added straight from all workers' pieces; others
 * go over stages. A memfd outlives a generation of the job: every worker makes its own seat new
 * when it joins, with the generation as its tag, and waits for the others' tags, so no word of an
 * earlier life counts.
 *
 * It is the whole transport for ucx with one node (comm_share_ops), and below comm_ucx the part
 * inside a node: a reduction first adds inside each node, each worker getting its cut of the sum,
 * goes between nodes among the workers of equal `local`, and is then gathered inside the node. Must
 * not know networks. */
#ifndef CONVOY_COMM_COMM_SHARE_H
#define CONVOY_COMM_COMM_SHARE_H

#include "comm/comm_moves.h"

#define COMM_SHARE_LOCALS_MAX 64 /* workers of a node */

struct comm_share;

extern const struct comm_ops comm_share_ops;

/* For a transport's begin_open, end_open, close: `owner` (borrowed until close) gives place,
 * deadline, abort flag, spins and the numbers of ranks in messages. open: maps; with one worker
 * share_fd may be -1. join: waits for the node's other workers of owner->config.generation. */
enum status comm_share_open(struct comm_wire *owner, struct comm_share **out);
enum status comm_share_join(struct comm_share *share);
void comm_share_close(struct comm_share *share); /* accepts NULL */

/* comm_share_sub — for a transport's sub whose place has locals > 1: those of its members that are
 * on this node. `owner` is the sub's wire, `share` its parent's. Waits for them. Closed before
 * `share`. */
enum status comm_share_sub(struct comm_share *share, struct comm_wire *owner,
                           struct comm_share **out);

/* comm_share_alloc — comm_alloc: this worker's piece; waits for the others. Lies in the mapping
 * until close. */
enum status comm_share_alloc(struct comm_share *share, int64_t bytes, void **out);
/* comm_share_range — where the mapping lies in this process, to register it with a network device
 * once. */
void comm_share_range(const struct comm_share *share, void **data, int64_t *bytes);

/* The parts inside a node of a collective under way, all its workers calling the same. call: what
 * comm.c gave, its `in` and `out` (elems in all) on every worker. As comm_moves_reduce,
 * comm_moves_gather: cut deals among the node's workers; root: a local number. */
enum status comm_share_reduce(struct comm_share *share, const struct comm_call *call,
                              const struct comm_moves_cut *cut, void *out, enum dtype dtype_out);
enum status comm_share_gather(struct comm_share *share, const struct comm_call *call,
                              const struct comm_moves_cut *cut, const void *in);
enum status comm_share_broadcast(struct comm_share *share, const struct comm_call *call, int root);
enum status comm_share_barrier(struct comm_share *share, const struct comm_call *call);

/* Between two of this node: peer is a local number. Others of the node need not take part. */
enum status comm_share_send(struct comm_share *share, const struct comm_call *call, int to);
enum status comm_share_recv(struct comm_share *share, const struct comm_call *call, int from);

#endif
