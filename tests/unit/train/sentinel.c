/* sentinel — which of several checksums is the odd one. */
#include "harness.h"

#include "train/feature/sentinel.h"

#define VOTE(...)                            \
    sentinel_vote((uint64_t[]){__VA_ARGS__}, \
                  (int)(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)))

static void majority(void **state)
{
    assert_int_equal(VOTE(7), SENTINEL_SAME);
    assert_int_equal(VOTE(7, 7), SENTINEL_SAME);
    assert_int_equal(VOTE(7, 7, 7, 7), SENTINEL_SAME);
    assert_int_equal(VOTE(8, 7, 7), 0);
    assert_int_equal(VOTE(7, 8, 7), 1);
    assert_int_equal(VOTE(7, 7, 7, 0), 3);
    assert_int_equal(VOTE(7, 8, 7, 9, 7), 1); /* the first of two */
}

static void no_majority(void **state)
{
    assert_int_equal(VOTE(7, 8), SENTINEL_UNDECIDED);
    assert_int_equal(VOTE(7, 7, 8, 8), SENTINEL_UNDECIDED);
    assert_int_equal(VOTE(7, 8, 9), SENTINEL_UNDECIDED);
    assert_int_equal(VOTE(7, 7, 8, 9), SENTINEL_UNDECIDED);
}

/* Every place of the odd one, among 2 to 40. */
static void every_place(void **state)
{
    for (int n = 3; n <= 40; n++)
        for (int odd = 0; odd < n; odd++) {
            uint64_t sum[40];
            for (int i = 0; i < n; i++)
                sum[i] = i == odd ? UINT64_MAX : 5;
            assert_int_equal(sentinel_vote(sum, n), odd);
        }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(majority), cmocka_unit_test(no_majority),
                                          cmocka_unit_test(every_place)};
HARNESS_MAIN(tests)
