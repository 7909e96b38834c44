/* comm_direct — collectives between buffers in GPUs' memory, which UCX moves as it is: no copy
 * through the host's.
 *
 * Design. The pieces, their order and the tree of sums are flow.h's; slots lie on the device, which
 * adds (kernels/combine.h). Nodes with several workers first add inside the node, part by part,
 * then the workers of equal number between the nodes, then what is finished comes together inside
 * each node: as comm_rows does it, but over UCX, which takes NVLink there. So the sums are the same
 * bits as those of host memory. UCX knows nothing of streams: what it reads must be done when it is
 * given to it, and what came is there for every kernel that is launched afterwards.
 *
 * Memory: slots of 64 MiB or so for each flow, and where nodes have several workers a row: the
 * call's buffer through the number of workers, twice for BF16, taken at the first call and when one
 * is larger. Must not know small calls, how a call begins, nor what fails how. */
#ifndef CONVOY_COMM_COMM_DIRECT_H
#define CONVOY_COMM_COMM_DIRECT_H

#include "comm/comm_ops.h"
#include "comm/flow.h"

/* Zeroed: none. */
struct comm_direct {
    struct dev *dev;
    struct stream *stream; /* copies and sums */
    int nodes, node, locals, local;
    /* between the nodes, the workers of this one's number; the workers of this node */
    struct flow line, inside;
    int *line_world, *inside_world;
    struct order_extent *parts, *row_parts; /* ranks: of the call's buffer; nodes: of the row */
    char *row;
    int64_t row_elems, row_bytes; /* of the call under way; taken */
};

/* comm_direct_open — on place and device of the wire. world: ucx's rank of each member, node by
 * node. */
enum status comm_direct_open(struct comm_direct *d, const struct comm_wire *wire, struct ucx *ucx,
                             int group, const int *world);
/* accepts a zeroed one; before ucx_close, after ucx_break */
void comm_direct_close(struct comm_direct *d);

/* comm_direct_begin — until the device has done what the call comes after, and all is ready for it.
 * comm_direct_run — the call; `turn` and `arg` as in flow_call. comm_direct_end — until the device
 * has done its part. Errors: those of the device, of flow_run and comm_ops_check. */
enum status comm_direct_begin(struct comm_direct *d, const struct comm_wire *wire,
                              const struct comm_call *call);
enum status comm_direct_run(struct comm_direct *d, const struct comm_call *call,
                            enum status (*turn)(void *arg), void *arg, struct ucx_wait *wait);
enum status comm_direct_end(struct comm_direct *d, const struct comm_wire *wire);

#endif
