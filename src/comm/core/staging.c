/* staging — two chunk buffers, a stream for each direction. Must not know which transport runs the
 * call. */
#include "comm/core/staging.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"
#include "comm/core/part.h"

#define IDLE_SLEEP_US 50

struct staging {
    struct dev *dev;
    bool to_device;
    struct stream *in, *out;  /* copies to the transport's side, and back */
    char *slot[2], *extra[2]; /* extra: for all_to_all, whose result cannot overlap its source */
    struct dev_event *events[STAGING_EVENTS];
    int events_next;
};

/* The chunks of a call: the buffers have `parts` extents, and a chunk holds up to `each` elements
 * of every extent. */
struct chunking {
    int parts;
    int64_t each, rounds;
};

/* ---- open, close ---- */

/* Allocates a chunk buffer, zeroed once: a short part leaves the end of a chunk unused, which is
 * summed with the rest and then ignored. */
static enum status alloc_chunk(struct staging *staging, char **out)
{
    void *data;
    if (staging->to_device) {
        TRY(dev_alloc(staging->dev, STAGING_CHUNK_BYTES, &data));
    } else {
        TRY(dev_pin(staging->dev, STAGING_CHUNK_BYTES, &data));
        memset(data, 0, (size_t)STAGING_CHUNK_BYTES);
    }
    *out = data;
    return ST_OK;
}

static enum status alloc_all(struct staging *staging)
{
    TRY(dev_make_current(staging->dev));
    TRY(dev_stream_open(staging->dev, &staging->in));
    TRY(dev_stream_open(staging->dev, &staging->out));
    for (int i = 0; i < 2; i++) {
        TRY(alloc_chunk(staging, &staging->slot[i]));
        TRY(alloc_chunk(staging, &staging->extra[i]));
    }
    return ST_OK;
}

enum status staging_open(struct dev *dev, bool to_device, struct staging **out)
{
    struct staging *staging = memory_new(1, sizeof *staging);
    staging->dev = dev;
    staging->to_device = to_device;
    enum status st = alloc_all(staging);
    if (st == ST_OK)
        *out = staging;
    else
        staging_close(staging);
    return st;
}

void staging_close(struct staging *staging)
{
    if (staging == NULL)
        return;
    for (int i = 0; i < STAGING_EVENTS; i++)
        dev_event_free(staging->events[i]);
    dev_stream_close(staging->in);
    dev_stream_close(staging->out);
    for (int i = 0; i < 2; i++) {
        if (staging->to_device) {
            dev_free(staging->dev, staging->slot[i], STAGING_CHUNK_BYTES);
            dev_free(staging->dev, staging->extra[i], STAGING_CHUNK_BYTES);
        } else {
            dev_unpin(staging->dev, staging->slot[i]);
            dev_unpin(staging->dev, staging->extra[i]);
        }
    }
    free(staging);
}

enum status staging_record(struct staging *staging, struct stream *s, struct dev_event **out)
{
    struct dev_event **event = &staging->events[staging->events_next];
    TRY(dev_event_record(s, event));
    TRY(dev_flush(s)); /* streams of other threads wait for the event */
    staging->events_next = (staging->events_next + 1) % STAGING_EVENTS;
    *out = *event;
    return ST_OK;
}

/* ---- chunks ---- */

static bool is_pair(const struct comm_call *call)
{
    return call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV;
}

static bool is_in_parts(const struct comm_call *call)
{
    return call->kind == COMM_CALL_REDUCE_SCATTER || call->kind == COMM_CALL_ALL_GATHER ||
           call->kind == COMM_CALL_ALL_TO_ALL;
}

static struct part_extent extent_of(const struct comm_call *call, int ranks, int part)
{
    if (call->kind == COMM_CALL_ALL_TO_ALL)
        return (struct part_extent){.first = part * call->elems, .elems = call->elems};
    if (is_in_parts(call))
        return part_extent(call->elems, ranks, part);
    return (struct part_extent){.elems = call->elems};
}

