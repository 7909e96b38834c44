/* comm_ucx_pair — a message from one rank to another: the header of the call, the content in it
 * when that is small, else behind it. Must not know collectives. */
#include <string.h>

#include "base/must.h"
#include "comm/comm_ucx_inside.h"

static enum status wait_for(struct comm_ucx *state, const struct ucx_op *op, struct ucx_wait *wait)
{
    while (!ucx_is_done(op))
        TRY(ucx_pump(state->root->ucx, wait));
    return ST_OK;
}

static enum status run_send(struct comm_wire *wire, const struct comm_call *call, int64_t bytes)
{
    struct comm_ucx *state = wire->state;
    struct meeting_guest *guest = &state->meeting.guests[call->peer];
    struct ucx_wait wait = comm_ucx_wait(wire);
    bool is_small = bytes <= state->small;
    meeting_call(&state->meeting, call);
    if (is_small && bytes > 0)
        memcpy(meeting_brought(&state->meeting, call->peer), call->in, (size_t)bytes);
    TRY(meeting_greet(&state->meeting, call->peer, UCX_LANE_PAIR, is_small ? bytes : 0));
    TRY(wait_for(state, &guest->send, &wait));
    if (is_small)
        return ST_OK;
    struct ucx_tag tag = {.group = state->meeting.group, .lane = UCX_LANE_PAIR};
    state->meeting.bytes_sent += bytes;
    TRY(ucx_send(state->root->ucx, &guest->send, call->in, bytes, state->world[call->peer], tag));
    return wait_for(state, &guest->send, &wait);
}

static enum status run_recv(struct comm_wire *wire, const struct comm_call *call, int64_t bytes)
{
    struct comm_ucx *state = wire->state;
    struct meeting_guest *guest = &state->meeting.guests[call->peer];
    struct ucx_wait wait = comm_ucx_wait(wire);
    meeting_call(&state->meeting, call);
    TRY(meeting_greet(&state->meeting, call->peer, UCX_LANE_PAIR, 0));
    TRY(wait_for(state, &guest->recv, &wait));
    TRY(meeting_look(&state->meeting, wire, call->peer));
    if (bytes <= state->small) {
        if (bytes > 0)
            memcpy(call->out, meeting_came(&state->meeting, call->peer), (size_t)bytes);
        return ST_OK;
    }
    struct ucx_tag tag = {
        .group = state->meeting.group, .from = state->world[call->peer], .lane = UCX_LANE_PAIR};
    TRY(ucx_recv(state->root->ucx, &guest->recv, call->out, bytes, tag));
    return wait_for(state, &guest->recv, &wait);
}

enum status comm_ucx_pair_send(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_ucx_finish(wire, run_send(wire, call, comm_ops_bytes(call)));
}

enum status comm_ucx_pair_recv(struct comm_wire *wire, const struct comm_call *call)
{
    return comm_ucx_finish(wire, run_recv(wire, call, comm_ops_bytes(call)));
}
