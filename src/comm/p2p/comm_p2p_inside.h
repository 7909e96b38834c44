/* comm_p2p_inside — what comm_p2p.c, comm_p2p_open.c and comm_p2p_pair.c share. Only they include
 * it. */
#ifndef CONVOY_COMM_COMM_P2P_INSIDE_H
#define CONVOY_COMM_COMM_P2P_INSIDE_H

#include "comm/p2p/p2p_gpu.h"
#include "comm/p2p/p2p_shm.h"
#include "comm/core/transport.h"
#include "comm/p2p/p2p_two_level.h"
#include "comm/p2p/p2p_pipeline.h"
#include "comm/p2p/p2p_eager.h"
#include "comm/p2p/p2p_star.h"

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