static struct chunking chunks_of(const struct comm_call *call, int ranks)
{
    struct chunking chunks = {.parts = is_in_parts(call) ? ranks : 1};
    int64_t most = 0;
    chunks.each = STAGING_CHUNK_BYTES / chunks.parts / (int64_t)dtype_bytes(call->dtype) /
                  PART_ALIGN * PART_ALIGN;
    ASSERTF(chunks.each > 0, "%d parts in a chunk", chunks.parts);
    for (int part = 0; part < chunks.parts; part++) {
        int64_t elems = extent_of(call, ranks, part).elems;
        most = elems > most ? elems : most;
    }
    chunks.rounds = most / chunks.each + (most % chunks.each != 0);
    if (most < chunks.each) /* one round, as short as possible */
        chunks.each = (most + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    return chunks;
}

/* Returns true if this part is copied in (or out) on this rank. *is_alone_out: the buffer holds
 * this part only. */
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

/* ---- copies and calls ---- */

/* Copies round j between the call's buffers and a slot. */
static enum status copy_round(struct staging *staging, const struct comm_ctx *ctx,
                              const struct comm_call *call, const struct chunking *chunks,
                              int64_t j, char *slot, bool is_in)
{
    const int64_t bytes = (int64_t)dtype_bytes(call->dtype), first = j * chunks->each;
    for (int part = 0; part < chunks->parts; part++) {
        struct part_extent extent = extent_of(call, ctx->config.place.ranks, part);
        int64_t n = extent.elems - first < chunks->each ? extent.elems - first : chunks->each;
        bool is_alone;
        char *at = slot + part * chunks->each * bytes;
        if (!is_moved(ctx, call, part, is_in, &is_alone))
            continue;
        int64_t from = ((is_alone ? 0 : extent.first) + first) * bytes;
        if (n > 0 && is_in)
            TRY(dev_copy(staging->in, at, (const char *)call->in + from, (size_t)(n * bytes)));
        if (n > 0 && !is_in)
            TRY(dev_copy(staging->out, (char *)call->out + from, at, (size_t)(n * bytes)));
    }
    return ST_OK;
}

enum status staging_sync(const struct comm_ctx *ctx, struct stream *s)
{
    for (;;) {
        bool is_idle = false;
        TRY(dev_stream_query(s, &is_idle));
        if (is_idle)
            return dev_sync(s); /* completes copies from pinned slots */
        TRY(transport_check(ctx));
        if (ctx->wait_policy == WAIT_POLICY_SPIN)
            transport_pause();
        else
            clock_sleep_us(IDLE_SLEEP_US);
    }
}

/* Runs the call on one chunk in its slot. As in transport.h, reduce_scatter's out and all_gather's
 * in hold only this rank's part. */
static enum status run_chunk(struct comm_ctx *ctx, const struct comm_call *call,
                             const struct chunking *chunks, int64_t elems, char *slot, char *extra)
{
    const int64_t own = ctx->config.place.rank * chunks->each * (int64_t)dtype_bytes(call->dtype);
    struct comm_call chunk = *call;
    chunk.event = NULL; /* the copies waited for it */
    chunk.elems = call->kind == COMM_CALL_ALL_TO_ALL ? chunks->each
                  : is_in_parts(call)                ? chunks->parts * chunks->each
                                                     : elems;
    chunk.in = call->kind == COMM_CALL_ALL_GATHER ? slot + own
               : call->kind == COMM_CALL_RECV     ? NULL
                                                  : slot;
    chunk.out = call->kind == COMM_CALL_REDUCE_SCATTER ? slot + own
                : call->kind == COMM_CALL_ALL_TO_ALL   ? extra
                : call->kind == COMM_CALL_SEND         ? NULL
                                                       : slot;
    ctx->call = &chunk;
    enum status st = transport_dispatch(ctx, &chunk);
    ctx->call = call;
    return st;
}

static enum status run_chunks(struct staging *staging, struct comm_ctx *ctx,
                              const struct comm_call *call)
{
    const struct chunking chunks = chunks_of(call, ctx->config.place.ranks);
    /* `out` needs no wait of its own: the host waits for `in` before it copies a result out */
    TRY(dev_stream_wait(staging->in, call->event));
    if (chunks.rounds > 0)
        TRY(copy_round(staging, ctx, call, &chunks, 0, staging->slot[0], true));
    for (int64_t j = 0; j < chunks.rounds; j++) {
        int64_t left = call->elems - j * chunks.each;
        TRY(staging_sync(ctx, staging->in));
        /* round j+1 reuses the slot of round j-1, whose result must have been copied out */
        TRY(dev_stream_wait_stream(staging->in, staging->out));
        if (j + 1 < chunks.rounds)
            TRY(copy_round(staging, ctx, call, &chunks, j + 1, staging->slot[(j + 1) % 2], true));
        TRY(run_chunk(ctx, call, &chunks, left < chunks.each ? left : chunks.each,
                      staging->slot[j % 2], staging->extra[j % 2]));
        TRY(copy_round(staging, ctx, call, &chunks, j,
                       call->kind == COMM_CALL_ALL_TO_ALL ? staging->extra[j % 2]
                                                          : staging->slot[j % 2],
                       false));
    }
    return staging_sync(ctx, staging->out);
}

/* Returns true if the transport reaches this memory. */
static bool is_reached(const struct staging *staging, const void *data)
{
    return data == NULL || dev_holds(staging->dev, data) == staging->to_device;
}

bool staging_is_direct(const struct staging *staging, const struct comm_call *call)
{
    bool is_near = is_reached(staging, call->in) && is_reached(staging, call->out);
    bool is_long = call->elems > STAGING_CHUNK_BYTES / (int64_t)dtype_bytes(call->dtype);
    return is_near && !(is_pair(call) && is_long);
}

enum status staging_run(struct staging *staging, struct comm_ctx *ctx, const struct comm_call *call)
{
    TRY(dev_make_current(staging->dev));
    /* elems 0: also a barrier or a split */
    if (call->elems == 0 || staging_is_direct(staging, call))
        return transport_dispatch(ctx, call);
    if (ctx->about.has_gpu_direct && !is_pair(call) && call->kind != COMM_CALL_ALL_TO_ALL &&
        ((call->in == NULL || dev_holds(staging->dev, call->in)) &&
         (call->out == NULL || dev_holds(staging->dev, call->out))))
        return ctx->ops->gpu_direct(ctx, call);
    return run_chunks(staging, ctx, call);
}
