/* shm_check — blocks, and the error. */
#include "comm/shm/shm_check.h"

#include "comm/core/comm_checksum.h"
#include "comm/core/sum.h"

static int64_t block_of(int64_t bytes)
{
    return bytes < SHM_CHECK_BLOCK_BYTES ? bytes : SHM_CHECK_BLOCK_BYTES;
}

uint64_t shm_check_sum(uint64_t so_far, const void *data, int64_t bytes)
{
    const char *at = data;
    for (int64_t block; bytes > 0; at += block, bytes -= block) {
        block = block_of(bytes);
        so_far = comm_checksum_add(so_far, at, (size_t)block);
    }
    return so_far;
}

void shm_check_copy(const struct shm_barrier *barrier, uint64_t *sum, void *out, const void *in,
                    int64_t bytes, bool is_nt)
{
    const char *from = in;
    char *to = out;
    if (!barrier->checks && bytes > 0)
        sum_copy(to, from, bytes, is_nt);
    for (int64_t block; barrier->checks && bytes > 0; from += block, to += block, bytes -= block) {
        block = block_of(bytes);
        *sum = comm_checksum_add(*sum, from, (size_t)block);
        sum_copy(to, from, block, is_nt);
    }
}

/* Like the descriptors, two alternate by phase. */
void shm_check_publish(const struct shm_barrier *barrier, int i, uint64_t sum)
{
    if (barrier->checks)
        barrier->peers[barrier->rank].sums[(barrier->phase + 1) & 1][i] = sum;
}

void shm_check_put(const struct shm_barrier *barrier, int i, const void *data, int64_t bytes)
{
    if (barrier->checks)
        shm_check_publish(barrier, i, shm_check_sum(0, data, bytes));
}

enum status shm_check_fail(const struct comm_ctx *ctx, int r)
{
    const struct comm_call *call = ctx->call;
    const struct comm_ctx *root = ctx;
    while (root->parent != NULL)
        root = root->parent;
    return FAIL(
        ST_PEER,
        "what rank %d gave in %s %lld was damaged in the memory that the workers of node %d "
        "share: rank %d read other bytes; if this happens again, test this node's memory "
        "(convoy check)",
        transport_root_rank(ctx, r), transport_call_name(call->kind), (long long)call->sequence,
        root->config.place.node, transport_root_rank(ctx, ctx->config.place.rank));
}

enum status shm_check_compare(const struct shm_barrier *barrier, const struct comm_ctx *ctx, int r,
                              int i, uint64_t sum)
{
    return !barrier->checks || barrier->peers[r].sums[barrier->phase & 1][i] == sum
               ? ST_OK
               : shm_check_fail(ctx, r);
}

enum status shm_check_extent(const struct shm_barrier *barrier, const struct comm_ctx *ctx, int r,
                             int i, const void *data, int64_t bytes)
{
    return barrier->checks ? shm_check_compare(barrier, ctx, r, i, shm_check_sum(0, data, bytes))
                           : ST_OK;
}
