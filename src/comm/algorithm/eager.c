/* p2p_eager — the first message of every call. Must not know what the content is. */
#include "comm/algorithm/eager.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"

enum status p2p_eager_open(struct p2p_eager *eager)
{
    size_t n = (size_t)eager->n, room = (size_t)(P2P_EAGER_HEADER_BYTES + eager->eager_max);
    eager->peers = memory_new(n, sizeof(*eager->peers));
    eager->received = aligned_alloc(64, room * n);
    eager->to_send = aligned_alloc(64, room * n);
    if (eager->received == NULL || eager->to_send == NULL)
        return FAIL(ST_RETRY, "out of memory: headers of %d ranks", eager->n);
    memset(eager->received, 0, room * n);
    memset(eager->to_send, 0, room * n);
    return ST_OK;
}

void p2p_eager_free(struct p2p_eager *eager)
{
    free(eager->peers);
    free(eager->received);
    free(eager->to_send);
    *eager = (struct p2p_eager){0};
}

void p2p_eager_set_call(struct p2p_eager *eager, const struct comm_call *call)
{
    eager->call = call;
    eager->is_leaf = false;
    for (int r = 0; r < eager->n; r++)
        eager->peers[r].has_entered = r == eager->me;
}

void p2p_eager_write_header(struct p2p_eager *eager, int slot, const uint32_t *entered)
{
    const struct p2p_eager_header header = {.call = transport_header(eager->call),
                                            .is_status = entered != NULL,
                                            .entered = entered != NULL ? *entered : 0};
    memcpy(p2p_eager_to_send(eager, slot) - P2P_EAGER_HEADER_BYTES, &header, sizeof(header));
}

static struct p2p_tag tag_of(const struct p2p_eager *eager, int from, enum p2p_tag_class tag_class)
{
    return (struct p2p_tag){
        .group = eager->group, .from = eager->p2p_rank[from], .tag_class = tag_class};
}

enum status p2p_eager_recv(struct p2p_eager *eager, int r, enum p2p_tag_class tag_class)
{
    return p2p_recv(eager->p2p, &eager->peers[r].recv,
                    p2p_eager_received(eager, r) - P2P_EAGER_HEADER_BYTES,
                    P2P_EAGER_HEADER_BYTES + eager->eager_max, tag_of(eager, r, tag_class));
}

static enum status send_slot(struct p2p_eager *eager, struct p2p_op *op, int slot, int r,
                             enum p2p_tag_class tag_class, int64_t bytes)
{
    eager->bytes_sent += P2P_EAGER_HEADER_BYTES + bytes;
    return p2p_send(eager->p2p, op, p2p_eager_to_send(eager, slot) - P2P_EAGER_HEADER_BYTES,
                    P2P_EAGER_HEADER_BYTES + bytes, eager->p2p_rank[r],
                    tag_of(eager, eager->me, tag_class));
}

enum status p2p_eager_send(struct p2p_eager *eager, struct p2p_op *op, int slot, int r,
                           int64_t bytes)
{
    return send_slot(eager, op, slot, r, P2P_TAG_HEADER, bytes);
}

enum status p2p_eager_exchange(struct p2p_eager *eager, int r, enum p2p_tag_class tag_class,
                               int64_t bytes)
{
    struct p2p_eager_peer *peer = &eager->peers[r];
    ASSERTF(bytes <= eager->eager_max, "%lld bytes", (long long)bytes);
    p2p_eager_write_header(eager, r, NULL);
    peer->has_entered = false;
    if (eager->call->kind != COMM_CALL_SEND)
        TRY(p2p_eager_recv(eager, r, tag_class));
    return eager->call->kind != COMM_CALL_RECV
               ? send_slot(eager, &peer->send, r, r, tag_class, bytes)
               : ST_OK;
}

enum status p2p_eager_begin(struct p2p_eager *eager, const struct comm_call *call,
                            const void *content, int64_t stride, int64_t bytes)
{
    p2p_eager_set_call(eager, call);
    for (int i = 1; i < eager->n; i++) {
        int r = (eager->me + i) % eager->n;
        if (bytes > 0)
            memcpy(p2p_eager_to_send(eager, r), (const char *)content + r * stride, (size_t)bytes);
        TRY(p2p_eager_exchange(eager, r, P2P_TAG_HEADER, bytes));
    }
    return ST_OK;
}

enum status p2p_eager_check(struct p2p_eager *eager, const struct comm_ctx *ctx, int r)
{
    struct p2p_eager_peer *peer = &eager->peers[r];
    if (peer->has_entered || !p2p_is_done(&peer->recv))
        return ST_OK;
    struct comm_header theirs;
    memcpy(&theirs, p2p_eager_received(eager, r) - P2P_EAGER_HEADER_BYTES, sizeof(theirs));
    peer->has_entered = true;
    return transport_check_header(ctx, r, &theirs);
}

enum status p2p_eager_end(struct p2p_eager *eager, const struct comm_ctx *ctx,
                          struct p2p_wait *wait)
{
    for (int r = 0; r < eager->n; r++) {
        for (;;) {
            TRY(p2p_eager_check(eager, ctx, r));
            if (r == eager->me ||
                (eager->peers[r].has_entered && p2p_is_done(&eager->peers[r].send)))
                break;
            TRY(p2p_progress(eager->p2p, wait));
        }
    }
    return ST_OK;
}
