/* shm_bounce — collectives through bounce buffers, for ranks that share memory but cannot see each
 * other's buffers. Must not know how the memory is provided.
 *
 * A call runs in rounds. In each round every rank copies a chunk into its bounce buffer. All ranks
 * wait at a barrier. Then every rank copies or sums the chunks that it needs. Bounce buffers exist
 * twice and alternate by round: a rank that overwrites round j in round j+2 has met all ranks in
 * round j+1, so no rank still reads round j. Call these functions after all ranks have entered the
 * call: by then all have left the previous one. */
#include "comm/shm/coll.h"

#include <string.h>

#include "base/assert.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t at_least_0(int64_t a) { return a > 0 ? a : 0; }
static int64_t rounds_of(int64_t elems, int64_t chunk)
{
    return elems / chunk + (elems % chunk != 0);
}

/* Returns the elements of one of `parts` equal chunks of a bounce buffer. */
static int64_t chunk_elems(const struct comm_call *call, int chunks)
{
    int64_t elems = SHM_BARRIER_BOUNCE_BYTES / chunks / (int64_t)dtype_bytes(call->dtype);
    ASSERTF(elems >= PART_ALIGN, "%d chunks of a bounce buffer", chunks);
    return elems / PART_ALIGN * PART_ALIGN;
}

enum status shm_bounce_all_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                                  const struct comm_call *call)
{
    struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype), chunk = chunk_elems(call, 1);
    for (int64_t j = 0, rounds = rounds_of(call->elems, chunk); j < rounds; j++) {
        const int64_t first = j * chunk, elems = least(chunk, call->elems - first);
        memcpy(shm_barrier_bounce(barrier, barrier->rank, j), (const char *)call->in + first * each,
               (size_t)(elems * each));
        TRY(shm_barrier_wait(barrier, ctx));
        struct part_extent part = part_extent(elems, barrier->n, barrier->rank);
        for (int r = 0; r < barrier->n; r++)
            coll->in[r] = shm_barrier_bounce(barrier, r, j) + part.first * each;
        /* The sum replaces the part of this rank's own bounce buffer: no other rank reads that
         * before the second barrier. */
        coll->out[0] = shm_barrier_bounce(barrier, barrier->rank, j) + part.first * each;
        shm_coll_sum(coll, &(struct comm_call){.dtype = call->dtype}, 1, call->dtype, part.elems);
        TRY(shm_barrier_wait(barrier, ctx));
        for (int r = 0; r < barrier->n; r++) {
            part = part_extent(elems, barrier->n, r);
            memcpy((char *)call->out + (first + part.first) * each,
                   shm_barrier_bounce(barrier, r, j) + part.first * each,
                   (size_t)(part.elems * each));
        }
    }
    return ST_OK;
}

/* Copies elements [first, first + n) of rank r's packed extents between a buffer and a bounce
 * buffer. */
static void partition_copy(const struct shm_coll_partition *partition, int r, int64_t first,
                           int64_t n, int64_t each, char *buffer, char *bounce, bool to_bounce)
{
    for (int k = 0; k < partition->each && n > 0; k++) {
        const struct part_extent *extent = &partition->extents[r * partition->each + k];
        if (first >= extent->elems) {
            first -= extent->elems;
            continue;
        }
        int64_t here = least(n, extent->elems - first);
        char *at = buffer + (extent->first + first) * each;
        memcpy(to_bounce ? bounce : at, to_bounce ? at : bounce, (size_t)(here * each));
        bounce += here * each;
        first = 0;
        n -= here;
    }
}

static int64_t partition_rounds(const struct shm_coll *coll,
                                const struct shm_coll_partition *partition, int64_t chunk)
{
    int64_t most = 0;
    for (int r = 0; r < coll->barrier.n; r++) {
        int64_t rounds = rounds_of(shm_coll_partition_elems(partition, r), chunk);
        most = rounds > most ? rounds : most;
    }
    return most;
}

/* Returns the elements of rank r's part in a round. */
static int64_t round_elems(const struct shm_coll_partition *partition, int r, int64_t round,
                           int64_t chunk)
{
    return least(chunk, at_least_0(shm_coll_partition_elems(partition, r) - round * chunk));
}

