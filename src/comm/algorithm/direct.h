/* comm_direct — direct reduce-scatter and all-gather: a large call between n ranks over messages.
 * The pairwise exchange of Thakur, Rabenseifner and Gropp ("Optimization of collective
 * communication operations in MPICH", International Journal of High Performance Computing
 * Applications 19, 2005), between all pairs at the same time and in chunks.
 *
 * Each rank owns a part of the buffer (part_extent).
 *
 *   1. Every rank sends its contribution to a part straight to the part's owner, chunk by chunk. It
 *      begins with the next rank, so that not all send to one.
 *   2. As soon as the owner has the n contributions to a chunk, it adds them in the order of sum.h.
 *   3. It sends the sum to all ranks; later chunks travel meanwhile.
 *
 * One loop moves everything; a few chunks of each kind are under way with each peer, which bounds
 * the memory. So every byte crosses the wire twice, to the owner and from it, in both directions at
 * the same time.
 *
 * Chunks are small enough for UCX to send eagerly. To bound unexpected messages, chunk i is sent
 * only after the result of chunk i − COMM_DIRECT_DEPTH has come back. Where no result comes back,
 * an empty acknowledgement takes its place: only the owner needs the part, or the parts are
 * finished already. Rendezvous for each chunk was slower: 16 MiB, 4 ranks on 2 cores, TCP: 30 ms
 * instead of 18.
 *
 * Buffers may lie in a GPU's memory (memory.c). Then the slots do too, and chunks are so large
 * that UCX uses rendezvous and moves each between the two memories at once.
 *
 * In place: a sum may be stored where its contribution was sent from, since the owner finishes it
 * only after it has received that. Must not know comm's calls, nor how failures are named. */
#ifndef CONVOY_COMM_DIRECT_H
#define CONVOY_COMM_DIRECT_H

#include <stdbool.h>

#include "comm/core/part.h"
#include "comm/message/messenger.h"
#include "dev/dev.h"
#include "kernels/tensor.h"

#define COMM_DIRECT_DEPTH 4 /* chunks of one kind under way with one peer */

/* ---- where the buffers lie and what adds there (memory.c) ---- */

struct comm_memory {
    const struct comm_memory_ops *ops;
    struct dev *dev;       /* GPU: the device; else NULL */
    struct stream *stream; /* GPU: runs the sums */
};

/* The sum of n sources of `elems` elements. Source s lies at slots + s·stride, but source own_i,
 * which lies at `own`. */
struct comm_memory_sum {
    const char *slots, *own;
    int64_t stride_bytes;
    int own_i, nodes, locals; /* nodes·locals sources: the shape of the tree */
    enum dtype dtype, dtype_out;
    void *out;
    int64_t elems;
    const void **scratch; /* room for n pointers */
};

struct comm_memory_ops {
    bool is_gpu;
    enum status (*alloc)(const struct comm_memory *memory, int64_t bytes, void **out);
    /* NULL data: no-op */
    void (*free)(const struct comm_memory *memory, void *data, int64_t bytes);
    /* sum: begins the sum; *is_done_out: it is over already. One sum at a time.
     * is_done: for a sum that was not over at once. */
    enum status (*sum)(const struct comm_memory *memory, const struct comm_memory_sum *sum,
                       bool *is_done_out);
    enum status (*is_done)(const struct comm_memory *memory, bool *out);
};
extern const struct comm_memory_ops comm_memory_host, comm_memory_gpu;

/* comm_memory_alloc — host memory costs nothing until it is touched. comm_memory_free — accepts a
 * zeroed memory with NULL data. */
static inline enum status comm_memory_alloc(const struct comm_memory *memory, int64_t bytes,
                                            void **out)
{
    return memory->ops->alloc(memory, bytes, out);
}
static inline void comm_memory_free(const struct comm_memory *memory, void *data, int64_t bytes)
{
    if (data != NULL)
        memory->ops->free(memory, data, bytes);
}

/* ---- the chunks under way ---- */

/* Messages of one kind with one peer: those in [done, posted) are under way. */
struct comm_direct_queue {
    int64_t posted, done;
    struct message_op ops[COMM_DIRECT_DEPTH];
};

struct comm_direct_peer {
    struct comm_direct_queue send_part, recv_part; /* contributions: to its part, to mine */
    struct comm_direct_queue send_sum, recv_sum;   /* sums: of my part, of its part */
};

/* The ranks, and the memory kept from call to call. Zeroed: none. */
struct comm_direct {
    struct messenger *messenger;
    int group;
    const int *root_rank; /* each member's rank in the root */
    int n, me;
    int nodes, locals;         /* the shape of the tree of sums */
    struct comm_memory memory; /* where the buffers lie, and what adds there */
    int64_t chunk_bytes;       /* at most; from the host's memory UCX sends so many bytes eagerly */
    struct comm_direct_peer *peers; /* n */
    char *slots; /* COMM_DIRECT_DEPTH × n chunks: contributions to this rank's part */
    int64_t slots_bytes;
    const void **sources; /* n: scratch */
    int64_t bytes_sent;
};

/* comm_direct_open — allocates, with the fields above chunk_bytes set. chunk_bytes: of one chunk,
 * a multiple of 1024. */
enum status comm_direct_open(struct comm_direct *direct, int64_t chunk_bytes);
void comm_direct_free(struct comm_direct *direct); /* accepts a zeroed one */

struct comm_direct_call {
    /* all parts; NULL: own_out holds this rank's finished part, and nothing is added */
    const char *in;
    /* all parts: receives the finished parts of the other ranks; NULL: they are not sent */
    char *out;
    char *own_out;                   /* this rank's part */
    const struct part_extent *parts; /* n: of each rank, in `in` and `out` */
    /* every part is the whole buffer: each rank adds everything by itself; out NULL; own_out == in
     * allowed */
    bool is_whole;
    enum dtype dtype, dtype_out; /* of `in`; of the finished parts: the same, or BF16 from F32 */
    int64_t sequence;
    /* called in each round of the loop, to check what else is under way */
    enum status (*poll)(void *arg);
    void *arg;
};
/* comm_direct_run — blocks until the call's buffers are the caller's again. Errors: those of
 * messenger_progress and poll. */
enum status comm_direct_run(struct comm_direct *direct, const struct comm_direct_call *call,
                            struct message_wait *wait);

/* comm_direct_all_to_all — sends part p of `in` (elems elements) to rank p and receives part r of
 * `out` from rank r, each as one message. Blocks; errors as above. */
enum status comm_direct_all_to_all(struct comm_direct *direct, const struct comm_direct_call *call,
                                   int64_t elems, struct message_wait *wait);

/* comm_chain_broadcast — `out` (bytes) of rank root to all (chain.c). Blocks; errors as above. */
enum status comm_chain_broadcast(struct comm_direct *direct, const struct comm_direct_call *call,
                                 int64_t bytes, int root, struct message_wait *wait);
/* comm_direct_retire — counts the messages that are done, from the oldest on. */
void comm_direct_retire(struct comm_direct_queue *queue);

#endif
