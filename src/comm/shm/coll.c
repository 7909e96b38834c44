/* shm_coll — collectives over a shm_barrier. Buffers that not all ranks see go to shm_bounce. Must
 * not know how the memory is provided. */
#include "comm/shm/coll.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/memory.h"
#include "comm/core/sum.h"

/* bytes of all ranks' buffers together, if sysconf does not report the caches */
#define NT_LEAST_BYTES ((int64_t)8 << 20)

void shm_coll_init(struct shm_coll *coll, void *memory, const struct comm_place *place)
{
    int n = place->nodes * place->locals;
    /* Data that fit into the last-level cache are faster with ordinary stores: 16 MiB, 2 ranks: 1.2
     * ms, 1.8 ms with non-temporal stores. */
    const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE) / 4 * 3;
    *coll = (struct shm_coll){.nodes = place->nodes,
                              .locals = place->locals,
                              .nt_bytes = cache > NT_LEAST_BYTES ? cache : NT_LEAST_BYTES};
    shm_barrier_init(&coll->barrier, memory, n, place->rank);
    coll->in = memory_new((size_t)n, sizeof(*coll->in));
    coll->out = memory_new((size_t)n, sizeof(*coll->out));
    coll->parts = memory_new((size_t)n, sizeof(*coll->parts));
}

void shm_coll_free(struct shm_coll *coll)
{
    free(coll->in);
    free(coll->out);
    free(coll->parts);
    *coll = (struct shm_coll){0};
}

int64_t shm_coll_partition_elems(const struct shm_coll_partition *partition, int rank)
{
    int64_t elems = 0;
    for (int k = 0; k < partition->each; k++)
        elems += partition->extents[rank * partition->each + k].elems;
    return elems;
}

static bool is_nt(const struct shm_coll *coll, const struct comm_call *call)
{
    return transport_bytes(call) * coll->barrier.n >= coll->nt_bytes;
}

/* Returns the parts of part_extent as a partition: one extent for each rank. */
static struct shm_coll_partition partition_even(struct shm_coll *coll, const struct comm_call *call)
{
    for (int r = 0; r < coll->barrier.n; r++)
        coll->parts[r] = part_extent(call->elems, coll->barrier.n, r);
    return (struct shm_coll_partition){.extents = coll->parts, .each = 1};
}

void shm_coll_sum(const struct shm_coll *coll, const struct comm_call *call, int outs_n,
                  enum dtype dtype_out, int64_t elems)
{
    sum_run(&(struct sum_args){.in = coll->in,
                               .out = coll->out,
                               .nodes = coll->nodes,
                               .locals = coll->locals,
                               .outs_n = outs_n,
                               .dtype_in = call->dtype,
                               .dtype_out = dtype_out,
                               .elems = elems,
                               .is_nt = is_nt(coll, call)});
}

/* Ends every call. After a failure, other ranks must stop using this rank's buffers. */
static enum status end_call(struct shm_coll *coll, enum status st)
{
    return st == ST_OK ? ST_OK : shm_barrier_fail(&coll->barrier, st);
}

/* Returns true if all ranks see all buffers. Every rank has entered, so the answer is the same on
 * all ranks. */
static bool is_visible(const struct shm_coll *coll)
{
    for (int r = 0; r < coll->barrier.n; r++)
        if (shm_barrier_descriptor(&coll->barrier, r)->in == 0 ||
            shm_barrier_descriptor(&coll->barrier, r)->out == 0)
            return false;
    return true;
}

/* Returns the address of rank r's `in`: in its eager slot if the call is small. */
static const char *source_of(const struct shm_coll *coll, bool is_small, int r)
{
    return is_small ? shm_barrier_eager_slot(&coll->barrier, r)
                    : shm_barrier_at(&coll->barrier, shm_barrier_descriptor(&coll->barrier, r)->in);
}

/* ---- all_reduce ---- */

static enum status all_reduce_small(struct shm_coll *coll, struct comm_ctx *ctx,
                                    const struct comm_call *call)
{
    TRY(shm_barrier_enter(&coll->barrier, ctx, call->in, 0, NULL, 0, transport_bytes(call)));
    for (int r = 0; r < coll->barrier.n; r++)
        coll->in[r] = shm_barrier_eager_slot(&coll->barrier, r);
    coll->out[0] = call->out;
    shm_coll_sum(coll, call, 1, call->dtype, call->elems);
    return ST_OK;
}

