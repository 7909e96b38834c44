/* p2p_gpu — see p2p_gpu.h. Must not know small calls, nor what fails how. */
#include "comm/p2p/p2p_gpu.h"

#include <stdlib.h>

#include "base/assert.h"
#include "comm/core/staging.h"

/* Of slots: chunks that a wire of 50 GB/s takes some ten microseconds for, where there are few
 * ranks. */
#define SLOTS_BYTES ((int64_t)64 << 20)
#define CHUNK_MAX ((int64_t)4 << 20)
#define CHUNK_MIN ((int64_t)256 << 10)

_Static_assert(COMM_RANKS_MAX <= COMBINE_SOURCES_MAX,
               "the device adds what all ranks bring at once");

/* ---- life ---- */

static int64_t chunk_bytes(int ranks)
{
    int64_t bytes = SLOTS_BYTES / P2P_PIPELINE_DEPTH / ranks / CHUNK_MIN * CHUNK_MIN;
    return bytes > CHUNK_MAX ? CHUNK_MAX : bytes < CHUNK_MIN ? CHUNK_MIN : bytes;
}

static enum status open_pipeline(struct p2p_gpu *d, struct p2p_pipeline *pipeline, struct p2p *p2p,
                                 int group, const int *world, int n, int me)
{
    *pipeline = (struct p2p_pipeline){.p2p = p2p,
                                      .group = group,
                                      .world = world,
                                      .n = n,
                                      .me = me,
                                      .nodes = n,
                                      .locals = 1,
                                      .dev = d->dev,
                                      .stream = d->stream};
    return p2p_pipeline_open(pipeline, chunk_bytes(n));
}

enum status p2p_gpu_open(struct p2p_gpu *d, const struct comm_ctx *ctx, struct p2p *p2p, int group,
                         const int *world)
{
    const struct comm_place *place = &ctx->config.place;
    *d = (struct p2p_gpu){.dev = ctx->config.dev,
                          .nodes = place->nodes,
                          .node = place->node,
                          .locals = place->locals,
                          .local = place->local};
    d->inter_world = calloc((size_t)place->nodes, sizeof(*d->inter_world));
    d->intra_world = calloc((size_t)place->locals, sizeof(*d->intra_world));
    d->parts = calloc((size_t)place->ranks, sizeof(*d->parts));
    d->rail_parts = calloc((size_t)place->nodes, sizeof(*d->rail_parts));
    if (d->inter_world == NULL || d->intra_world == NULL || d->parts == NULL ||
        d->rail_parts == NULL)
        return FAIL(ST_RETRY, "out of memory: a group of %d ranks", place->ranks);
    for (int v = 0; v < d->nodes; v++)
        d->inter_world[v] = world[v * d->locals + d->local];
    for (int l = 0; l < d->locals; l++)
        d->intra_world[l] = world[d->node * d->locals + l];
    TRY(dev_make_current(d->dev));
    TRY(dev_stream_open(d->dev, &d->stream));
    TRY(open_pipeline(d, &d->inter, p2p, group, d->inter_world, d->nodes, d->node));
    return d->locals > 1
               ? open_pipeline(d, &d->intra, p2p, group, d->intra_world, d->locals, d->local)
               : ST_OK;
}

void p2p_gpu_close(struct p2p_gpu *d)
{
    dev_stream_close(d->stream); /* first: it may be adding */
    p2p_pipeline_free(&d->inter);
    p2p_pipeline_free(&d->intra);
    if (d->rail != NULL)
        dev_free(d->dev, d->rail, (size_t)d->rail_bytes);
    free(d->inter_world);
    free(d->intra_world);
    free(d->parts);
    free(d->rail_parts);
    *d = (struct p2p_gpu){0};
}

/* ---- what lies where ---- */

static int me(const struct p2p_gpu *d) { return d->node * d->locals + d->local; }

/* The ranks' parts of the buffer, and this worker's rail: its own and those of its number on the
 * other nodes. */
