/* shm_coll — collectives over a shm_barrier. Buffers that not all ranks see go to shm_bounce. Must
 * not know what provides the memory. */
#include "comm/shm/shm_coll.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/core/comm_checksum.h"
#include "comm/core/sum.h"
#include "comm/shm/shm_bounce.h"
#include "comm/shm/shm_check.h"

/* all ranks' buffers together, if sysconf does not know the caches */
#define NT_LEAST_BYTES ((int64_t)8 << 20)

enum status shm_coll_init(struct shm_coll *coll, void *memory, const struct comm_place *place,
                          bool checks)
{
    int n = place->nodes * place->locals;
    /* Data that fit into the last-level cache are faster with ordinary stores: 16 MiB, 2 ranks: 1.2
     * ms, 1.8 ms with non-temporal stores. */
    const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE) / 4 * 3;
    *coll = (struct shm_coll){.nodes = place->nodes,
                              .locals = place->locals,
                              .nt_bytes = cache > NT_LEAST_BYTES ? cache : NT_LEAST_BYTES};
    shm_barrier_init(&coll->barrier, memory, n, place->rank);
    coll->barrier.checks = checks;
    coll->in = calloc((size_t)n, sizeof(*coll->in));
    coll->out = calloc((size_t)n, sizeof(*coll->out));
    coll->parts = calloc((size_t)n, sizeof(*coll->parts));
    coll->sums = calloc((size_t)n, sizeof(*coll->sums));
    coll->block = checks ? aligned_alloc(64, SHM_CHECK_BLOCK_BYTES) : NULL;
    if (coll->in != NULL && coll->out != NULL && coll->parts != NULL && coll->sums != NULL &&
        (!checks || coll->block != NULL))
        return ST_OK;
    shm_coll_free(coll);
    return FAIL(ST_RETRY, "out of memory: scratch arrays of %d ranks", n);
}

