/* pipe_split — contiguous runs of all layers, none empty; the costliest chunk costs as little
 * as any split allows; costs count embedding, head and recomputation. */
#include "harness.h"

#include "base/rand.h"
#include "mesh/pipe/split.h"

enum { LAYERS_MAX = 9, PARTS_MAX = 8 };

static double most_of(const double *cost, int64_t layers, const int64_t *first, int parts)
{
    double most = 0;
    for (int part = 0; part < parts; part++) {
        double load = (part == 0 ? cost[0] : 0) + (part == parts - 1 ? cost[layers + 1] : 0);
        for (int64_t i = first[part]; i < first[part + 1]; i++)
            load += cost[1 + i];
        most = load > most ? load : most;
    }
    return most;
}

/* The best of all splits, by trying them. */
static double try_all(const double *cost, int64_t layers, int parts, int64_t *first, int part)
{
    double best = 1e300;
    if (part == parts) {
        first[parts] = layers;
        return first[parts - 1] < layers ? most_of(cost, layers, first, parts) : best;
    }
    int64_t begin = part == 0 ? 0 : first[part - 1] + 1;
    for (int64_t at = begin; at <= (part == 0 ? 0 : layers - 1); at++) {
        first[part] = at;
        double most = try_all(cost, layers, parts, first, part + 1);
        best = most < best ? most : best;
    }
    return best;
}

static void check_split(const double *cost, int64_t layers, int stages, int chunks)
{
    int parts = stages * chunks;
    int64_t first[PARTS_MAX + 1], tried[PARTS_MAX + 1];
    if (parts > layers) {
        assert_int_equal(pipe_split(cost, layers, stages, chunks, first), ST_BAD_SETTING);
        return;
    }
    assert_int_equal(pipe_split(cost, layers, stages, chunks, first), ST_OK);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[parts], layers);
    for (int part = 0; part < parts; part++)
        assert_true(first[part] < first[part + 1]);
    double best = try_all(cost, layers, parts, tried, 0);
    assert_true(most_of(cost, layers, first, parts) <= best * (1 + 1e-9));
}

static void test_best(void **state)
{
    double cost[LAYERS_MAX + 2];
    for (uint64_t draw = 0; draw < 20; draw++)
        for (int64_t layers = 1; layers <= LAYERS_MAX; layers++) {
            for (int64_t i = 0; i < layers + 2; i++)
                cost[i] = draw == 0 ? 1 : (double)(rand_u64(1, draw, (uint64_t)i) % 100 + 1);
            for (int stages = 1; stages <= 4; stages++)
                for (int chunks = 1; stages * chunks <= PARTS_MAX; chunks++)
                    check_split(cost, layers, stages, chunks);
        }
}

/* A head as costly as three layers leaves the last stage one layer; of splits that are as good,
 * early stages get less. */
static void test_ends(void **state)
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

static void test_costs(void **state)
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

static void test_part(void **state)
{
    const int64_t first[7] = {0, 2, 4, 6, 8, 9, 10};
    struct model_part part = {.tensor_ranks = 2};
    pipe_split_part(first, 3, 2, 1, &part);
    assert_true(part.lacks_embed && part.lacks_head && part.tensor_ranks == 2);
    assert_int_equal(part.chunks_n, 2);
    assert_int_equal(part.chunk[0].first, 2);
    assert_int_equal(part.chunk[0].n, 2);
    assert_int_equal(part.chunk[1].first, 8);
    assert_int_equal(part.chunk[1].n, 1);
    pipe_split_part(first, 3, 2, 2, &part);
    assert_true(part.lacks_embed && !part.lacks_head);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_best), cmocka_unit_test(test_ends),
                                          cmocka_unit_test(test_costs),
                                          cmocka_unit_test(test_part)};
HARNESS_MAIN(tests)
