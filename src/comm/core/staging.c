/* staging — see staging.h. Must not know what carries a call out. */
#include "comm/core/staging.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/assert.h"
#include "comm/core/part.h"

#define IDLE_SLEEP_US 50

struct staging {
    struct dev *dev;
    bool to_device;
    struct stream *in, *out;  /* copies to this side, and back */
    char *slot[2], *extra[2]; /* pieces; extra: where a call's result cannot lie in its source */
    struct dev_event *events[STAGING_EVENTS];
    int events_next;
};

/* A call cut in pieces: `parts` extents of the buffers, of which a piece has up to `each` elements
 * of each. */
struct cut {
    int parts;
    int64_t each, rounds;
};

/* ---- life ---- */

/* Zeroed once: what a short part leaves of a piece is summed with the rest, though nobody reads the
 * sums. */
static enum status take(struct staging *l, char **out)
{
    void *data;
    if (l->to_device) {
        TRY(dev_alloc(l->dev, STAGING_CHUNK_BYTES, &data));
    } else {
        TRY(dev_pin(l->dev, STAGING_CHUNK_BYTES, &data));
        memset(data, 0, (size_t)STAGING_CHUNK_BYTES);
    }
    *out = data;
    return ST_OK;
}

static enum status take_all(struct staging *l)
{
    TRY(dev_make_current(l->dev));
    TRY(dev_stream_open(l->dev, &l->in));
    TRY(dev_stream_open(l->dev, &l->out));
    for (int i = 0; i < 2; i++) {
        TRY(take(l, &l->slot[i]));
        TRY(take(l, &l->extra[i]));
    }
    return ST_OK;
}

enum status staging_open(struct dev *dev, bool to_device, struct staging **out)
{
    struct staging *l = calloc(1, sizeof *l);
    if (l == NULL)
        return FAIL(ST_RETRY, "out of memory: stages for communication");
    l->dev = dev;
    l->to_device = to_device;
    enum status st = take_all(l);
    if (st == ST_OK)
        *out = l;
    else
        staging_close(l);
    return st;
}

void staging_close(struct staging *l)
{
    if (l == NULL)
        return;
    for (int i = 0; i < STAGING_EVENTS; i++)
        dev_event_free(l->events[i]);
    dev_stream_close(l->in);
    dev_stream_close(l->out);
    for (int i = 0; i < 2; i++) {
        if (l->to_device) {
            dev_free(l->dev, l->slot[i], STAGING_CHUNK_BYTES);
            dev_free(l->dev, l->extra[i], STAGING_CHUNK_BYTES);
        } else {
            dev_unpin(l->dev, l->slot[i]);
            dev_unpin(l->dev, l->extra[i]);
        }
    }
    free(l);
}

enum status staging_record(struct staging *l, struct stream *s, struct dev_event **out)
{
    struct dev_event **event = &l->events[l->events_next];
    TRY(dev_event_record(s, event));
    TRY(dev_flush(s)); /* streams of another thread wait for it */
    l->events_next = (l->events_next + 1) % STAGING_EVENTS;
    *out = *event;
    return ST_OK;
}

/* ---- what of a call lies where ---- */

static bool is_pair(const struct comm_call *call)
{
    return call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV;
}

static bool is_spread(const struct comm_call *call)
{
    return call->kind == COMM_CALL_REDUCE_SCATTER || call->kind == COMM_CALL_ALL_GATHER ||
           call->kind == COMM_CALL_ALL_TO_ALL;
}

static struct part_extent extent_of(const struct comm_call *call, int ranks, int part)
{
    if (call->kind == COMM_CALL_ALL_TO_ALL)
        return (struct part_extent){.first = part * call->elems, .elems = call->elems};
    if (is_spread(call))
        return part_extent(call->elems, ranks, part);
    return (struct part_extent){.elems = call->elems};
}