void shm_coll_free(struct shm_coll *coll)
{
    free(coll->in);
    free(coll->out);
    free(coll->parts);
    free(coll->sums);
    free(coll->block);
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

/* The parts of part_extent as a partition: one extent for each rank. */
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

/* Adds the next block of each other rank's source to its checksum, sums it, and stores it to all
 * outs. With several outs *own gets the checksum of the sum. */
static void sum_block(struct shm_coll *coll, const struct comm_call *call, int outs_n,
                      enum dtype dtype_out, int64_t elems, uint64_t *own)
{
    const int64_t bytes = elems * (int64_t)dtype_bytes(call->dtype),
                  bytes_out = elems * (int64_t)dtype_bytes(dtype_out);
    void *first = coll->out[0];
    for (int r = 0; r < coll->barrier.n; r++)
        if (r != coll->barrier.rank)
            coll->sums[r] = comm_checksum_add(coll->sums[r], coll->in[r], (size_t)bytes);
    if (outs_n > 1)
        coll->out[0] = coll->block;
    const struct comm_call block = {.dtype = call->dtype};
    shm_coll_sum(coll, &block, 1, dtype_out, elems);
    coll->out[0] = first;
    if (outs_n > 1)
        *own = comm_checksum_add(*own, coll->block, (size_t)bytes_out);
    for (int o = 0; o < outs_n; o++) {
        if (outs_n > 1)
            sum_copy(coll->out[o], coll->block, bytes_out, is_nt(coll, call));
        coll->out[o] = (char *)coll->out[o] + bytes_out;
    }
    for (int r = 0; r < coll->barrier.n; r++)
        coll->in[r] = (const char *)coll->in[r] + bytes;
}

/* shm_coll_sum, with the checksums of what it reads. They go on from coll->sums. */
static void sum_checked(struct shm_coll *coll, const struct comm_call *call, int outs_n,
                        enum dtype dtype_out, int64_t elems, uint64_t *own)
{
    const int64_t most = SHM_CHECK_BLOCK_BYTES / (int64_t)dtype_bytes(call->dtype);
    if (!coll->barrier.checks) {
        shm_coll_sum(coll, call, outs_n, dtype_out, elems);
        return;
    }
    for (int64_t block; elems > 0; elems -= block) {
        block = elems < most ? elems : most;
        sum_block(coll, call, outs_n, dtype_out, block, own);
    }
}

static void clear_sums(struct shm_coll *coll)
{
    memset(coll->sums, 0, sizeof(*coll->sums) * (size_t)coll->barrier.n);
}

/* Compares coll->sums with what each other rank has published for this one. */
static enum status compare_sums(const struct shm_coll *coll, const struct comm_ctx *ctx)
{
    const struct shm_barrier *barrier = &coll->barrier;
    for (int r = 0; r < barrier->n; r++)
        if (r != barrier->rank)
            TRY(shm_check_compare(barrier, ctx, r, barrier->rank, coll->sums[r]));
    return ST_OK;
}

/* Publishes a checksum of each other rank's extents of a buffer, if that rank will read them. */
static void publish_extents(const struct shm_coll *coll, const struct comm_call *call,
                            const struct shm_coll_partition *partition)
{
    const struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    if (!barrier->checks || !shm_barrier_is_visible(barrier, call->in, transport_bytes(call)))
        return;
    for (int r = 0; r < barrier->n; r++) {
        uint64_t sum = 0;
        for (int k = 0; k < partition->each && r != barrier->rank; k++) {
            const struct part_extent *extent = &partition->extents[r * partition->each + k];
            sum = shm_check_sum(sum, (const char *)call->in + extent->first * each,
                                extent->elems * each);
        }
        shm_check_publish(barrier, r, sum);
    }
}

/* The end of every call. After a failure, other ranks must stop using this rank's buffers. */
static enum status end(struct shm_coll *coll, enum status st)
{
    return st == ST_OK ? ST_OK : shm_barrier_fail(&coll->barrier, st);
}

/* Do all ranks see all buffers? Every rank has entered, so the answer is the same on all ranks. */
static bool is_visible(const struct shm_coll *coll)
{
    for (int r = 0; r < coll->barrier.n; r++)
        if (shm_barrier_descriptor(&coll->barrier, r)->in == 0 ||
            shm_barrier_descriptor(&coll->barrier, r)->out == 0)
            return false;
    return true;
}

/* Where rank r's `in` can be read: in its eager slot if the call is small. */
static const char *source_of(const struct shm_coll *coll, bool is_small, int r)
{
    return is_small ? shm_barrier_eager_slot(&coll->barrier, r)
                    : shm_barrier_at(&coll->barrier, shm_barrier_descriptor(&coll->barrier, r)->in);
}

/* ---- all_reduce ---- */

/* Compares all eager slots, `bytes` bytes of each, with checksum 0 of the rank that wrote it. */
static enum status check_slots(const struct shm_coll *coll, const struct comm_ctx *ctx,
                               int64_t bytes)
{
    const struct shm_barrier *barrier = &coll->barrier;
    for (int r = 0; r < barrier->n && barrier->checks; r++)
        if (r != barrier->rank)
            TRY(shm_check_extent(barrier, ctx, r, 0, shm_barrier_eager_slot(barrier, r), bytes));
    return ST_OK;
}

/* The parts that other ranks have stored to this rank's `out`. Each rank's own part has its number
 * of checksum. */
static enum status check_parts(const struct shm_coll *coll, const struct comm_ctx *ctx,
                               const struct comm_call *call)
{
    const struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    for (int r = 0; r < barrier->n && barrier->checks; r++) {
        const struct part_extent part = part_extent(call->elems, barrier->n, r);
        if (r != barrier->rank)
            TRY(shm_check_extent(barrier, ctx, r, r, (const char *)call->out + part.first * each,
                                 part.elems * each));
    }
    return ST_OK;
}

static enum status all_reduce_small(struct shm_coll *coll, struct comm_ctx *ctx,
                                    const struct comm_call *call)
{
    const int64_t bytes = transport_bytes(call);
    shm_check_put(&coll->barrier, 0, call->in, bytes);
    TRY(shm_barrier_enter(&coll->barrier, ctx, call->in, 0, NULL, 0, bytes));
    TRY(check_slots(coll, ctx, bytes));
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
    const struct shm_coll_partition partition = partition_even(coll, call);
    publish_extents(coll, call, &partition);
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
    uint64_t own = 0;
    clear_sums(coll);
    sum_checked(coll, call, barrier->n, call->dtype, part.elems, &own);
    TRY(compare_sums(coll, ctx));
    shm_barrier_read_end(barrier);
    shm_check_publish(barrier, barrier->rank, own);
    TRY(shm_barrier_wait(barrier, ctx));
    return check_parts(coll, ctx, call);
}

enum status shm_coll_all_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                                const struct comm_call *call)
{
    bool is_small = transport_bytes(call) <= SHM_BARRIER_EAGER_BYTES;
    return end(coll,
               is_small ? all_reduce_small(coll, ctx, call) : all_reduce_large(coll, ctx, call));
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

static enum status reduce(struct shm_coll *coll, struct comm_ctx *ctx, const struct comm_call *call,
                          const struct shm_coll_partition *partition, void *out,
                          enum dtype dtype_out)
{
    const bool is_small = transport_bytes(call) <= SHM_BARRIER_EAGER_BYTES;
    struct shm_barrier *barrier = &coll->barrier;
    if (is_small)
        shm_check_put(barrier, 0, call->in, transport_bytes(call));
    else
        publish_extents(coll, call, partition);
    TRY(read_begin(coll, ctx, call->in, transport_bytes(call), is_small));
    if (!is_small && !is_visible(coll))
        return shm_bounce_reduce(coll, ctx, call, partition, out, dtype_out);
    if (!is_small)
        TRY(shm_barrier_read_begin(barrier, ctx));
    if (is_small)
        TRY(check_slots(coll, ctx, transport_bytes(call)));
    char *to = out;
    clear_sums(coll);
    for (int k = 0; k < partition->each; k++) {
        const struct part_extent *extent = &partition->extents[barrier->rank * partition->each + k];
        for (int r = 0; r < barrier->n; r++)
            coll->in[r] =
                source_of(coll, is_small, r) + extent->first * (int64_t)dtype_bytes(call->dtype);
        coll->out[0] = to;
        if (is_small)
            shm_coll_sum(coll, call, 1, dtype_out, extent->elems);
        else
            sum_checked(coll, call, 1, dtype_out, extent->elems, NULL);
        to += extent->elems * (int64_t)dtype_bytes(dtype_out);
    }
    if (!is_small)
        TRY(compare_sums(coll, ctx));
    return read_end(coll, ctx, is_small);
}

enum status shm_coll_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                            const struct comm_call *call,
                            const struct shm_coll_partition *partition, void *out,
                            enum dtype dtype_out)
{
    return end(coll, reduce(coll, ctx, call, partition, out, dtype_out));
}

