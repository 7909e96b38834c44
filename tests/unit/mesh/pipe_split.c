/* pipe_split — contiguous runs of all layers, none empty; the costliest chunk costs as little
 * as any split allows; costs count embedding, head and recomputation. */
#include "harness.h"

#include "base/rand.h"
#include "mesh/pipe/split.h"

enum { LAYERS_MAX = 9, CHUNKS_MAX = 8 };

static double most_of(const double *cost, int64_t layers, const int64_t *first, int chunks_n)
{
    double most = 0;
    for (int chunk = 0; chunk < chunks_n; chunk++) {
        double load = (chunk == 0 ? cost[0] : 0) + (chunk == chunks_n - 1 ? cost[layers + 1] : 0);
        for (int64_t i = first[chunk]; i < first[chunk + 1]; i++)
            load += cost[1 + i];
        most = load > most ? load : most;
    }
    return most;
}

/* The best of all splits, by trying them. */
static double try_all(const double *cost, int64_t layers, int chunks_n, int64_t *first, int chunk)
{
    double best = 1e300;
    if (chunk == chunks_n) {
        first[chunks_n] = layers;
        return first[chunks_n - 1] < layers ? most_of(cost, layers, first, chunks_n) : best;
    }
    int64_t begin = chunk == 0 ? 0 : first[chunk - 1] + 1;
    for (int64_t at = begin; at <= (chunk == 0 ? 0 : layers - 1); at++) {
        first[chunk] = at;
        double most = try_all(cost, layers, chunks_n, first, chunk + 1);
        best = most < best ? most : best;
    }
    return best;
}

static void check_split(const double *cost, int64_t layers, int stages, int chunks)
{
    int chunks_n = stages * chunks;
    int64_t first[CHUNKS_MAX + 1], tried[CHUNKS_MAX + 1];
    if (chunks_n > layers) {
        assert_int_equal(pipe_split(cost, layers, stages, chunks, first), ST_BAD_SETTING);
        return;
    }
    assert_int_equal(pipe_split(cost, layers, stages, chunks, first), ST_OK);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[chunks_n], layers);
    for (int chunk = 0; chunk < chunks_n; chunk++)
        assert_true(first[chunk] < first[chunk + 1]);
    double best = try_all(cost, layers, chunks_n, tried, 0);
    assert_true(most_of(cost, layers, first, chunks_n) <= best * (1 + 1e-9));
}

TEST(test_best)
{
    double cost[LAYERS_MAX + 2];
    for (uint64_t draw = 0; draw < 20; draw++)
        for (int64_t layers = 1; layers <= LAYERS_MAX; layers++) {
            for (int64_t i = 0; i < layers + 2; i++)
                cost[i] = draw == 0 ? 1 : (double)(rand_u64(1, draw, (uint64_t)i) % 100 + 1);
            for (int stages = 1; stages <= 4; stages++)
                for (int chunks = 1; stages * chunks <= CHUNKS_MAX; chunks++)
                    check_split(cost, layers, stages, chunks);
        }
}

/* A head as costly as three layers leaves the last stage one layer; of splits that are as good,
 * early stages get less. */
TEST(test_ends)
{
    double cost[12] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
    int64_t first[5];
    assert_int_equal(pipe_split(cost, 9, 4, 1, first), ST_OK);
    assert_int_equal(first[1], 2);
    assert_int_equal(first[2], 5);
    assert_int_equal(first[3], 8);
    cost[10] = 0;
    assert_int_equal(pipe_split(cost, 9, 2, 1, first), ST_OK);
    assert_int_equal(first[1], 4);
}

TEST(test_costs)
{
    struct model_dims dims;
    double cost[14], again[14];
    assert_true(model_preset("gpt2", &dims));
    pipe_split_costs(&dims, 1024, (struct model_recomputed){0}, cost);
    pipe_split_costs(&dims, 1024, (struct model_recomputed){MODEL_RECOMPUTE_BLOCK, 5}, again);
    double all = 0;
    for (int i = 1; i < 14; i++)
        all += cost[i];
    assert_true(all == model_flops_per_token(&dims, 1024));
    assert_true(cost[0] == 3.0 * 768);
    assert_true(cost[13] == 6.0 * 50257 * 768);
    assert_true(again[5] > 1.3 * cost[5] && again[13] == cost[13]);
    /* attention: the product that makes q, k and v, and attention, forward */
    double more = 2.0 * 3 * 768 * 768 + 2.0 * 1024 * 768;
    assert_float_equal(again[6], cost[6] + more, 1);
    pipe_split_costs(&dims, 1024, (struct model_recomputed){MODEL_RECOMPUTE_ATTENTION, 1}, again);
    assert_true(again[1] == cost[1] + more && again[2] == cost[2]);
}

TEST(test_shard)
{
    const int64_t first[7] = {0, 2, 4, 6, 8, 9, 10};
    struct model_shard shard = {.tensor_ranks = 2};
    pipe_split_shard(first, 3, 2, 1, &shard);
    assert_true(shard.lacks_embed && shard.lacks_head && shard.tensor_ranks == 2);
    assert_int_equal(shard.chunks_n, 2);
    assert_int_equal(shard.chunk[0].first, 2);
    assert_int_equal(shard.chunk[0].n, 2);
    assert_int_equal(shard.chunk[1].first, 8);
    assert_int_equal(shard.chunk[1].n, 1);
    pipe_split_shard(first, 3, 2, 2, &shard);
    assert_true(shard.lacks_embed && !shard.lacks_head);
}

HARNESS_RUN_ALL()
