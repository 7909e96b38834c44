/* comm_rows — a large call over several nodes of several workers each.
 *
 * First the workers of a node add among themselves in the memory they share, each getting its cut:
 * the parts of all ranks of its own number. The cuts then go between the nodes, among the workers
 * of equal number, each the row of a flow. At last the finished rows come together inside each
 * node. So what leaves a node is a buffer, not one for each worker. BF16 sums stay in fp32 until
 * the nodes' sums are added, and are rounded once. Must not know small calls. */
#ifndef CONVOY_COMM_COMM_ROWS_H
#define CONVOY_COMM_COMM_ROWS_H

#include "comm/comm_share.h"
#include "comm/flow.h"

/* Zeroed: none. */
struct comm_rows {
    /* the workers of this node; NULL: one worker, nothing here is called */
    struct comm_share *share;
    int nodes, node, locals, local;
    struct flow line; /* the workers of this one's number, by node */
    int *line_world;
    struct order_extent *extents; /* locals × nodes: the cut */
    struct order_extent *parts;   /* nodes: where they lie in the row */
    /* this worker's cut: sums of the node, behind them the finished ones if of another size */
    char *row;
    int64_t row_elems, row_bytes; /* of the call under way; taken */
    struct comm_moves_cut cut;    /* of the call under way */
    const char *finished;         /* its row of finished parts */
};

/* comm_rows_open — over share (taken: closed by comm_rows_free). world: ucx's rank of each member,
 * node by node. */
enum status comm_rows_open(struct comm_rows *rows, struct comm_share *share,
                           const struct comm_place *place, struct ucx *ucx, int group,
                           const int *world, int64_t piece_bytes);
void comm_rows_free(struct comm_rows *rows); /* accepts a zeroed one */

/* Inside and between the nodes; then, when all ranks are known to be in the call (so that nobody
 * here is taken for missing who only waits for another node), comm_rows_end: together inside each
 * node. base: sequence, turn and arg of the flow. Errors: those of flow_run and comm_share. */
enum status comm_rows_all_reduce(struct comm_rows *rows, const struct comm_call *call,
                                 struct flow_call base, struct ucx_wait *wait);
enum status comm_rows_reduce_scatter(struct comm_rows *rows, const struct comm_call *call,
                                     struct flow_call base, struct ucx_wait *wait);
enum status comm_rows_all_gather(struct comm_rows *rows, const struct comm_call *call,
                                 struct flow_call base, struct ucx_wait *wait);
enum status comm_rows_broadcast(struct comm_rows *rows, const struct comm_call *call,
                                struct flow_call base, struct ucx_wait *wait);
enum status comm_rows_end(struct comm_rows *rows, const struct comm_call *call);

#endif
