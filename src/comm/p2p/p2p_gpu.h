/* p2p_gpu — collectives between buffers in GPUs' memory, which UCX moves as it is: no copy
 * through the host's.
 *
 * Design. The chunks, their order and the tree of sums are p2p_pipeline.h's; slots lie on the
 * device, which adds (kernels/combine.h). Nodes with several workers first add inside the node,
 * part by part, then the workers of equal number between the nodes, then what is finished comes
 * together inside each node: as p2p_two_level does it, but over UCX, which takes NVLink there. So
 * the sums are the same bits as those of host memory. UCX knows nothing of streams: what it reads
 * must be done when it is given to it, and what came is there for every kernel that is launched
 * afterwards.
 *
 * Memory: slots of 64 MiB or so for each pipeline, and where nodes have several workers a rail: the
 * call's buffer through the number of workers, twice for BF16, taken at the first call and when one
 * is larger. Must not know small calls, how a call begins, nor what fails how. */
#ifndef CONVOY_COMM_P2P_GPU_H
#define CONVOY_COMM_P2P_GPU_H

#include "comm/core/transport.h"
#include "comm/p2p/p2p_pipeline.h"

/* Zeroed: none. */
struct p2p_gpu {
    struct dev *dev;
    struct stream *stream; /* copies and sums */
    int nodes, node, locals, local;
    /* between the nodes, the workers of this one's number; the workers of this node */
    struct p2p_pipeline inter, intra;
    int *inter_world, *intra_world;
    struct part_extent *parts, *rail_parts; /* ranks: of the call's buffer; nodes: of the rail */
    char *rail;
    int64_t rail_elems, rail_bytes; /* of the call under way; taken */
};

/* p2p_gpu_open — on place and device of the wire. world: p2p's rank of each member, node by
 * node. */
enum status p2p_gpu_open(struct p2p_gpu *d, const struct comm_ctx *ctx, struct p2p *p2p, int group,
                         const int *world);
/* accepts a zeroed one; before p2p_close, after p2p_abort */
void p2p_gpu_close(struct p2p_gpu *d);

/* p2p_gpu_begin — until the device has done what the call comes after, and all is ready for it.
 * p2p_gpu_run — the call; `poll` and `arg` as in p2p_pipeline_call. p2p_gpu_end — until the device
 * has done its part. Errors: those of the device, of p2p_pipeline_run and transport_check. */
enum status p2p_gpu_begin(struct p2p_gpu *d, const struct comm_ctx *ctx,
                          const struct comm_call *call);
enum status p2p_gpu_run(struct p2p_gpu *d, const struct comm_call *call,
                        enum status (*poll)(void *arg), void *arg, struct p2p_wait *wait);
enum status p2p_gpu_end(struct p2p_gpu *d, const struct comm_ctx *ctx);

#endif
