/* comm_self — the transport SELF: one rank, whose buffer is the sum. send and recv have no peer and
 * fail. Must not know how other ranks are reached. */
#include <string.h>

#include "comm/core/transport.h"

static enum status begin_open(struct comm_ctx *ctx, void *address, int64_t *address_bytes)
{
    (void)address;
    *address_bytes = 0;
    if (ctx->config.place.ranks != 1)
        return FAIL(ST_BUG, "transport self is for one rank, not %d", ctx->config.place.ranks);
    return ST_OK;
}

static enum status end_open(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes)
{
    (void)ctx, (void)addresses, (void)bytes;
    return ST_OK;
}

static void ctx_close(struct comm_ctx *ctx) { (void)ctx; }
static enum status split(struct comm_ctx *ctx)
{
    (void)ctx;
    return ST_OK;
}

static enum status move(struct comm_ctx *ctx, const struct comm_call *call)
{
    (void)ctx;
    if (call->out != call->in && call->elems > 0)
        memcpy(call->out, call->in, (size_t)call->elems * dtype_bytes(call->dtype));
    return ST_OK;
}

static enum status no_peer(struct comm_ctx *ctx, const struct comm_call *call)
{
    (void)ctx;
    return FAIL(ST_BUG, "%s with rank %d, where there is one rank", transport_call_name(call->kind),
                call->peer);
}

static enum status barrier(struct comm_ctx *ctx, const struct comm_call *call)
{
    (void)ctx, (void)call;
    return ST_OK;
}

const struct transport_ops comm_self_ops = {
    .kind = COMM_KIND_SELF,
    .name = "self",
    .begin_open = begin_open,
    .end_open = end_open,
    .close = ctx_close,
    .split = split,
    .all_reduce = move,
    .reduce_scatter = move,
    .all_gather = move,
    .all_to_all = move,
    .broadcast = move,
    .send = no_peer,
    .recv = no_peer,
    .barrier = barrier,
};
