/* comm_eager — the eager protocol: the first message of every call. Numbers in comments are
 * the steps of eager.h. This file must not interpret the content. */
#include "comm/algorithm/eager.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"

enum status comm_eager_open(struct comm_eager *eager)
{
    size_t n = (size_t)eager->n, room = (size_t)(COMM_EAGER_HEADER_BYTES + eager->eager_max);
    eager->peers = memory_new(n, sizeof(*eager->peers));
    eager->received = aligned_alloc(64, room * n);
    eager->to_send = aligned_alloc(64, room * n);
    if (eager->received == NULL || eager->to_send == NULL)
        return FAIL(ST_RETRY, "out of memory: headers of %d ranks", eager->n);
    memset(eager->received, 0, room * n);
    memset(eager->to_send, 0, room * n);
    return ST_OK;
}

void comm_eager_free(struct comm_eager *eager)
{
    free(eager->peers);
    free(eager->received);
    free(eager->to_send);
    *eager = (struct comm_eager){0};
}

void comm_eager_set_call(struct comm_eager *eager, const struct comm_call *call)
{
    eager->call = call;
    eager->is_leaf = false;
    for (int r = 0; r < eager->n; r++)
        eager->peers[r].has_entered = r == eager->me;
}

void comm_eager_write_header(struct comm_eager *eager, int slot, const uint32_t *entered)
{
    const struct comm_eager_header header = {.call = transport_header(eager->call),
                                             .is_status = entered != NULL,
                                             .entered = entered != NULL ? *entered : 0};
    memcpy(comm_eager_to_send(eager, slot) - COMM_EAGER_HEADER_BYTES, &header, sizeof(header));
}

static struct message_tag tag_of(const struct comm_eager *eager, int from,
                                 enum message_tag_class tag_class)
{
    return (struct message_tag){
        .group = eager->group, .from = eager->root_rank[from], .tag_class = tag_class};
}

enum status comm_eager_recv(struct comm_eager *eager, int r, enum message_tag_class tag_class)
{
    return messenger_recv(eager->messenger, &eager->peers[r].recv,
                          comm_eager_received(eager, r) - COMM_EAGER_HEADER_BYTES,
                          COMM_EAGER_HEADER_BYTES + eager->eager_max, tag_of(eager, r, tag_class));
}

static enum status send_slot(struct comm_eager *eager, struct message_op *op, int slot, int r,
                             enum message_tag_class tag_class, int64_t bytes)
{
    eager->bytes_sent += COMM_EAGER_HEADER_BYTES + bytes;
    return messenger_send(
        eager->messenger, op, comm_eager_to_send(eager, slot) - COMM_EAGER_HEADER_BYTES,
        COMM_EAGER_HEADER_BYTES + bytes, eager->root_rank[r], tag_of(eager, eager->me, tag_class));
}

enum status comm_eager_send(struct comm_eager *eager, struct message_op *op, int slot, int r,
                            int64_t bytes)
{
    return send_slot(eager, op, slot, r, MESSAGE_TAG_HEADER, bytes);
}

enum status comm_eager_exchange(struct comm_eager *eager, int r, enum message_tag_class tag_class,
                                int64_t bytes)
{
    struct comm_eager_peer *peer = &eager->peers[r];
    ASSERTF(bytes <= eager->eager_max, "%lld bytes", (long long)bytes);
    comm_eager_write_header(eager, r, NULL);
    peer->has_entered = false;
    if (eager->call->kind != COMM_CALL_SEND)
        TRY(comm_eager_recv(eager, r, tag_class));
    return eager->call->kind != COMM_CALL_RECV
               ? send_slot(eager, &peer->send, r, r, tag_class, bytes)
               : ST_OK;
}

enum status comm_eager_begin(struct comm_eager *eager, const struct comm_call *call,
                             const void *content, int64_t stride, int64_t bytes)
{
    comm_eager_set_call(eager, call);
    /* 1. */
    for (int i = 1; i < eager->n; i++) {
        int r = (eager->me + i) % eager->n;
        if (bytes > 0)
            memcpy(comm_eager_to_send(eager, r), (const char *)content + r * stride, (size_t)bytes);
        TRY(comm_eager_exchange(eager, r, MESSAGE_TAG_HEADER, bytes));
    }
    return ST_OK;
}

enum status comm_eager_check(struct comm_eager *eager, const struct comm_ctx *ctx, int r)
{
    struct comm_eager_peer *peer = &eager->peers[r];
    ASSERTF(eager->call != NULL && r >= 0 && r < eager->n, "rank %d of %d", r, eager->n);
    if (peer->has_entered || !messenger_is_done(&peer->recv))
        return ST_OK;
    struct comm_header theirs;
    memcpy(&theirs, comm_eager_received(eager, r) - COMM_EAGER_HEADER_BYTES, sizeof(theirs));
    peer->has_entered = true;
    return transport_check_header(ctx, r, &theirs);
}

enum status comm_eager_end(struct comm_eager *eager, const struct comm_ctx *ctx,
                           struct message_wait *wait)
{
    /* 2. */
    for (int r = 0; r < eager->n; r++) {
        for (;;) {
            TRY(comm_eager_check(eager, ctx, r));
            if (r == eager->me ||
                (eager->peers[r].has_entered && messenger_is_done(&eager->peers[r].send)))
                break;
            TRY(messenger_progress(eager->messenger, wait));
        }
    }
    return ST_OK;
}
