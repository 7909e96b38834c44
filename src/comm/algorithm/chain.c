/* comm_chain — pipelined chain broadcast (Pješivac-Grbović, Angskun, Bosilca, Fagg, Gabriel and
 * Dongarra, "Performance analysis of MPI collective operations", Cluster Computing 10, 2007).
 *
 *   1. The root sends the buffer in chunks to the next rank.
 *   2. Each rank receives chunks from the rank before it,
 *   3. and passes a chunk on while it receives the next; the last rank passes nothing on.
 *
 * So each link carries the buffer once, whatever the number of ranks. Chunks are large enough that
 * UCX uses rendezvous, since no result comes back to bound unexpected messages. Must not know the
 * call. */
#include <string.h>

#include "comm/algorithm/direct.h"

/* Returns the next message of the queue. */
static struct message_op *next_op(const struct comm_direct *direct, struct comm_direct_queue *queue)
{
    struct message_op *op = &queue->ops[queue->posted++ % COMM_DIRECT_DEPTH];
    op->is_gpu = direct->memory.ops->is_gpu;
    return op;
}

enum status comm_chain_broadcast(struct comm_direct *direct, const struct comm_direct_call *call,
                                 int64_t bytes, int root, struct message_wait *wait)
{
    const int n = direct->n, me = direct->me, prev = (me - 1 + n) % n, next = (me + 1) % n;
    const int64_t chunk = 2 * direct->chunk_bytes, chunks_n = (bytes + chunk - 1) / chunk;
    const struct message_tag tag = {.group = direct->group,
                                    .from = direct->root_rank[prev],
                                    .tag_class = MESSAGE_TAG_PART,
                                    .sequence = call->sequence};
    struct comm_direct_queue *from = &direct->peers[prev].recv_sum,
                             *to = &direct->peers[next].send_sum;
    memset(direct->peers, 0, sizeof(*direct->peers) * (size_t)n);
    if (me == root)
        from->done = from->posted = chunks_n; /* 1. all chunks are present */
    if (next == root)
        to->done = to->posted = chunks_n;
    while (from->done < chunks_n || to->done < chunks_n) {
        comm_direct_retire(from);
        comm_direct_retire(to);
        /* 2. */
        while (from->posted < chunks_n && from->posted < from->done + COMM_DIRECT_DEPTH) {
            const int64_t at = from->posted * chunk, left = bytes - at;
            TRY(messenger_recv(direct->messenger, next_op(direct, from), call->out + at,
                               left < chunk ? left : chunk, tag));
        }
        /* 3. */
        while (to->posted < from->done && to->posted < to->done + COMM_DIRECT_DEPTH) {
            const int64_t at = to->posted * chunk, left = bytes - at;
            direct->bytes_sent += left < chunk ? left : chunk;
            TRY(messenger_send(direct->messenger, next_op(direct, to), call->out + at,
                               left < chunk ? left : chunk, direct->root_rank[next], tag));
        }
        TRY(call->poll(call->arg));
        TRY(messenger_progress(direct->messenger, wait));
    }
    return ST_OK;
}
