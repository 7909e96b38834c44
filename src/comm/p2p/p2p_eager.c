/* p2p_eager — the first message of every call. Must not know what the content is. */
#include "comm/p2p/p2p_eager.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum status p2p_eager_open(struct p2p_eager *m)
{
    size_t n = (size_t)m->n, room = (size_t)(P2P_EAGER_HEADER_BYTES + m->eager_max);
    m->peers = calloc(n, sizeof(*m->peers));
    m->received = aligned_alloc(64, room * n);
    m->to_send = aligned_alloc(64, room * n);
    if (m->peers == NULL || m->received == NULL || m->to_send == NULL)
        return FAIL(ST_RETRY, "out of memory: first messages of %d ranks", m->n);
    memset(m->received, 0, room * n);
    memset(m->to_send, 0, room * n);
    return ST_OK;
}

void p2p_eager_free(struct p2p_eager *m)
{
    free(m->peers);
    free(m->received);
    free(m->to_send);
    *m = (struct p2p_eager){0};
}

void p2p_eager_set_call(struct p2p_eager *m, const struct comm_call *call)
{
    m->call = call;
    for (int r = 0; r < m->n; r++)
        m->peers[r].has_entered = r == m->me;
}

enum status p2p_eager_exchange(struct p2p_eager *m, int r, enum p2p_tag_class tag_class,
                               int64_t bytes)
{
    struct p2p_eager_peer *peer = &m->peers[r];
    struct comm_header header = transport_header(m->call);
    struct p2p_tag tag = {.group = m->group, .from = m->world[r], .tag_class = tag_class};
    ASSERTF(bytes <= m->eager_max, "%lld bytes", (long long)bytes);
    memcpy(p2p_eager_to_send(m, r) - P2P_EAGER_HEADER_BYTES, &header, sizeof(header));
    peer->has_entered = false;
    if (m->call->kind != COMM_CALL_SEND)
        TRY(p2p_recv(m->p2p, &peer->recv, p2p_eager_received(m, r) - P2P_EAGER_HEADER_BYTES,
                     P2P_EAGER_HEADER_BYTES + m->eager_max, tag));
    if (m->call->kind != COMM_CALL_RECV) {
        TRY(p2p_send(m->p2p, &peer->send, p2p_eager_to_send(m, r) - P2P_EAGER_HEADER_BYTES,
                     P2P_EAGER_HEADER_BYTES + bytes, m->world[r], tag));
        m->bytes_sent += P2P_EAGER_HEADER_BYTES + bytes;
    }
    return ST_OK;
}

enum status p2p_eager_begin(struct p2p_eager *m, const struct comm_call *call, const void *content,
                            int64_t stride, int64_t bytes)
{
    p2p_eager_set_call(m, call);
    for (int i = 1; i < m->n; i++) {
        int r = (m->me + i) % m->n;
        if (bytes > 0)
            memcpy(p2p_eager_to_send(m, r), (const char *)content + r * stride, (size_t)bytes);
        TRY(p2p_eager_exchange(m, r, P2P_TAG_HEADER, bytes));
    }
    return ST_OK;
}

enum status p2p_eager_check(struct p2p_eager *m, const struct comm_ctx *ctx, int r)
{
    struct p2p_eager_peer *peer = &m->peers[r];
    if (peer->has_entered || !p2p_is_done(&peer->recv))
        return ST_OK;
    struct comm_header theirs;
    memcpy(&theirs, p2p_eager_received(m, r) - P2P_EAGER_HEADER_BYTES, sizeof(theirs));
    peer->has_entered = true;
    return transport_check_header(ctx, r, &theirs);
}

enum status p2p_eager_end(struct p2p_eager *m, const struct comm_ctx *ctx, struct p2p_wait *wait)
{
    for (int r = 0; r < m->n; r++) {
        for (;;) {
            TRY(p2p_eager_check(m, ctx, r));
            if (r == m->me || (m->peers[r].has_entered && p2p_is_done(&m->peers[r].send)))
                break;
            TRY(p2p_progress(m->p2p, wait));
        }
    }
    return ST_OK;
}
