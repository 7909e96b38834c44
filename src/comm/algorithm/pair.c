/* comm_nodes_pair — send and recv: the header of the call, with the content in it if that is short,
 * else behind it. Must not know collectives. */
#include <string.h>

#include "base/assert.h"
#include "comm/algorithm/nodes.h"

static enum status wait_for(struct comm_nodes *state, const struct message_op *op,
                            struct message_wait *wait)
{
    while (!message_is_done(op))
        TRY(message_progress(state->root->messenger, wait));
    return ST_OK;
}

static enum status run_send(struct comm_ctx *ctx, const struct comm_call *call, int64_t bytes)
{
    struct comm_nodes *state = ctx->state;
    struct comm_eager_peer *peer = &state->eager.peers[call->peer];
    struct message_wait wait = comm_nodes_wait(ctx);
    bool is_small = bytes <= state->eager_max;
    comm_eager_set_call(&state->eager, call);
    if (is_small && bytes > 0)
        memcpy(comm_eager_to_send(&state->eager, call->peer), call->in, (size_t)bytes);
    TRY(comm_eager_exchange(&state->eager, call->peer, MESSAGE_TAG_PAIR, is_small ? bytes : 0));
    TRY(wait_for(state, &peer->send, &wait));
    if (is_small)
        return ST_OK;
    struct message_tag tag = {.group = state->eager.group, .tag_class = MESSAGE_TAG_PAIR};
    state->eager.bytes_sent += bytes;
    TRY(message_send(state->root->messenger, &peer->send, call->in, bytes,
                     state->root_rank[call->peer], tag));
    return wait_for(state, &peer->send, &wait);
}

static enum status run_recv(struct comm_ctx *ctx, const struct comm_call *call, int64_t bytes)
{
    struct comm_nodes *state = ctx->state;
    struct comm_eager_peer *peer = &state->eager.peers[call->peer];
    struct message_wait wait = comm_nodes_wait(ctx);
    comm_eager_set_call(&state->eager, call);
    TRY(comm_eager_exchange(&state->eager, call->peer, MESSAGE_TAG_PAIR, 0));
    TRY(wait_for(state, &peer->recv, &wait));
    TRY(comm_eager_check(&state->eager, ctx, call->peer));
    if (bytes <= state->eager_max) {
        if (bytes > 0)
            memcpy(call->out, comm_eager_received(&state->eager, call->peer), (size_t)bytes);
        return ST_OK;
    }
    struct message_tag tag = {.group = state->eager.group,
                              .from = state->root_rank[call->peer],
                              .tag_class = MESSAGE_TAG_PAIR};
    TRY(message_recv(state->root->messenger, &peer->recv, call->out, bytes, tag));
    return wait_for(state, &peer->recv, &wait);
}

enum status comm_nodes_pair_send(struct comm_ctx *ctx, const struct comm_call *call)
{
    return comm_nodes_finish(ctx, run_send(ctx, call, transport_bytes(call)));
}

enum status comm_nodes_pair_recv(struct comm_ctx *ctx, const struct comm_call *call)
{
    return comm_nodes_finish(ctx, run_recv(ctx, call, transport_bytes(call)));
}
