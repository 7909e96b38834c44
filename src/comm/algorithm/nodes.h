/* nodes — declarations that the files of the transport between nodes share. Only they include
 * it. */
#ifndef CONVOY_COMM_NODES_H
#define CONVOY_COMM_NODES_H

#include "comm/core/transport.h"
#include "comm/shm/shm.h"
#include "comm/algorithm/two_level.h"
#include "comm/algorithm/direct.h"
#include "comm/algorithm/eager.h"

/* The memory that several workers of a node share (shm/shm.h). Zeroed: none. */
struct comm_nodes_shm {
    struct comm_shm *shm;        /* NULL: one worker per node */
    struct part_extent *extents; /* locals × nodes: the rail of each worker */
};

/* ---- large calls between GPUs' memory (gpu.c) ---- */

/* Zeroed: none. */
struct comm_gpu {
    struct comm_memory memory;
    struct comm_direct flat;         /* one worker per node: between the nodes */
    struct comm_two_level two_level; /* several workers per node */
    struct comm_direct intra;        /* several: the workers of this node */
    int *intra_ranks;                /* root_rank of intra */
};

/* comm_gpu_open — opens with place and device of the ctx. root_rank: each member's rank in the
 * root, node by node. */
enum status comm_gpu_open(struct comm_gpu *gpu, const struct comm_ctx *ctx,
                          struct messenger *messenger, int group, const int *root_rank);
/* comm_gpu_close — accepts a zeroed struct. Call it before messenger_close, after
 * messenger_abort. */
void comm_gpu_close(struct comm_gpu *gpu);

/* comm_gpu_begin — waits until the device has finished the work that precedes the call. Errors of
 * this function and the next: the errors of the device and of transport_check. */
enum status comm_gpu_begin(struct comm_gpu *gpu, const struct comm_ctx *ctx,
                           const struct comm_call *call);
/* comm_gpu_end — waits until the device has done its part of the call. */
enum status comm_gpu_end(struct comm_gpu *gpu, const struct comm_ctx *ctx);

/* ---- small sums of ranks that share cores (star.c) ---- */

#define COMM_STAR_ROOT 0
#define COMM_STAR_RANKS_MAX 16

/* comm_star_gather — collects the content of every rank. The root returns when all content has
 * arrived (comm_eager_received), the other ranks when theirs is on its way.
 * content: `bytes` bytes, not read on the root. Errors of this function and the next: the errors of
 * messenger_progress; ST_BUG: a rank is in another call. */
enum status comm_star_gather(struct comm_eager *eager, const struct comm_ctx *ctx,
                             const struct comm_call *call, const void *content, int64_t bytes,
                             struct message_wait *wait);
/* comm_star_scatter — sends the first `bytes` of the root's comm_eager_to_send(eager, root) to all;
 * the others return when the bytes have arrived (comm_eager_received of the root). */
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
    int64_t star_max;          /* -1: no call uses the star */
    const void **sources;      /* n: scratch */
    struct part_extent *parts; /* n: parts of the call in progress */
    struct comm_eager eager;
    struct comm_direct direct;
    struct comm_two_level two_level; /* several workers on each node */
    struct comm_nodes_shm shm;       /* several workers: of this node */
    struct comm_gpu gpu;             /* a GPU's memory, if UCX moves it; else zeroed */
};

/* comm_nodes_wait — returns how the call in progress waits. */
struct message_wait comm_nodes_wait(struct comm_ctx *ctx);
/* comm_nodes_finish — ends every entry: counts bytes; after a failure ends all messages and reports
 * the rank that caused it. */
enum status comm_nodes_finish(struct comm_ctx *ctx, enum status st);

/* ---- entries of the table (transport.h) ---- */

/* comm_nodes_open_begin — opens the messenger and packs its address. Does not wait for peers. */
enum status comm_nodes_open_begin(struct comm_ctx *ctx, void *address, int64_t *address_bytes);
/* comm_nodes_open_end — connects to all ranks, and maps the memory that workers of this node
 * share. */
enum status comm_nodes_open_end(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes);
/* comm_nodes_open_split — opens a split on the connections of its parent. Waits for its members. */
enum status comm_nodes_open_split(struct comm_ctx *ctx);
/* comm_nodes_open_close — frees the state; a root also closes its connections. Accepts a ctx
 * without state. */
void comm_nodes_open_close(struct comm_ctx *ctx);

#endif