static enum status all_reduce_large(struct shm_coll *coll, struct comm_ctx *ctx,
                                    const struct comm_call *call)
{
    struct shm_barrier *barrier = &coll->barrier;
    TRY(shm_barrier_enter(barrier, ctx, call->in, transport_bytes(call), call->out,
                          transport_bytes(call), 0));
    if (!is_visible(coll))
        return shm_bounce_all_reduce(coll, ctx, call);
    struct part_extent part = part_extent(call->elems, barrier->n, barrier->rank);
    const int64_t first = part.first * (int64_t)dtype_bytes(call->dtype);
    TRY(shm_barrier_read_begin(barrier, ctx));
    for (int r = 0; r < barrier->n; r++) {
        coll->in[r] =
            (char *)shm_barrier_at(barrier, shm_barrier_descriptor(barrier, r)->in) + first;
        coll->out[r] =
            (char *)shm_barrier_at(barrier, shm_barrier_descriptor(barrier, r)->out) + first;
    }
    shm_coll_sum(coll, call, barrier->n, call->dtype, part.elems);
    shm_barrier_read_end(barrier);
    return shm_barrier_wait(barrier, ctx);
}

/* ---- calls that read the other ranks' `in` and write to their own memory: one barrier if small,
 * else one before and one after ---- */

static enum status read_begin(struct shm_coll *coll, struct comm_ctx *ctx, const void *in,
                              int64_t in_bytes, bool is_small)
{
    return shm_barrier_enter(&coll->barrier, ctx, in, in_bytes, NULL, 0, is_small ? in_bytes : 0);
}

static enum status read_end(struct shm_coll *coll, struct comm_ctx *ctx, bool is_small)
{
    if (is_small)
        return ST_OK;
    shm_barrier_read_end(&coll->barrier);
    return shm_barrier_wait(&coll->barrier, ctx);
}

static enum status reduce_partition(struct shm_coll *coll, struct comm_ctx *ctx,
                                    const struct comm_call *call,
                                    const struct shm_coll_partition *partition, void *out,
                                    enum dtype dtype_out)
{
    const bool is_small = transport_bytes(call) <= SHM_BARRIER_EAGER_BYTES;
    struct shm_barrier *barrier = &coll->barrier;
    TRY(read_begin(coll, ctx, call->in, transport_bytes(call), is_small));
    if (!is_small && !is_visible(coll))
        return shm_bounce_reduce(coll, ctx, call, partition, out, dtype_out);
    if (!is_small)
        TRY(shm_barrier_read_begin(barrier, ctx));
    char *to = out;
    for (int k = 0; k < partition->each; k++) {
        const struct part_extent *extent = &partition->extents[barrier->rank * partition->each + k];
        for (int r = 0; r < barrier->n; r++)
            coll->in[r] =
                source_of(coll, is_small, r) + extent->first * (int64_t)dtype_bytes(call->dtype);
        coll->out[0] = to;
        shm_coll_sum(coll, call, 1, dtype_out, extent->elems);
        to += extent->elems * (int64_t)dtype_bytes(dtype_out);
    }
    return read_end(coll, ctx, is_small);
}

enum status shm_coll_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                            const struct comm_call *call,
                            const struct shm_coll_partition *partition, void *out,
                            enum dtype dtype_out)
{
    return end_call(coll, reduce_partition(coll, ctx, call, partition, out, dtype_out));
}

static enum status gather_partition(struct shm_coll *coll, struct comm_ctx *ctx,
                                    const struct comm_call *call,
                                    const struct shm_coll_partition *partition, const void *in)
{
    const struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    const bool is_small = transport_bytes(call) <= SHM_BARRIER_EAGER_BYTES;
    TRY(read_begin(coll, ctx, in, shm_coll_partition_elems(partition, barrier->rank) * each,
                   is_small));
    if (!is_small && !is_visible(coll))
        return shm_bounce_gather(coll, ctx, call, partition, in);
    if (!is_small)
        TRY(shm_barrier_read_begin(&coll->barrier, ctx));
    for (int i = 0; i < barrier->n; i++) {
        int r = (barrier->rank + i) % barrier->n;
        const char *from = r == barrier->rank ? in : source_of(coll, is_small, r);
        for (int k = 0; k < partition->each; k++) {
            const struct part_extent *extent = &partition->extents[r * partition->each + k];
            char *to = (char *)call->out + extent->first * each;
            if (extent->elems > 0 && to != from)
                sum_copy(to, from, extent->elems * each, is_nt(coll, call));
            from += extent->elems * each;
        }
    }
    return read_end(coll, ctx, is_small);
}

