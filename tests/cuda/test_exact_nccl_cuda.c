/* test_exact_nccl_cuda — EXACT=layout on the CUDA device without a GPU: weights have the bits of
 * one GPU on any number of ranks, with every SHARD and PRECISION, staged through host memory and
 * over the tests' own NCCL, which adds around a ring. Streams run at the same time (streams.h), so
 * no stream lacks a wait for another one. */
#define GUARDED_STREAMS
#include "kernel_test.h"

#include "tests/cuda/nccl_ranks.h"

#define RANKS 4

static struct trial exact_of(int shards, enum dtype dtype)
{
    struct trial like = trial_tiny(8, 3);
    like.steps = 3;
    like.config.shards = shards;
    like.config.store.dtype = dtype;
    return like;
}

static void same(struct trial like, const struct trial *want, int ranks, int form)
{
    char what[96];
    struct trial got = nccl_ranks_run(like, ranks, form);
    text_format(what, sizeof what, "%d ranks, %d virtual shards, shard %d, dtype %d, form %d",
                ranks, like.config.shards, (int)like.config.store.shard,
                (int)like.config.store.dtype, form);
    trial_same(&got, want, what);
    trial_free(&got);
}

static void same_on_ranks(struct trial like, int ranks_first, int ranks_last)
{
    struct trial want = nccl_ranks_run(like, 1, STAGED);
    assert_true(isfinite(want.loss[like.steps - 1]));
    for (int ranks = ranks_first; ranks <= ranks_last; ranks++)
        for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
            like.config.store.shard = (enum layout_shard)shard;
            same(like, &want, ranks, EAGER + shard % 2);
            if (shard % 3 == 0)
                same(like, &want, ranks, STAGED);
        }
    trial_free(&want);
}

TEST(every_shard) { same_on_ranks(exact_of(8, DTYPE_F32), 2, RANKS); }

TEST(sixteen_bits)
{
    same_on_ranks(exact_of(8, DTYPE_BF16), 3, 3);
    same_on_ranks(exact_of(8, DTYPE_F16), 2, 2);
}

/* Shards of two micro-batches; one shard on each rank. */
TEST(other_shards)
{
    struct trial like = exact_of(4, DTYPE_F32);
    same_on_ranks(like, RANKS, RANKS);
    like.config.batch_samples = 2;
    same_on_ranks(like, 2, 3);
}

/* That the tests above can fail. */
TEST(without_shards_the_ring_is_in_the_bits)
{
    struct trial like = exact_of(0, DTYPE_F32), tree = nccl_ranks_run(like, RANKS, STAGED),
                 ring = nccl_ranks_run(like, RANKS, EAGER);
    assert_memory_not_equal(tree.state[0], ring.state[0], (size_t)ring.elems * sizeof(float));
    trial_free(&tree);
    trial_free(&ring);
}

int main(void)
{
    harness_quiet();
    nccl_ranks_begin(RANKS);
    atomic_store(&knobs->adds_in_ring, 1);
    return harness_run_all(__FILE__, NULL, NULL);
}
