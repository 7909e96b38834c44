/* p2p_gpu — large collectives between buffers in GPUs' memory, if every rank's UCX has CUDA: it
 * reads and writes GPU memory directly, without a copy through the host's. The UCX that the release
 * links has no CUDA; there comm stages.
 *
 * The chunks, their order and the tree of sums are p2p_pipeline.h's; slots lie on the GPU, which
 * adds (kernels/combine.h). Nodes with several workers use two levels (p2p_two_level.h). Inside a
 * node the workers exchange chunks over UCX, which takes NVLink there. So the sums have the bits of
 * host memory. UCX knows nothing of streams: what it reads must be finished before it gets it, and
 * what it has received is visible to every kernel launched afterwards.
 *
 * Memory on the GPU: slots of about 64 MiB for each pipeline; with several workers a node also a
 * rail, allocated at the first call and when one is larger. Must not know small calls, how a call
 * begins, nor how failures are named. */
#ifndef CONVOY_COMM_P2P_GPU_H
#define CONVOY_COMM_P2P_GPU_H

#include "comm/core/transport.h"
#include "comm/p2p/p2p_two_level.h"

/* Zeroed: none. */
struct p2p_gpu {
    struct p2p_memory memory;
    struct p2p_pipeline flat;       /* one worker a node: between the nodes */
    struct p2p_two_level two_level; /* several workers per node */
    struct p2p_pipeline intra;      /* …the workers of this node */
    int *intra_ranks;               /* p2p_rank of intra */
};

/* p2p_gpu_open — on place and device of the ctx. p2p_rank: p2p's rank of each member, node by
 * node. */
enum status p2p_gpu_open(struct p2p_gpu *gpu, const struct comm_ctx *ctx, struct p2p *p2p,
                         int group, const int *p2p_rank);
/* p2p_gpu_close — accepts a zeroed one. Before p2p_close, after p2p_abort. */
void p2p_gpu_close(struct p2p_gpu *gpu);

/* p2p_gpu_begin — waits until the device has done what the call comes after.
 * p2p_gpu_end — waits until the device has done its part of the call.
 * Errors: those of the device and of transport_check. */
enum status p2p_gpu_begin(struct p2p_gpu *gpu, const struct comm_ctx *ctx,
                          const struct comm_call *call);
enum status p2p_gpu_end(struct p2p_gpu *gpu, const struct comm_ctx *ctx);

#endif
