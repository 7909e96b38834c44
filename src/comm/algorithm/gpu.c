/* comm_gpu — large collectives between buffers in GPUs' memory, if every rank's UCX has CUDA: it
 * reads and writes GPU memory directly, without a copy through the host's. The UCX that the release
 * links has no CUDA; there comm stages.
 *
 * The chunks, their order and the tree of sums are direct.h's; slots lie on the GPU, which adds
 * (kernels/combine.h). Nodes with several workers use two levels (two_level.h). Inside a node the
 * workers exchange chunks over UCX, which uses NVLink there. So the sums have the bits of host
 * memory. UCX does not use streams: the device must have finished a buffer before UCX reads it, and
 * received data are visible to every kernel launched afterwards.
 *
 * Memory on the GPU: slots of about 64 MiB for each comm_direct; with several workers per node also
 * a rail, allocated at the first call and again when a call needs a larger one. Must not know small
 * calls, how a call begins, nor how failures are reported. */
#include "comm/algorithm/nodes.h"

#include <stdlib.h>

#include "base/memory.h"
#include "comm/core/staging.h"

/* With few ranks, a chunk needs about 10 µs at 50 GB/s. */
#define SLOTS_BYTES ((int64_t)64 << 20)
#define CHUNK_MAX ((int64_t)4 << 20)
#define CHUNK_MIN ((int64_t)256 << 10)

static const struct comm_two_level_ops intra_ops;

/* ---- life ---- */

static int64_t chunk_bytes(int ranks)
{
    int64_t bytes = SLOTS_BYTES / COMM_DIRECT_DEPTH / ranks / CHUNK_MIN * CHUNK_MIN;
    return bytes > CHUNK_MAX ? CHUNK_MAX : bytes < CHUNK_MIN ? CHUNK_MIN : bytes;
}

static enum status open_direct(struct comm_gpu *gpu, struct comm_direct *direct,
                               struct messenger *messenger, int group, const int *root_rank, int n,
                               int me)
{
    *direct = (struct comm_direct){.messenger = messenger,
                                   .group = group,
                                   .root_rank = root_rank,
                                   .n = n,
                                   .me = me,
                                   .nodes = n,
                                   .locals = 1,
                                   .memory = gpu->memory};
    return comm_direct_open(direct, chunk_bytes(n));
}

static enum status open_two_level(struct comm_gpu *gpu, const struct comm_place *place,
                                  struct messenger *messenger, int group, const int *root_rank)
{
    const struct comm_two_level_config config = {.ops = &intra_ops,
                                                 .intra = gpu,
                                                 .messenger = messenger,
                                                 .memory = gpu->memory,
                                                 .place = place,
                                                 .group = group,
                                                 .root_rank = root_rank,
                                                 .chunk_bytes = chunk_bytes(place->nodes)};
    gpu->intra_ranks = memory_new((size_t)place->locals, sizeof(*gpu->intra_ranks));
    for (int l = 0; l < place->locals; l++)
        gpu->intra_ranks[l] = root_rank[place->node * place->locals + l];
    TRY(comm_two_level_open(&gpu->two_level, &config));
    return open_direct(gpu, &gpu->intra, messenger, group, gpu->intra_ranks, place->locals,
                       place->local);
}

enum status comm_gpu_open(struct comm_gpu *gpu, const struct comm_ctx *ctx,
                          struct messenger *messenger, int group, const int *root_rank)
{
    const struct comm_place *place = &ctx->config.place;
    struct dev *dev = ctx->config.dev;
    *gpu = (struct comm_gpu){.memory = {.ops = &comm_memory_gpu, .dev = dev}};
    TRY(dev_make_current(dev));
    TRY(dev_stream_open(dev, &gpu->memory.stream));
    return place->locals > 1 ? open_two_level(gpu, place, messenger, group, root_rank)
                             : open_direct(gpu, &gpu->flat, messenger, group, root_rank,
                                           place->nodes, place->node);
}

void comm_gpu_close(struct comm_gpu *gpu)
{
    dev_stream_close(gpu->memory.stream); /* first: it may be adding */
    comm_direct_free(&gpu->flat);
    comm_two_level_free(&gpu->two_level);
    comm_direct_free(&gpu->intra);
    free(gpu->intra_ranks);
    *gpu = (struct comm_gpu){0};
}

/* ---- calls ---- */

static enum status copy_part(const struct comm_gpu *gpu, const struct comm_call *call,
                             struct part_extent part, const void *from)
{
    const int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    char *to = (char *)call->out + part.first * elem_bytes;
    size_t bytes = (size_t)(part.elems * elem_bytes);
    return to == from || bytes == 0 ? ST_OK : dev_copy(gpu->memory.stream, to, from, bytes);
}

enum status comm_gpu_begin(struct comm_gpu *gpu, const struct comm_ctx *ctx,
                           const struct comm_call *call)
{
    const struct comm_direct *flat = &gpu->flat;
    TRY(dev_stream_wait(gpu->memory.stream, call->event));
    TRY(staging_sync(ctx, gpu->memory.stream));
    if (call->kind == COMM_CALL_ALL_GATHER && gpu->two_level.ops == NULL)
        TRY(copy_part(gpu, call, part_extent(call->elems, flat->n, flat->me), call->in));
    return ST_OK;
}

enum status comm_gpu_end(struct comm_gpu *gpu, const struct comm_ctx *ctx)
{
    return staging_sync(ctx, gpu->memory.stream);
}

/* ---- inside a node: one chunked call for the parts of each node in turn ---- */

static enum status reduce(struct comm_two_level *two_level, const struct comm_call *call,
                          struct comm_direct_call base, enum dtype dtype_out,
                          struct message_wait *wait)
{
    struct comm_gpu *gpu = two_level->intra;
    base.in = call->in;
    base.out = NULL;
    base.dtype = call->dtype;
    base.dtype_out = dtype_out;
    for (int v = 0; v < two_level->nodes; v++) {
        base.parts = two_level->parts + v * two_level->locals;
        base.own_out =
            two_level->rail + two_level->rail_parts[v].first * (int64_t)dtype_bytes(dtype_out);
        TRY(comm_direct_run(&gpu->intra, &base, wait));
    }
    return ST_OK;
}

static enum status gather(struct comm_two_level *two_level, const struct comm_call *call,
                          struct comm_direct_call base, struct message_wait *wait)
{
    struct comm_gpu *gpu = two_level->intra;
    const int64_t elem_bytes = (int64_t)dtype_bytes(call->dtype);
    base.in = NULL;
    base.out = call->out;
    base.dtype = base.dtype_out = call->dtype;
    for (int v = 0; v < two_level->nodes; v++) {
        base.parts = two_level->parts + v * two_level->locals;
        base.own_out = v == two_level->node
                           ? two_level->own
                           : two_level->finished + two_level->rail_parts[v].first * elem_bytes;
        TRY(copy_part(gpu, call, base.parts[two_level->local], base.own_out));
        TRY(comm_direct_run(&gpu->intra, &base, wait));
    }
    return ST_OK;
}

static enum status broadcast(struct comm_two_level *two_level, const struct comm_call *call,
                             struct comm_direct_call base, int local, struct message_wait *wait)
{
    struct comm_gpu *gpu = two_level->intra;
    base.out = call->out;
    return comm_chain_broadcast(&gpu->intra, &base, transport_bytes(call), local, wait);
}

static const struct comm_two_level_ops intra_ops = {
    .reduce = reduce, .gather = gather, .broadcast = broadcast};