enum status shm_bounce_reduce(struct shm_coll *coll, struct comm_ctx *ctx,
                              const struct comm_call *call,
                              const struct shm_coll_partition *partition, void *out,
                              enum dtype dtype_out)
{
    struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype), chunk = chunk_elems(call, barrier->n);
    for (int64_t j = 0, rounds = partition_rounds(coll, partition, chunk); j < rounds; j++) {
        for (int r = 0; r < barrier->n; r++)
            partition_copy(partition, r, j * chunk, round_elems(partition, r, j, chunk), each,
                           (char *)(uintptr_t)call->in,
                           shm_barrier_bounce(barrier, barrier->rank, j) + r * chunk * each, true);
        TRY(shm_barrier_wait(barrier, ctx));
        for (int r = 0; r < barrier->n; r++)
            coll->in[r] = shm_barrier_bounce(barrier, r, j) + barrier->rank * chunk * each;
        coll->out[0] = (char *)out + j * chunk * (int64_t)dtype_bytes(dtype_out);
        shm_coll_sum(coll, &(struct comm_call){.dtype = call->dtype}, 1, dtype_out,
                     round_elems(partition, barrier->rank, j, chunk));
    }
    return ST_OK;
}

enum status shm_bounce_gather(struct shm_coll *coll, struct comm_ctx *ctx,
                              const struct comm_call *call,
                              const struct shm_coll_partition *partition, const void *in)
{
    struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype), chunk = chunk_elems(call, 1);
    for (int64_t j = 0, rounds = partition_rounds(coll, partition, chunk); j < rounds; j++) {
        const int64_t here = round_elems(partition, barrier->rank, j, chunk);
        if (here > 0)
            memcpy(shm_barrier_bounce(barrier, barrier->rank, j),
                   (const char *)in + j * chunk * each, (size_t)(here * each));
        TRY(shm_barrier_wait(barrier, ctx));
        for (int r = 0; r < barrier->n; r++)
            partition_copy(partition, r, j * chunk, round_elems(partition, r, j, chunk), each,
                           call->out, shm_barrier_bounce(barrier, r, j), false);
    }
    return ST_OK;
}

enum status shm_bounce_all_to_all(struct shm_coll *coll, struct comm_ctx *ctx,
                                  const struct comm_call *call)
{
    struct shm_barrier *barrier = &coll->barrier;
    const int64_t each = (int64_t)dtype_bytes(call->dtype),
                  chunk = chunk_elems(call, barrier->n) * each;
    const int64_t part = call->elems * each;
    for (int64_t j = 0, rounds = rounds_of(part, chunk); j < rounds; j++) {
        const size_t here = (size_t)least(chunk, part - j * chunk);
        for (int r = 0; r < barrier->n; r++)
            memcpy(shm_barrier_bounce(barrier, barrier->rank, j) + r * chunk,
                   (const char *)call->in + r * part + j * chunk, here);
        TRY(shm_barrier_wait(barrier, ctx));
        for (int r = 0; r < barrier->n; r++)
            memcpy((char *)call->out + r * part + j * chunk,
                   shm_barrier_bounce(barrier, r, j) + barrier->rank * chunk, here);
    }
    return ST_OK;
}

enum status shm_bounce_broadcast(struct shm_coll *coll, struct comm_ctx *ctx,
                                 const struct comm_call *call)
{
    struct shm_barrier *barrier = &coll->barrier;
    const int64_t bytes = transport_bytes(call);
    for (int64_t j = 0, rounds = rounds_of(bytes, SHM_BARRIER_BOUNCE_BYTES); j < rounds; j++) {
        const size_t here =
            (size_t)least(SHM_BARRIER_BOUNCE_BYTES, bytes - j * SHM_BARRIER_BOUNCE_BYTES);
        if (barrier->rank == call->peer)
            memcpy(shm_barrier_bounce(barrier, barrier->rank, j),
                   (const char *)call->in + j * SHM_BARRIER_BOUNCE_BYTES, here);
        TRY(shm_barrier_wait(barrier, ctx));
        if (barrier->rank != call->peer)
            memcpy((char *)call->out + j * SHM_BARRIER_BOUNCE_BYTES,
                   shm_barrier_bounce(barrier, call->peer, j), here);
    }
    return ST_OK;
}