enum status shm_coll_gather(struct shm_coll *coll, struct comm_ctx *ctx,
                            const struct comm_call *call,
                            const struct shm_coll_partition *partition, const void *in)
{
    return end_call(coll, gather_partition(coll, ctx, call, partition, in));
}

static enum status all_to_all(struct shm_coll *coll, struct comm_ctx *ctx,
                              const struct comm_call *call)
{
    struct shm_barrier *barrier = &coll->barrier;
    const int64_t part = transport_bytes(call), all = part * barrier->n;
    const bool is_small = all <= SHM_BARRIER_EAGER_BYTES;
    TRY(read_begin(coll, ctx, call->in, all, is_small));
    if (!is_small && !is_visible(coll))
        return shm_bounce_all_to_all(coll, ctx, call);
    if (!is_small)
        TRY(shm_barrier_read_begin(barrier, ctx));
    for (int i = 0; i < barrier->n && part > 0; i++) {
        int r = (barrier->rank + i) % barrier->n;
        sum_copy((char *)call->out + r * part, source_of(coll, is_small, r) + barrier->rank * part,
                 part, is_nt(coll, call));
    }
    return read_end(coll, ctx, is_small);
}

static enum status broadcast_buffer(struct shm_coll *coll, struct comm_ctx *ctx,
                                    const struct comm_call *call)
{
    struct shm_barrier *barrier = &coll->barrier;
    const int64_t bytes = transport_bytes(call);
    bool is_root = barrier->rank == call->peer, is_small = bytes <= SHM_BARRIER_EAGER_BYTES;
    TRY(shm_barrier_enter(barrier, ctx, call->in, is_root ? bytes : 0, NULL, 0,
                          is_root && is_small ? bytes : 0));
    if (!is_small && !is_visible(coll))
        return shm_bounce_broadcast(coll, ctx, call);
    if (!is_small)
        TRY(shm_barrier_read_begin(barrier, ctx));
    if (!is_root && bytes > 0)
        sum_copy(call->out, source_of(coll, is_small, call->peer), bytes, is_nt(coll, call));
    return read_end(coll, ctx, is_small);
}

enum status shm_coll_run(struct shm_coll *coll, struct comm_ctx *ctx, const struct comm_call *call)
{
    struct shm_coll_partition parts;
    enum status st;
    switch (call->kind) {
    case COMM_CALL_ALL_REDUCE:
        st = transport_bytes(call) <= SHM_BARRIER_EAGER_BYTES ? all_reduce_small(coll, ctx, call)
                                                              : all_reduce_large(coll, ctx, call);
        break;
    case COMM_CALL_REDUCE_SCATTER:
        parts = partition_even(coll, call);
        st = reduce_partition(coll, ctx, call, &parts, call->out, call->dtype);
        break;
    case COMM_CALL_ALL_GATHER:
        parts = partition_even(coll, call);
        st = gather_partition(coll, ctx, call, &parts, call->in);
        break;
    case COMM_CALL_ALL_TO_ALL:
        st = all_to_all(coll, ctx, call);
        break;
    case COMM_CALL_BROADCAST:
        st = broadcast_buffer(coll, ctx, call);
        break;
    case COMM_CALL_SEND:
        st = shm_barrier_send(&coll->barrier, ctx, call);
        break;
    case COMM_CALL_RECV:
        st = shm_barrier_recv(&coll->barrier, ctx, call);
        break;
    default: /* or a call that opens or splits */
        ASSERT(call->kind == COMM_CALL_BARRIER || call->kind < COMM_CALL_ALL_REDUCE);
        st = shm_barrier_enter(&coll->barrier, ctx, NULL, 0, NULL, 0, 0);
    }
    return end_call(coll, st);
}
