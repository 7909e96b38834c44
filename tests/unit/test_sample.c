/* test_sample — the choice of the next token follows its probabilities, and no character is cut on the way out. */
#include "train/sample.h"

#include <math.h>

#include "base/rand.h"
#include "harness.h"

static float work[8];

static void test_greedy(void **state)
{
    (void)state;
    const float logits[5] = {0, 3, -1, 3, 2};
    assert_int_equal(sample_pick(logits, 5, 0, 0, 0.99, work), 1); /* the first of the largest */
    assert_int_equal(sample_pick(logits, 5, 1, 1, 0.99, work), 1);
    const float broken[4] = {NAN, 1, INFINITY, 2};
    assert_int_equal(sample_pick(broken, 4, 0, 0, 0, work), 3);
    for (int i = 0; i < 20; i++)
        assert_true(sample_pick(broken, 4, 1, 0, i / 20.0, work) % 2 == 1);
}

static void count(const float *logits, double temperature, int64_t top_k, double share[4])
{
    enum { N = 40000 };
    for (int i = 0; i < 4; i++)
        share[i] = 0;
    for (int i = 0; i < N; i++)
        share[sample_pick(logits, 4, temperature, top_k, rand_uniform(1, RAND_STREAM(TEST, 0), (uint64_t)i),
                          work)] += 1.0 / N;
}

static void test_shares(void **state)
{
    (void)state;
    const float logits[4] = {logf(1), logf(2), logf(4), logf(1)};
    double share[4];
    count(logits, 1, 0, share);
    assert_float_equal(share[0], 0.125, 0.01);
    assert_float_equal(share[1], 0.25, 0.01);
    assert_float_equal(share[2], 0.5, 0.01);
    count(logits, 0.5, 0, share); /* squares: 1 4 16 1 */
    assert_float_equal(share[2], 16.0 / 22, 0.01);
    count(logits, 1, 2, share);
    assert_float_equal(share[0] + share[3], 0, 0);
    assert_float_equal(share[1], 1.0 / 3, 0.01);
    count(logits, 1, 3, share); /* the third and the fourth are equal: both are in */
    assert_true(share[0] > 0.1 && share[3] > 0.1);
}

static void test_ends(void **state)
{
    (void)state;
    const float logits[3] = {-1000, 0, -1000};
    assert_int_equal(sample_pick(logits, 3, 1, 0, 0, work), 1);
    assert_int_equal(sample_pick(logits, 3, 1, 0, nextafter(1, 0), work), 1);
    assert_int_equal(sample_pick(logits, 1, 1, 5, 0.5, work), 0);
    const float huge[2] = {3e38f, -3e38f};
    assert_int_equal(sample_pick(huge, 2, 1e-30, 0, 0.5, work), 0);
}

static void test_utf8(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        size_t n, whole;
    } row[] = {{"", 0, 0},
               {"abc", 3, 3},
               {"a\xC3", 2, 1},
               {"a\xC3\xA9", 3, 3},
               {"\xE2\x82", 2, 0},
               {"\xE2\x82\xAC", 3, 3},
               {"x\xF0\x9F\x98", 4, 1},
               {"\xF0\x9F\x98\x80", 4, 4},
               {"\xFF", 1, 1},
               {"\x80\x80\x80\x80", 4, 4},
               {"\xC0", 1, 1},
               {"\xE2\x82\xAC\xE2", 4, 3}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        assert_int_equal(sample_utf8_whole((const uint8_t *)row[i].bytes, row[i].n), row[i].whole);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_greedy),
    cmocka_unit_test(test_shares),
    cmocka_unit_test(test_ends),
    cmocka_unit_test(test_utf8),
};
HARNESS_MAIN(tests)