static struct cut cut_of(const struct comm_call *call, int ranks)
{
    struct cut cut = {.parts = is_spread(call) ? ranks : 1};
    int64_t most = 0;
    cut.each = STAGING_CHUNK_BYTES / cut.parts / (int64_t)dtype_bytes(call->dtype) / PART_ALIGN *
               PART_ALIGN;
    ASSERTF(cut.each > 0, "%d parts in a piece", cut.parts);
    for (int part = 0; part < cut.parts; part++) {
        int64_t elems = extent_of(call, ranks, part).elems;
        most = elems > most ? elems : most;
    }
    cut.rounds = most / cut.each + (most % cut.each != 0);
    if (most < cut.each) /* one round, no longer than it must be */
        cut.each = (most + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    return cut;
}

/* Does this rank's part of round j go in (or come out), and is it the only one in its buffer? */
static bool is_moved(const struct comm_ctx *ctx, const struct comm_call *call, int part, bool is_in,
                     bool *is_alone_out)
{
    int rank = ctx->config.place.rank;
    *is_alone_out = call->kind == (is_in ? COMM_CALL_ALL_GATHER : COMM_CALL_REDUCE_SCATTER);
    if (*is_alone_out)
        return part == rank;
    switch (call->kind) {
    case COMM_CALL_BROADCAST:
        return is_in == (call->peer == rank);
    case COMM_CALL_SEND:
        return is_in;
    case COMM_CALL_RECV:
        return !is_in;
    default:
        return true;
    }
}

/* ---- a piece's way ---- */

/* Round j between the call's buffers and a slot. */
static enum status carry(struct staging *l, const struct comm_ctx *ctx,
                         const struct comm_call *call, const struct cut *cut, int64_t j, char *slot,
                         bool is_in)
{
    const int64_t bytes = (int64_t)dtype_bytes(call->dtype), first = j * cut->each;
    for (int part = 0; part < cut->parts; part++) {
        struct part_extent extent = extent_of(call, ctx->config.place.ranks, part);
        int64_t n = extent.elems - first < cut->each ? extent.elems - first : cut->each;
        bool is_alone;
        char *at = slot + part * cut->each * bytes;
        if (!is_moved(ctx, call, part, is_in, &is_alone))
            continue;
        int64_t from = ((is_alone ? 0 : extent.first) + first) * bytes;
        if (n > 0 && is_in)
            TRY(dev_copy(l->in, at, (const char *)call->in + from, (size_t)(n * bytes)));
        if (n > 0 && !is_in)
            TRY(dev_copy(l->out, (char *)call->out + from, at, (size_t)(n * bytes)));
    }
    return ST_OK;
}

enum status staging_sync(const struct comm_ctx *ctx, struct stream *s)
{
    for (;;) {
        bool is_idle = false;
        TRY(dev_stream_query(s, &is_idle));
        if (is_idle)
            return dev_sync(s); /* what waits in pinned slots goes to its place */
        TRY(transport_check(ctx));
        if (ctx->wait_policy == WAIT_POLICY_SPIN)
            transport_pause();
        else
            clock_sleep_us(IDLE_SLEEP_US);
    }
}

/* The call of one piece, in slots: as in transport.h, reduce_scatter's out and all_gather's in are
 * the part alone. */
static enum status move(struct comm_ctx *ctx, const struct comm_call *call, const struct cut *cut,
                        int64_t elems, char *slot, char *extra)
{
    const int64_t own = ctx->config.place.rank * cut->each * (int64_t)dtype_bytes(call->dtype);
    struct comm_call piece = *call;
    piece.event = NULL; /* the copies have waited for it */
    piece.elems = call->kind == COMM_CALL_ALL_TO_ALL ? cut->each
                  : is_spread(call)                  ? cut->parts * cut->each
                                                     : elems;
    piece.in = call->kind == COMM_CALL_ALL_GATHER ? slot + own
               : call->kind == COMM_CALL_RECV     ? NULL
                                                  : slot;
    piece.out = call->kind == COMM_CALL_REDUCE_SCATTER ? slot + own
                : call->kind == COMM_CALL_ALL_TO_ALL   ? extra
                : call->kind == COMM_CALL_SEND         ? NULL
                                                       : slot;
    ctx->call = &piece;
    enum status st = transport_dispatch(ctx, &piece);
    ctx->call = call;
    return st;
}

static enum status run_pieces(struct staging *l, struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct cut cut = cut_of(call, ctx->config.place.ranks);
    /* and so does `out`: the host waits for `in` before any result goes there */
    TRY(dev_stream_wait(l->in, call->event));
    if (cut.rounds > 0)
        TRY(carry(l, ctx, call, &cut, 0, l->slot[0], true));
    for (int64_t j = 0; j < cut.rounds; j++) {
        int64_t left = call->elems - j * cut.each;
        TRY(staging_sync(ctx, l->in));
        /* the slot of round j+1 was j-1's: empty before it is filled again */
        TRY(dev_stream_wait_stream(l->in, l->out));
        if (j + 1 < cut.rounds)
            TRY(carry(l, ctx, call, &cut, j + 1, l->slot[(j + 1) % 2], true));
        TRY(move(ctx, call, &cut, left < cut.each ? left : cut.each, l->slot[j % 2],
                 l->extra[j % 2]));
        TRY(carry(l, ctx, call, &cut, j,
                  call->kind == COMM_CALL_ALL_TO_ALL ? l->extra[j % 2] : l->slot[j % 2], false));
    }
    return staging_sync(ctx, l->out);
}

/* Do both buffers lie on the device? */
static bool is_on_device(const struct staging *l, const struct comm_call *call)
{
    return (call->in == NULL || dev_holds(l->dev, call->in)) &&
           (call->out == NULL || dev_holds(l->dev, call->out));
}

/* Does it lie where the transport reaches? */
static bool is_reached(const struct staging *l, const void *data)
{
    return data == NULL || dev_holds(l->dev, data) == l->to_device;
}

enum status staging_run(struct staging *l, struct comm_ctx *ctx, const struct comm_call *call)
{
    TRY(dev_make_current(l->dev));
    bool is_near = is_reached(l, call->in) && is_reached(l, call->out);
    bool is_long = call->elems > STAGING_CHUNK_BYTES / (int64_t)dtype_bytes(call->dtype);
    /* also a barrier, and the making of a group */
    if (call->elems == 0 || (is_near && !(is_pair(call) && is_long)))
        return transport_dispatch(ctx, call);
    if (ctx->has_gpu_direct && !is_pair(call) && call->kind != COMM_CALL_ALL_TO_ALL &&
        is_on_device(l, call))
        return ctx->ops->gpu_direct(ctx, call);
    return run_pieces(l, ctx, call);
}
