/* nodes — the transport between nodes as its own files share it. Only they include it. */
#ifndef CONVOY_COMM_NODES_H
#define CONVOY_COMM_NODES_H

#include "comm/core/transport.h"
#include "comm/shm/shm.h"
#include "comm/algorithm/two_level.h"
#include "comm/algorithm/direct.h"
#include "comm/algorithm/eager.h"

/* Several workers on a node: the memory that they share (shm/shm.h). Zeroed: none. */
struct comm_nodes_shm {
    struct comm_shm *shm;        /* NULL: one worker a node */
    struct part_extent *extents; /* locals × nodes: the rail of each worker */
};

/* ---- large calls between GPUs' memory (gpu.c) ---- */

/* Zeroed: none. */
struct comm_gpu {
    struct comm_memory memory;
    struct comm_direct flat;         /* one worker a node: between the nodes */
    struct comm_two_level two_level; /* several workers per node */
    struct comm_direct intra;        /* …the workers of this node */
    int *intra_ranks;                /* root_rank of intra */
};

/* comm_gpu_open — on place and device of the ctx. root_rank: each member's rank in the root, node
 * by node. */
enum status comm_gpu_open(struct comm_gpu *gpu, const struct comm_ctx *ctx,
                          struct messenger *messenger, int group, const int *root_rank);
/* comm_gpu_close — accepts a zeroed one. Before messenger_close, after messenger_abort. */
void comm_gpu_close(struct comm_gpu *gpu);

/* comm_gpu_begin — waits until the device has done what the call comes after.
 * comm_gpu_end — waits until the device has done its part of the call.
 * Errors: those of the device and of transport_check. */
enum status comm_gpu_begin(struct comm_gpu *gpu, const struct comm_ctx *ctx,
                           const struct comm_call *call);
enum status comm_gpu_end(struct comm_gpu *gpu, const struct comm_ctx *ctx);

/* ---- small sums of ranks that share cores (star.c) ---- */

#define COMM_STAR_ROOT 0
#define COMM_STAR_RANKS_MAX 16

/* comm_star_gather — the root returns when the content of every rank is there
 * (comm_eager_received), all others when theirs is on its way.
 * comm_star_scatter — the root sends the first `bytes` of comm_eager_to_send(eager, root) to all;
 * the others return when they have come (comm_eager_received of the root).
 * content: `bytes` bytes, not read on the root. Errors: those of messenger_progress; ST_BUG: a rank
 * is in another call. */
enum status comm_star_gather(struct comm_eager *eager, const struct comm_ctx *ctx,
                             const struct comm_call *call, const void *content, int64_t bytes,
                             struct message_wait *wait);
enum status comm_star_scatter(struct comm_eager *eager, const struct comm_ctx *ctx, int64_t bytes,
                              struct message_wait *wait);

/* ---- the state of a comm ---- */

/* The connections of one worker, shared by all comms split from one root. */
struct comm_nodes_root {
    struct messenger *messenger;
    int group_next;
    bool shares_cores; /* messenger_shares_cores */
};

struct comm_nodes {
    struct comm_nodes_root *root;
    bool owns_root;
    bool was_cancelled; /* the watch ended the wait, not the transport */
    int n, me;
    int *root_rank; /* each member's rank in the root */
    int64_t eager_max, whole_max;
    int64_t star_max;          /* -1: no call goes over the star */
    const void **sources;      /* n: scratch */
    struct part_extent *parts; /* n: of the call under way */
    struct comm_eager eager;
    struct comm_direct direct;
    struct comm_two_level two_level; /* several workers on each node */
    struct comm_nodes_shm shm;       /* …of this node */
    struct comm_gpu gpu;             /* a GPU's memory, if UCX moves it; else zeroed */
};

/* comm_nodes_wait — how the call under way waits.
 * comm_nodes_finish — the end of every entry: counts bytes; after a failure ends all messages and
 * names the rank that caused it. */
struct message_wait comm_nodes_wait(struct comm_ctx *ctx);
enum status comm_nodes_finish(struct comm_ctx *ctx, enum status st);

/* Entries of the table (transport.h). */
enum status comm_nodes_open_begin(struct comm_ctx *ctx, void *address, int64_t *address_bytes);
enum status comm_nodes_open_end(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes);
enum status comm_nodes_open_split(struct comm_ctx *ctx);
void comm_nodes_open_close(struct comm_ctx *ctx);

#endif
