/* comm_p2p_inside — what comm_p2p.c, comm_p2p_open.c, comm_p2p_pair.c, p2p_gpu.c and p2p_star.c
 * share. Only they include it. */
#ifndef CONVOY_COMM_COMM_P2P_INSIDE_H
#define CONVOY_COMM_COMM_P2P_INSIDE_H

#include "comm/core/transport.h"
#include "comm/shm/shm.h"
#include "comm/algorithm/two_level.h"
#include "comm/algorithm/direct.h"
#include "comm/algorithm/eager.h"

/* Several workers on a node: the memory that they share (comm_shm.h). Zeroed: none. */
struct p2p_shm {
    struct comm_shm *shm;        /* NULL: one worker a node */
    struct part_extent *extents; /* locals × nodes: the rail of each worker */
};

/* ---- large calls between GPUs' memory (p2p_gpu.c) ---- */

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

/* ---- small sums of ranks that share cores (p2p_star.c) ---- */

#define P2P_STAR_ROOT 0
#define P2P_STAR_RANKS_MAX 16

/* p2p_star_gather — the root returns when the content of every rank is there
 * (p2p_eager_received), all others when theirs is on its way.
 * p2p_star_scatter — the root sends the first `bytes` of p2p_eager_to_send(eager, root) to all; the
 * others return when they have come (p2p_eager_received of the root).
 * content: `bytes` bytes, not read on the root. Errors: those of p2p_progress; ST_BUG: a rank is in
 * another call. */
enum status p2p_star_gather(struct p2p_eager *eager, const struct comm_ctx *ctx,
                            const struct comm_call *call, const void *content, int64_t bytes,
                            struct p2p_wait *wait);
enum status p2p_star_scatter(struct p2p_eager *eager, const struct comm_ctx *ctx, int64_t bytes,
                             struct p2p_wait *wait);

/* ---- the state of a comm ---- */

/* The connections of one worker, shared by all comms split from one root. */
struct comm_p2p_root {
    struct p2p *p2p;
    int group_next;
    bool shares_cores;          /* p2p_shares_cores */
    char backend[16], name[80]; /* what carries the bytes; the same with details */
};

struct comm_p2p {
    struct comm_p2p_root *root;
    bool owns_root;
    bool was_cancelled; /* the watch ended the wait, not the transport */
    int n, me;
    int *p2p_rank; /* rank in p2p of each member */
    int64_t eager_max, whole_max;
    int64_t star_max;          /* -1: no call goes over the star */
    const void **sources;      /* n: scratch */
    struct part_extent *parts; /* n: of the call under way */
    struct p2p_eager eager;
    struct p2p_pipeline pipeline;
    struct p2p_two_level two_level; /* several workers on each node */
    struct p2p_shm shm;             /* …of this node */
    struct p2p_gpu gpu;             /* a GPU's memory, if UCX moves it; else zeroed */
};

/* comm_p2p_wait — how the call under way waits.
 * comm_p2p_finish — the end of every entry: counts bytes; after a failure ends all messages and
 * names the rank that caused it. */
struct p2p_wait comm_p2p_wait(struct comm_ctx *ctx);
enum status comm_p2p_finish(struct comm_ctx *ctx, enum status st);

/* Entries of the table (transport.h). */
enum status comm_p2p_open_begin(struct comm_ctx *ctx, void *address, int64_t *address_bytes);
enum status comm_p2p_open_end(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes);
enum status comm_p2p_open_split(struct comm_ctx *ctx);
void comm_p2p_open_close(struct comm_ctx *ctx);
enum status comm_p2p_pair_send(struct comm_ctx *ctx, const struct comm_call *call);
enum status comm_p2p_pair_recv(struct comm_ctx *ctx, const struct comm_call *call);

#endif