enum status shm_coll_reduce_scatter(struct shm_coll *coll, struct comm_ctx *ctx,
                                    const struct comm_call *call)
{
    struct shm_coll_partition partition = partition_even(coll, call);
    return shm_coll_reduce(coll, ctx, call, &partition, call->out, call->dtype);
}

/* Copies rank r's packed extents to their places in call->out, and compares their checksum, which
 * is rank r's number 0. */
static enum status copy_extents(struct shm_coll *coll, const struct comm_ctx *ctx,
                                const struct comm_call *call,
                                const struct shm_coll_partition *partition, int r, const char *from)
{
    const struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    uint64_t sum = 0;
    for (int k = 0; k < partition->each; k++) {
        const struct part_extent *extent = &partition->extents[r * partition->each + k];
        char *to = (char *)call->out + extent->first * each;
        if (extent->elems > 0 && to != from)
            shm_check_copy(barrier, &sum, to, from, extent->elems * each, is_nt(coll, call));
        from += extent->elems * each;
    }
    return r == barrier->rank ? ST_OK : shm_check_compare(barrier, ctx, r, 0, sum);
}

/* Publishes the checksum of this rank's packed extents. */
static void publish_packed(const struct shm_coll *coll, const struct comm_call *call,
                           const struct shm_coll_partition *partition, const char *in)
{
    const struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    uint64_t sum = 0;
    for (int k = 0; k < partition->each && barrier->checks; k++) {
        int64_t bytes = partition->extents[barrier->rank * partition->each + k].elems * each;
        sum = shm_check_sum(sum, in, bytes);
        in += bytes;
    }
    shm_check_publish(barrier, 0, sum);
}

static enum status gather(struct shm_coll *coll, struct comm_ctx *ctx, const struct comm_call *call,
                          const struct shm_coll_partition *partition, const void *in)
{
    const struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    const bool is_small = transport_bytes(call) <= SHM_BARRIER_EAGER_BYTES;
    const int64_t bytes = shm_coll_partition_elems(partition, barrier->rank) * each;
    if (is_small || shm_barrier_is_visible(barrier, in, bytes))
        publish_packed(coll, call, partition, in);
    TRY(read_begin(coll, ctx, in, bytes, is_small));
    if (!is_small && !is_visible(coll))
        return shm_bounce_gather(coll, ctx, call, partition, in);
    if (!is_small)
        TRY(shm_barrier_read_begin(&coll->barrier, ctx));
    for (int i = 0; i < barrier->n; i++) {
        int r = (barrier->rank + i) % barrier->n;
        TRY(copy_extents(coll, ctx, call, partition, r,
                         r == barrier->rank ? in : source_of(coll, is_small, r)));
    }
    return read_end(coll, ctx, is_small);
}