static enum status lay_out(struct p2p_gpu *d, const struct comm_call *call)
{
    const int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype) +
                               (call->dtype == DTYPE_BF16 ? (int64_t)sizeof(float) : 0);
    for (int r = 0; r < d->nodes * d->locals; r++)
        d->parts[r] = part_extent(call->elems, d->nodes * d->locals, r);
    d->rail_elems = part_rail(call->elems, d->nodes, d->locals, d->local, d->rail_parts);
    if (d->locals == 1 || d->rail_elems * elem_bytes <= d->rail_bytes)
        return ST_OK;
    if (d->rail != NULL)
        dev_free(d->dev, d->rail, (size_t)d->rail_bytes);
    d->rail = NULL;
    d->rail_bytes = 0;
    void *rail;
    TRY(dev_alloc(d->dev, (size_t)(d->rail_elems * elem_bytes), &rail));
    d->rail = rail;
    d->rail_bytes = d->rail_elems * elem_bytes;
    return ST_OK;
}

/* Part `r` of the buffer, from where it came to be. */
static enum status put(struct p2p_gpu *d, const struct comm_call *call, int r, const void *from)
{
    const int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    char *to = (char *)call->out + d->parts[r].first * elem_bytes;
    size_t bytes = (size_t)(d->parts[r].elems * elem_bytes);
    return to == from || bytes == 0 ? ST_OK : dev_copy(d->stream, to, from, bytes);
}

enum status p2p_gpu_begin(struct p2p_gpu *d, const struct comm_ctx *ctx,
                          const struct comm_call *call)
{
    TRY(lay_out(d, call));
    TRY(dev_stream_wait(d->stream, call->event));
    return staging_sync(ctx, d->stream);
}

enum status p2p_gpu_end(struct p2p_gpu *d, const struct comm_ctx *ctx)
{
    return staging_sync(ctx, d->stream);
}

/* ---- inside the nodes, between them, inside again ---- */

/* Each worker gets its node's sums of its rail; in fp32 where the call's are BF16. */
static enum status reduce_intra(struct p2p_gpu *d, const struct comm_call *call,
                                struct p2p_pipeline_call pipeline, struct p2p_wait *wait)
{
    pipeline.in = call->in;
    pipeline.dtype = call->dtype;
    pipeline.dtype_out = call->dtype == DTYPE_BF16 ? DTYPE_F32 : call->dtype;
    for (int v = 0; v < d->nodes; v++) {
        pipeline.parts = d->parts + v * d->locals;
        pipeline.own_out =
            d->rail + d->rail_parts[v].first * (int64_t)dtype_bytes(pipeline.dtype_out);
        TRY(p2p_pipeline_run(&d->intra, &pipeline, wait));
    }
    return ST_OK;
}

/* Finished two_level come together in `out`: from `rail`, but this rank's own part from `own`. */
static enum status gather_intra(struct p2p_gpu *d, const struct comm_call *call,
                                struct p2p_pipeline_call pipeline, char *rail, char *own,
                                struct p2p_wait *wait)
{
    pipeline.out = call->out;
    pipeline.dtype = pipeline.dtype_out = call->dtype;
    for (int v = 0; v < d->nodes; v++) {
        pipeline.parts = d->parts + v * d->locals;
        pipeline.own_out =
            v == d->node ? own : rail + d->rail_parts[v].first * (int64_t)dtype_bytes(call->dtype);
        TRY(put(d, call, v * d->locals + d->local, pipeline.own_out));
        TRY(p2p_pipeline_run(&d->intra, &pipeline, wait));
    }
    return ST_OK;
}

/* The sums: of one worker a node straight from the buffer, of several from the rail. out NULL: this
 * rank's part goes to own_out alone. */
