/* p2p_pipeline — a large call between n ranks over p2p, in chunks.
 *
 * Each rank owns a part of the buffer (part_extent). Everybody sends chunk after chunk of what it
 * has of a part straight to the part's owner, beginning with the next rank, so that not all send to
 * one. The owner adds the n contributions of a chunk in the order of sum_tree.h as soon as all are
 * there, while the next chunks travel, and sends the finished chunk to all at once. All streams
 * move in one loop; a few chunks of each are under way, which bounds the memory. So every byte
 * crosses the wire twice (once to the owner, once from it), in both directions at the same time.
 *
 * Pieces are so small that UCX sends them without asking the receiver. So that not too much comes
 * before it is expected, a chunk is sent when the one P2P_PIPELINE_DEPTH before it is known to have
 * been used: its finished chunk came back. Where none comes (a part that only its owner wants), or
 * nothing is added (parts that are finished already), an empty message stands for it. Asking for
 * each chunk instead takes a round trip of ranks that share cores: four on two of them, over TCP,
 * took 30 ms for 16 MiB, and take 18.
 *
 * Buffers may lie in the memory of a device, where UCX reaches it: then the slots do too, the
 * device adds, and chunks are so large that UCX asks the receiver for each and moves it between the
 * two memories at once.
 *
 * In place: a finished chunk may lie where its contribution was sent from, for the owner finishes
 * it only after it has received that. Must not know comm's calls, nor what fails how. */
#ifndef CONVOY_COMM_P2P_PIPELINE_H
#define CONVOY_COMM_P2P_PIPELINE_H

#include <stdbool.h>

#include "comm/core/part.h"
#include "comm/p2p/p2p.h"
#include "comm/p2p/p2p_memory.h"

#define P2P_PIPELINE_DEPTH 4 /* chunks of one stream under way */

/* Who takes part, and the memory that lasts from call to call. Zeroed: none. */
struct p2p_pipeline {
    struct p2p *p2p;
    int group;
    const int *world; /* p2p's rank of each member */
    int n, me;
    int nodes, locals;        /* the order of sums */
    struct p2p_memory memory; /* where the buffers lie, and what adds there */
    int64_t chunk_bytes;      /* at most; from the host UCX sends so many bytes without asking */
    struct p2p_pipeline_peer *peers; /* n */
    char *slots; /* P2P_PIPELINE_DEPTH × n chunks: contributions to this rank's part */
    int64_t slots_bytes;
    const void **sources; /* n: scratch */
    int64_t bytes_sent;
};

/* p2p_pipeline_open — takes memory for the ranks. chunk_bytes: of one chunk, a multiple of 1024. */
enum status p2p_pipeline_open(struct p2p_pipeline *pipeline, int64_t chunk_bytes);
void p2p_pipeline_free(struct p2p_pipeline *pipeline); /* accepts a zeroed one */

struct p2p_pipeline_call {
    const char *in; /* all parts; NULL: own_out holds this rank's part already, nothing is added */
    /* all parts: the finished ones of the others come here; NULL: they do not travel */
    char *out;
    char *own_out;                   /* this rank's part */
    const struct part_extent *parts; /* n: of each rank, in `in` and `out` */
    /* every part is the whole: each rank adds up all by itself; out NULL, own_out == in allowed */
    bool is_whole;
    enum dtype dtype, dtype_out; /* of in; of the finished parts: the same, or BF16 from F32 */
    int64_t sequence;
    /* called in each turn, to look after what else is under way */
    enum status (*poll)(void *arg);
    void *arg;
};
/* p2p_pipeline_run — returns when the call's buffers are the caller's again. Errors: those of
 * p2p_progress and turn. */
enum status p2p_pipeline_run(struct p2p_pipeline *pipeline, const struct p2p_pipeline_call *call,
                             struct p2p_wait *wait);

/* p2p_pipeline_all_to_all — part p of in (elems each) to rank p, part r of out from rank r,
 * whole. */
enum status p2p_pipeline_all_to_all(struct p2p_pipeline *pipeline,
                                    const struct p2p_pipeline_call *call, int64_t elems,
                                    struct p2p_wait *wait);

/* p2p_pipeline_broadcast — out of the rank `root` to all, from rank to rank. bytes at data. */
enum status p2p_pipeline_broadcast(struct p2p_pipeline *pipeline,
                                   const struct p2p_pipeline_call *call, int64_t bytes, int root,
                                   struct p2p_wait *wait);

#endif