enum status shm_coll_gather(struct shm_coll *coll, struct comm_ctx *ctx,
                            const struct comm_call *call,
                            const struct shm_coll_partition *partition, const void *in)
{
    return end(coll, gather(coll, ctx, call, partition, in));
}

enum status shm_coll_all_gather(struct shm_coll *coll, struct comm_ctx *ctx,
                                const struct comm_call *call)
{
    struct shm_coll_partition partition = partition_even(coll, call);
    return shm_coll_gather(coll, ctx, call, &partition, call->in);
}

static enum status all_to_all(struct shm_coll *coll, struct comm_ctx *ctx,
                              const struct comm_call *call)
{
    struct shm_barrier *barrier = &coll->barrier;
    const int64_t part = transport_bytes(call), all = part * barrier->n;
    const bool is_small = all <= SHM_BARRIER_EAGER_BYTES;
    const bool is_read = is_small || shm_barrier_is_visible(barrier, call->in, all);
    for (int r = 0; r < barrier->n && is_read && part > 0; r++)
        if (r != barrier->rank)
            shm_check_put(barrier, r, (const char *)call->in + r * part, part);
    TRY(read_begin(coll, ctx, call->in, all, is_small));
    if (!is_small && !is_visible(coll))
        return shm_bounce_all_to_all(coll, ctx, call);
    if (!is_small)
        TRY(shm_barrier_read_begin(barrier, ctx));
    for (int i = 0; i < barrier->n && part > 0; i++) {
        int r = (barrier->rank + i) % barrier->n;
        uint64_t sum = 0;
        shm_check_copy(barrier, &sum, (char *)call->out + r * part,
                       source_of(coll, is_small, r) + barrier->rank * part, part,
                       is_nt(coll, call));
        if (r != barrier->rank)
            TRY(shm_check_compare(barrier, ctx, r, barrier->rank, sum));
    }
    return read_end(coll, ctx, is_small);
}

enum status shm_coll_all_to_all(struct shm_coll *coll, struct comm_ctx *ctx,
                                const struct comm_call *call)
{
    return end(coll, all_to_all(coll, ctx, call));
}

static enum status broadcast(struct shm_coll *coll, struct comm_ctx *ctx,
                             const struct comm_call *call)
{
    struct shm_barrier *barrier = &coll->barrier;
    const int64_t bytes = transport_bytes(call);
    bool is_root = barrier->rank == call->peer, is_small = bytes <= SHM_BARRIER_EAGER_BYTES;
    uint64_t sum = 0;
    if (is_root && (is_small || shm_barrier_is_visible(barrier, call->in, bytes)))
        shm_check_put(barrier, 0, call->in, bytes);
    TRY(shm_barrier_enter(barrier, ctx, call->in, is_root ? bytes : 0, NULL, 0,
                          is_root && is_small ? bytes : 0));
    if (!is_small && !is_visible(coll))
        return shm_bounce_broadcast(coll, ctx, call);
    if (!is_small)
        TRY(shm_barrier_read_begin(barrier, ctx));
    if (!is_root && bytes > 0) {
        shm_check_copy(barrier, &sum, call->out, source_of(coll, is_small, call->peer), bytes,
                       is_nt(coll, call));
        TRY(shm_check_compare(barrier, ctx, call->peer, 0, sum));
    }
    return read_end(coll, ctx, is_small);
}

enum status shm_coll_broadcast(struct shm_coll *coll, struct comm_ctx *ctx,
                               const struct comm_call *call)
{
    return end(coll, broadcast(coll, ctx, call));
}

/* ---- messages, barrier ---- */

enum status shm_coll_send(struct shm_coll *coll, struct comm_ctx *ctx, const struct comm_call *call)
{
    return end(coll, shm_barrier_send(&coll->barrier, ctx, call));
}

enum status shm_coll_recv(struct shm_coll *coll, struct comm_ctx *ctx, const struct comm_call *call)
{
    return end(coll, shm_barrier_recv(&coll->barrier, ctx, call));
}

enum status shm_coll_barrier(struct shm_coll *coll, struct comm_ctx *ctx,
                             const struct comm_call *call)
{
    (void)call;
    return end(coll, shm_barrier_enter(&coll->barrier, ctx, NULL, 0, NULL, 0, 0));
}