static enum status reduce_inter(struct p2p_gpu *d, const struct comm_call *call,
                                struct p2p_pipeline_call pipeline, char *out, char *own_out,
                                struct p2p_wait *wait)
{
    bool has_rail = d->locals > 1;
    pipeline.in = has_rail ? d->rail : call->in;
    pipeline.parts = has_rail ? d->rail_parts : d->parts;
    pipeline.dtype = has_rail && call->dtype == DTYPE_BF16 ? DTYPE_F32 : call->dtype;
    pipeline.dtype_out = call->dtype;
    pipeline.out = out;
    pipeline.own_out = own_out;
    return p2p_pipeline_run(&d->inter, &pipeline, wait);
}

static enum status all_reduce(struct p2p_gpu *d, const struct comm_call *call,
                              struct p2p_pipeline_call pipeline, struct p2p_wait *wait)
{
    const int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    char *out = call->out;
    if (d->locals == 1)
        return reduce_inter(d, call, pipeline, out, out + d->parts[me(d)].first * elem_bytes, wait);
    TRY(reduce_intra(d, call, pipeline, wait));
    char *rail =
        call->dtype == DTYPE_BF16 ? d->rail + d->rail_elems * (int64_t)sizeof(float) : d->rail;
    char *own = rail + d->rail_parts[d->node].first * elem_bytes;
    TRY(reduce_inter(d, call, pipeline, rail, own, wait));
    return gather_intra(d, call, pipeline, rail, own, wait);
}

static enum status reduce_scatter(struct p2p_gpu *d, const struct comm_call *call,
                                  struct p2p_pipeline_call pipeline, struct p2p_wait *wait)
{
    if (d->locals > 1)
        TRY(reduce_intra(d, call, pipeline, wait));
    return reduce_inter(d, call, pipeline, NULL, call->out, wait);
}

static enum status all_gather(struct p2p_gpu *d, const struct comm_call *call,
                              struct p2p_pipeline_call pipeline, struct p2p_wait *wait)
{
    char *own = (char *)(uintptr_t)call->in;
    pipeline.dtype = pipeline.dtype_out = call->dtype;
    pipeline.out = d->locals > 1 ? d->rail : call->out;
    pipeline.own_out = own;
    pipeline.parts = d->locals > 1 ? d->rail_parts : d->parts;
    if (d->locals == 1)
        TRY(put(d, call, me(d), own));
    TRY(p2p_pipeline_run(&d->inter, &pipeline, wait));
    return d->locals > 1 ? gather_intra(d, call, pipeline, d->rail, own, wait) : ST_OK;
}

static enum status broadcast(struct p2p_gpu *d, const struct comm_call *call,
                             struct p2p_pipeline_call pipeline, struct p2p_wait *wait)
{
    const int64_t bytes = transport_bytes(call);
    pipeline.out = call->out;
    if (d->local == call->peer % d->locals)
        TRY(p2p_pipeline_broadcast(&d->inter, &pipeline, bytes, call->peer / d->locals, wait));
    return d->locals > 1
               ? p2p_pipeline_broadcast(&d->intra, &pipeline, bytes, call->peer % d->locals, wait)
               : ST_OK;
}

enum status p2p_gpu_run(struct p2p_gpu *d, const struct comm_call *call,
                        enum status (*poll)(void *arg), void *arg, struct p2p_wait *wait)
{
    struct p2p_pipeline_call pipeline = {.sequence = call->sequence, .poll = poll, .arg = arg};
    switch (call->kind) {
    case COMM_CALL_ALL_REDUCE:
        return all_reduce(d, call, pipeline, wait);
    case COMM_CALL_REDUCE_SCATTER:
        return reduce_scatter(d, call, pipeline, wait);
    case COMM_CALL_ALL_GATHER:
        return all_gather(d, call, pipeline, wait);
    case COMM_CALL_BROADCAST:
        return broadcast(d, call, pipeline, wait);
    default:
        break;
    }
    ASSERTF(false, "call %d", (int)call->kind);
    return ST_BUG;
}
