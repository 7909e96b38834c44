/* comm_self — one rank: what it has is the sum. Sends and receives have nobody to go to. */
#include <string.h>

#include "comm/comm_ops.h"

static enum status begin_open(struct comm_wire *wire, void *address, int64_t *address_bytes)
{
    (void)address;
    *address_bytes = 0;
    if (wire->config.place.ranks != 1)
        return FAIL(ST_BUG, "%d ranks cannot be one", wire->config.place.ranks);
    return ST_OK;
}

static enum status end_open(struct comm_wire *wire, const void *addresses, const int64_t *bytes)
{
    (void)wire, (void)addresses, (void)bytes;
    return ST_OK;
}

static void wire_close(struct comm_wire *wire) { (void)wire; }
static enum status sub(struct comm_wire *wire)
{
    (void)wire;
    return ST_OK;
}

static enum status move(struct comm_wire *wire, const struct comm_call *call)
{
    (void)wire;
    if (call->out != call->in && call->elems > 0)
        memcpy(call->out, call->in, (size_t)call->elems * dtype_bytes(call->dtype));
    return ST_OK;
}

static enum status nobody(struct comm_wire *wire, const struct comm_call *call)
{
    (void)wire;
    return FAIL(ST_BUG, "%s with rank %d, where there is one rank", comm_ops_call(call->kind),
                call->peer);
}

static enum status barrier(struct comm_wire *wire, const struct comm_call *call)
{
    (void)wire, (void)call;
    return ST_OK;
}

const struct comm_ops comm_self_ops = {
    .kind = COMM_KIND_SELF,
    .name = "self",
    .begin_open = begin_open,
    .end_open = end_open,
    .close = wire_close,
    .sub = sub,
    .all_reduce = move,
    .reduce_scatter = move,
    .all_gather = move,
    .all_to_all = move,
    .broadcast = move,
    .send = nobody,
    .recv = nobody,
    .barrier = barrier,
};
