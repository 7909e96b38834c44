/* comm_direct — direct reduce-scatter and all-gather: a large call between n ranks over messages.
 * The pairwise exchange of Thakur, Rabenseifner and Gropp ("Optimization of collective
 * communication operations in MPICH", International Journal of High Performance Computing
 * Applications 19, 2005), between all pairs at the same time and in chunks.
 *
 * Each rank owns a part of the buffer (part_extent).
 *
 *   1. Every rank sends its contribution to a part directly to the part's owner, chunk by chunk. It
 *      begins with the next rank, so that not all ranks send to the same one.
 *   2. As soon as the owner has the n contributions to a chunk, it adds them in the order of sum.h.
 *   3. It sends the sum to all ranks; later chunks travel meanwhile.
 *
 * One loop moves everything; a few chunks of each kind are in progress with each peer, which bounds
 * the memory. So every byte crosses the wire twice, to the owner and from it, in both directions at
 * the same time.
 *
 * Chunks are small enough for UCX to send eagerly. To bound unexpected messages, chunk i is sent
 * only after the result of chunk i − COMM_DIRECT_DEPTH has come back. An empty acknowledgement
 * replaces the result if none comes back: only the owner needs the part, or the parts are finished
 * already. Rendezvous for each chunk was slower: 16 MiB, 4 ranks on 2 cores, TCP: 30 ms instead of
 * 18.
 *
 * Buffers may lie in a GPU's memory (memory.c). Then the slots do too, and chunks are large enough
 * that UCX uses rendezvous and moves each chunk directly between the two memories.
 *
 * In place: a sum may be stored where its contribution was sent from, since the owner finishes the
 * sum only after it has received the contribution. Must not know comm's calls, nor how failures are
 * reported. */
#ifndef CONVOY_COMM_DIRECT_H
#define CONVOY_COMM_DIRECT_H

#include <stdbool.h>

#include "comm/core/part.h"
#include "comm/message/messenger.h"
#include "dev/dev.h"
#include "kernels/tensor.h"

#define COMM_DIRECT_DEPTH 4 /* chunks of one kind in progress with one peer */

/* ---- the memory of the buffers, and the processor that adds (memory.c) ---- */

struct comm_memory {
    const struct comm_memory_ops *ops;
    struct dev *dev;       /* GPU: the device; else NULL */
    struct stream *stream; /* GPU: runs the sums */
};

/* The sum of n sources of `elems` elements. Source s lies at slots + s·stride, except source own_i,
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
    /* sum — begins the sum; *is_done_out: it has ended already. One sum at a time. */
    enum status (*sum)(const struct comm_memory *memory, const struct comm_memory_sum *sum,
                       bool *is_done_out);
    /* is_done — sets *out to whether a sum that had not ended in `sum` has ended now. */
    enum status (*is_done)(const struct comm_memory *memory, bool *out);
};
extern const struct comm_memory_ops comm_memory_host, comm_memory_gpu;

/* comm_memory_alloc — allocates memory. Host memory costs nothing until it is touched. */
static inline enum status comm_memory_alloc(const struct comm_memory *memory, int64_t bytes,
                                            void **out)
{
    return memory->ops->alloc(memory, bytes, out);
}
/* comm_memory_free — frees it. Accepts a zeroed memory with NULL data. */
static inline void comm_memory_free(const struct comm_memory *memory, void *data, int64_t bytes)
{
    if (data != NULL)
        memory->ops->free(memory, data, bytes);
}

/* ---- the chunks in progress ---- */

/* Messages of one kind with one peer: messages in [done, posted) are in progress. */
struct comm_direct_queue {
    int64_t posted, done;
    struct message_op ops[COMM_DIRECT_DEPTH];
};

struct comm_direct_peer {
    /* contributions to the peer's part, and to this rank's */
    struct comm_direct_queue send_part, recv_part;
    struct comm_direct_queue send_sum, recv_sum; /* sums of this rank's part, and of the peer's */
};

/* The ranks, and the memory kept from call to call. Zeroed: none. */
struct comm_direct {
    struct messenger *messenger;
    int group;
    const int *root_rank; /* each member's rank in the root */
    int n, me;
    int nodes, locals;         /* the shape of the tree of sums */
    struct comm_memory memory; /* the memory of the buffers, and the processor that adds */
    /* most bytes of a chunk; UCX sends a message of this size from host memory eagerly */
    int64_t chunk_bytes;
    struct comm_direct_peer *peers; /* n */
    char *slots; /* COMM_DIRECT_DEPTH × n chunks: contributions to this rank's part */
    int64_t slots_bytes;
    const void **sources; /* n: scratch */
    int64_t bytes_sent;
};

/* comm_direct_open — allocates; the fields above chunk_bytes are set. chunk_bytes: bytes of one
 * chunk, a multiple of 1024. */
enum status comm_direct_open(struct comm_direct *direct, int64_t chunk_bytes);
void comm_direct_free(struct comm_direct *direct); /* accepts a zeroed struct */

struct comm_direct_call {
    /* all parts; NULL: own_out holds this rank's finished part, and nothing is added */
    const char *in;
    /* all parts: receives the finished parts of the other ranks; NULL: they are not sent */
    char *out;
    char *own_out;                   /* this rank's part */
    const struct part_extent *parts; /* n: the part of each rank, in `in` and `out` */
    /* Every part is the whole buffer: each rank adds everything by itself; out is NULL; own_out ==
     * in is allowed. */
    bool is_whole;
    /* types of `in` and of the finished parts: the same, or BF16 from F32 */
    enum dtype dtype, dtype_out;
    int64_t sequence;
    /* called in each round of the loop, to check other messages in progress */
    enum status (*poll)(void *arg);
    void *arg;
};
/* comm_direct_run — executes the call. Blocks until the call's buffers are the caller's again.
 * Errors: the errors of messenger_progress and poll. */
enum status comm_direct_run(struct comm_direct *direct, const struct comm_direct_call *call,
                            struct message_wait *wait);

/* comm_direct_all_to_all — sends part p of `in` (elems elements) to rank p and receives part r of
 * `out` from rank r, each as one message. Blocks; errors as above. */
enum status comm_direct_all_to_all(struct comm_direct *direct, const struct comm_direct_call *call,
                                   int64_t elems, struct message_wait *wait);

/* comm_chain_broadcast — copies `out` (bytes) of rank root to all ranks (chain.c). Blocks; errors
 * as above. */
enum status comm_chain_broadcast(struct comm_direct *direct, const struct comm_direct_call *call,
                                 int64_t bytes, int root, struct message_wait *wait);
/* comm_direct_retire — counts the finished messages, from the oldest on. */
void comm_direct_retire(struct comm_direct_queue *queue);

#endif
