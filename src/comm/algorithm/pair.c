/* comm_p2p_pair — send and recv: the header of the call, with the content in it if that is short,
 * else behind it. Must not know collectives. */
#include <string.h>

#include "base/assert.h"
#include "comm/algorithm/nodes.h"

static enum status wait_for(struct comm_p2p *state, const struct p2p_op *op, struct p2p_wait *wait)
{
    while (!p2p_is_done(op))
        TRY(p2p_progress(state->root->p2p, wait));
    return ST_OK;
}

static enum status run_send(struct comm_ctx *ctx, const struct comm_call *call, int64_t bytes)
{
    struct comm_p2p *state = ctx->state;
    struct p2p_eager_peer *peer = &state->eager.peers[call->peer];
    struct p2p_wait wait = comm_p2p_wait(ctx);
    bool is_small = bytes <= state->eager_max;
    p2p_eager_set_call(&state->eager, call);
    if (is_small && bytes > 0)
        memcpy(p2p_eager_to_send(&state->eager, call->peer), call->in, (size_t)bytes);
    TRY(p2p_eager_exchange(&state->eager, call->peer, P2P_TAG_PAIR, is_small ? bytes : 0));
    TRY(wait_for(state, &peer->send, &wait));
    if (is_small)
        return ST_OK;
    struct p2p_tag tag = {.group = state->eager.group, .tag_class = P2P_TAG_PAIR};
    state->eager.bytes_sent += bytes;
    TRY(p2p_send(state->root->p2p, &peer->send, call->in, bytes, state->p2p_rank[call->peer], tag));
    return wait_for(state, &peer->send, &wait);
}

static enum status run_recv(struct comm_ctx *ctx, const struct comm_call *call, int64_t bytes)
{
    struct comm_p2p *state = ctx->state;
    struct p2p_eager_peer *peer = &state->eager.peers[call->peer];
    struct p2p_wait wait = comm_p2p_wait(ctx);
    p2p_eager_set_call(&state->eager, call);
    TRY(p2p_eager_exchange(&state->eager, call->peer, P2P_TAG_PAIR, 0));
    TRY(wait_for(state, &peer->recv, &wait));
    TRY(p2p_eager_check(&state->eager, ctx, call->peer));
    if (bytes <= state->eager_max) {
        if (bytes > 0)
            memcpy(call->out, p2p_eager_received(&state->eager, call->peer), (size_t)bytes);
        return ST_OK;
    }
    struct p2p_tag tag = {.group = state->eager.group,
                          .from = state->p2p_rank[call->peer],
                          .tag_class = P2P_TAG_PAIR};
    TRY(p2p_recv(state->root->p2p, &peer->recv, call->out, bytes, tag));
    return wait_for(state, &peer->recv, &wait);
}

enum status comm_p2p_pair_send(struct comm_ctx *ctx, const struct comm_call *call)
{
    return comm_p2p_finish(ctx, run_send(ctx, call, transport_bytes(call)));
}

enum status comm_p2p_pair_recv(struct comm_ctx *ctx, const struct comm_call *call)
{
    return comm_p2p_finish(ctx, run_recv(ctx, call, transport_bytes(call)));
}
