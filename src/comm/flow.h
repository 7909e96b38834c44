/* flow — a large call between n ranks over ucx, in pieces.
 *
 * Each rank owns a part of the buffer (order_extent). Everybody sends piece after piece of what it
 * has of a part straight to the part's owner, beginning with the next rank, so that not all send to
 * one. The owner adds the n contributions of a piece in the order of order.h as soon as all are
 * there, while the next pieces travel, and sends the finished piece to all at once. All streams
 * move in one loop; a few pieces of each are under way, which bounds the memory. So every byte
 * crosses the wire twice (once to the owner, once from it), in both directions at the same time.
 *
 * Pieces are so small that UCX sends them without asking the receiver. So that not too much comes
 * before it is expected, a piece is sent when the one FLOW_DEPTH before it is known to have been
 * used: its finished piece came back. Where none comes (a part that only its owner wants), or
 * nothing is added (parts that are finished already), an empty message stands for it. Asking for
 * each piece instead takes a round trip of ranks that share cores: four on two of them, over TCP,
 * took 30 ms for 16 MiB, and take 18.
 *
 * Buffers may lie in the memory of a device, where UCX reaches it: then the slots do too, the
 * device adds, and pieces are so large that UCX asks the receiver for each and moves it between the
 * two memories at once.
 *
 * In place: a finished piece may lie where its contribution was sent from, for the owner finishes
 * it only after it has received that. Must not know comm's calls, nor what fails how. */
#ifndef CONVOY_COMM_FLOW_H
#define CONVOY_COMM_FLOW_H

#include <stdbool.h>

#include "comm/order.h"
#include "comm/ucx.h"
#include "dev/dev.h"
#include "kernels/tensor.h"

#define FLOW_DEPTH 4 /* pieces of one stream under way */

/* Who takes part, and the memory that lasts from call to call. Zeroed: none. */
struct flow {
    struct ucx *ucx;
    int group;
    const int *world; /* ucx's rank of each member */
    int n, me;
    int nodes, locals;       /* the order of sums */
    struct dev *dev;         /* whose memory the buffers lie in; NULL: the host's */
    struct stream *stream;   /* …and who adds there */
    int64_t piece_bytes;     /* at most; from the host UCX sends so many bytes without asking */
    struct flow_peer *peers; /* n */
    char *slots;             /* FLOW_DEPTH × n pieces: contributions to this rank's part */
    int64_t slots_bytes;
    const void **sources; /* n: scratch */
    int64_t bytes_sent;
};

/* flow_open — takes memory for the ranks. piece_bytes: of one piece, a multiple of 1024. */
enum status flow_open(struct flow *flow, int64_t piece_bytes);
void flow_free(struct flow *flow); /* accepts a zeroed one */

struct flow_call {
    const char *in; /* all parts; NULL: own_out holds this rank's part already, nothing is added */
    /* all parts: the finished ones of the others come here; NULL: they do not travel */
    char *out;
    char *own_out;                    /* this rank's part */
    const struct order_extent *parts; /* n: of each rank, in `in` and `out` */
    /* every part is the whole: each rank adds up all by itself; out NULL, own_out == in allowed */
    bool is_whole;
    enum dtype dtype, dtype_out; /* of in; of the finished parts: the same, or BF16 from F32 */
    int64_t sequence;
    /* called in each turn, to look after what else is under way */
    enum status (*turn)(void *arg);
    void *arg;
};
/* flow_run — returns when the call's buffers are the caller's again. Errors: those of ucx_pump and
 * turn. */
enum status flow_run(struct flow *flow, const struct flow_call *call, struct ucx_wait *wait);

/* flow_swap — part p of in (elems each) to rank p, part r of out from rank r, whole. */
enum status flow_swap(struct flow *flow, const struct flow_call *call, int64_t elems,
                      struct ucx_wait *wait);

/* flow_chain — out of the rank `root` to all, from rank to rank. bytes at data. */
enum status flow_chain(struct flow *flow, const struct flow_call *call, int64_t bytes, int root,
                       struct ucx_wait *wait);

#endif
