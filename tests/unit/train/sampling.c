/* sampling — the next token follows its probabilities, and no UTF-8 character is cut in the
 * output. */
#include "train/generate/sampling.h"

#include <math.h>

#include "base/rand.h"
#include "harness.h"

static float work[8];

static int64_t pick(const float *logits, int64_t n, double temperature, int64_t top_k, double top_p,
                    double u)
{
    return sampling_pick(logits, n, &(struct sampling_params){temperature, top_k, top_p}, u, work);
}

static void test_greedy(void **state)
{
    const float logits[5] = {0, 3, -1, 3, 2};
    assert_int_equal(pick(logits, 5, 0, 0, 1, 0.99), 1); /* the first of the largest */
    assert_int_equal(pick(logits, 5, 1, 1, 1, 0.99), 1);
    assert_int_equal(pick(logits, 5, 1, 0, 0, 0.99), 1);
    assert_int_equal(pick(logits, 5, 0, 4, 0.5, 0.99), 1);
}

static void test_not_finite(void **state)
{
    const float nan[4] = {0, 1, 2, NAN}, most[4] = {0, 1, INFINITY, 2},
                none[2] = {-INFINITY, -INFINITY};
    for (int greedy = 0; greedy < 2; greedy++) {
        assert_int_equal(pick(nan, 4, !greedy, 2, 0.9, 0.5), -1);
        assert_int_equal(pick(most, 4, !greedy, 0, 1, 0.5), -1);
        assert_int_equal(pick(none, 2, !greedy, 0, 1, 0.5), -1);
    }
    const float masked[4] = {-INFINITY, 1, -INFINITY, 1}; /* tokens with -INFINITY are valid */
    assert_int_equal(pick(masked, 4, 0, 0, 1, 0), 1);
    for (int i = 0; i < 20; i++)
        for (int k = 0; k < 5; k++)
            assert_true(pick(masked, 4, 1, k, 0.999, i / 20.0) % 2 == 1);
}

static void count(const float *logits, double temperature, int64_t top_k, double top_p,
                  double share[4])
{
    enum { N = 40000 };
    for (int i = 0; i < 4; i++)
        share[i] = 0;
    for (int i = 0; i < N; i++)
        share[pick(logits, 4, temperature, top_k, top_p,
                   rand_uniform(1, RAND_STREAM(TEST, 0), (uint64_t)i))] += 1.0 / N;
}

static void test_shares(void **state)
{
    const float logits[4] = {logf(1), logf(2), logf(4), logf(1)};
    double share[4];
    count(logits, 1, 0, 1, share);
    assert_float_equal(share[0], 0.125, 0.01);
    assert_float_equal(share[1], 0.25, 0.01);
    assert_float_equal(share[2], 0.5, 0.01);
    count(logits, 0.5, 0, 1, share); /* squares: 1 4 16 1 */
    assert_float_equal(share[2], 16.0 / 22, 0.01);
    count(logits, 1, 2, 1, share);
    assert_float_equal(share[0] + share[3], 0, 0);
    assert_float_equal(share[1], 1.0 / 3, 0.01);
    count(logits, 1, 3, 1, share); /* the third and the fourth are equal: both are in */
    assert_true(share[0] > 0.1 && share[3] > 0.1);
}

/* Probabilities ⅛ ¼ ½ ⅛: the nucleus grows by one token where the share passes ½, ¾, ⅞. */
static void test_nucleus(void **state)
{
    const float logits[4] = {logf(1), logf(2), logf(4), logf(1)};
    const struct {
        double p;
        int n; /* tokens in */
    } row[] = {{1e-9, 1}, {0.49, 1}, {0.51, 2},   {0.74, 2}, {0.76, 3},
               {0.87, 3}, {0.88, 4}, {0.9999, 4}, {1, 4}};
    double share[4];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        count(logits, 1, 0, row[i].p, share);
        assert_true(share[2] > 0.4);
        assert_int_equal(share[1] > 0, row[i].n > 1);
        assert_int_equal(share[0] > 0, row[i].n > 2); /* of two equals the lower id comes first */
        assert_int_equal(share[3] > 0, row[i].n > 3);
    }
    count(logits, 1, 0, 0.76, share);
    assert_float_equal(share[2], 4.0 / 7, 0.01);
    count(logits, 1, 2, 0.6, share); /* of what top_k = 2 leaves, ⅔ is the first */
    assert_float_equal(share[2], 1, 1e-6);
    count(logits, 1, 2, 0.7, share);
    assert_float_equal(share[1], 1.0 / 3, 0.01);
    count(logits, 0.5, 0, 0.7, share); /* after the temperature: 16 of 22 are over 0.7 */
    assert_float_equal(share[2], 1, 1e-6);
    const float equal[4] = {2, 2, 2, 2};
    count(equal, 1, 0, 0.5, share);
    assert_float_equal(share[0], 0.5, 0.01);
    assert_float_equal(share[1], 0.5, 0.01);
}

static void test_ends(void **state)
{
    const float logits[3] = {-1000, 0, -1000};
    assert_int_equal(pick(logits, 3, 1, 0, 1, 0), 1);
    assert_int_equal(pick(logits, 3, 1, 0, 1, nextafter(1, 0)), 1);
    assert_int_equal(pick(logits, 1, 1, 5, 0.5, 0.5), 0);
    const float huge[2] = {3e38f, -3e38f};
    assert_int_equal(pick(huge, 2, 1e-30, 0, 0.9, 0.5), 0);
}

static void test_utf8(void **state)
{
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
        assert_int_equal(sampling_utf8_whole((const uint8_t *)row[i].bytes, row[i].n),
                         row[i].whole);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_greedy), cmocka_unit_test(test_not_finite),
    cmocka_unit_test(test_shares), cmocka_unit_test(test_nucleus),
    cmocka_unit_test(test_ends),   cmocka_unit_test(test_utf8),
};
HARNESS_MAIN(tests)
