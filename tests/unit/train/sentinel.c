/* sentinel — which of several checksums is the odd one. */
#include "harness.h"

#include "train/feature/sentinel.h"

#define SAME (-1)
#define UNDECIDED (-2)
#define VOTE(...) \
    vote((uint64_t[]){__VA_ARGS__}, (int)(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)))

/* Returns the first that differs from more than half; SAME; UNDECIDED: no checksum has so many. */
static int vote(const uint64_t *sum, int n)
{
    const struct sentinel_vote v = sentinel_vote(sum, n);
    if (v.is_majority)
        assert_false(v.is_tied);
    return v.is_majority ? v.odd : UNDECIDED;
}

static void majority(void **state)
{
    assert_int_equal(VOTE(7), SAME);
    assert_int_equal(VOTE(7, 7), SAME);
    assert_int_equal(VOTE(7, 7, 7, 7), SAME);
    assert_int_equal(VOTE(8, 7, 7), 0);
    assert_int_equal(VOTE(7, 8, 7), 1);
    assert_int_equal(VOTE(7, 7, 7, 0), 3);
    assert_int_equal(VOTE(7, 8, 7, 9, 7), 1); /* the first of two */
}

static void no_majority(void **state)
{
    assert_int_equal(VOTE(7, 8), UNDECIDED);
    assert_int_equal(VOTE(7, 7, 8, 8), UNDECIDED);
    assert_int_equal(VOTE(7, 8, 9), UNDECIDED);
    assert_int_equal(VOTE(7, 7, 8, 9), UNDECIDED);
}

/* Every place of the odd one, among 2 to 40. */
static void every_place(void **state)
{
    for (int n = 3; n <= 40; n++)
        for (int odd = 0; odd < n; odd++) {
            uint64_t sum[40];
            for (int i = 0; i < n; i++)
                sum[i] = i == odd ? UINT64_MAX : 5;
            assert_int_equal(vote(sum, n), odd);
        }
}

/* The soak's: ranks of one kind are compared, and those left out have no vote. */
static void ballots(void **state)
{
    struct sentinel_ballot b[6] = {
        {.sum = 5}, {.sum = 5}, {.sum = 6}, {.sum = 5}, {.sum = 9, .kind = 1}, {.sum = 5}};
    sentinel_count(b, 6);
    for (int i = 0; i < 6; i++)
        assert_true(b[i].differs == (i == 2) && !b[i].is_unclear);
    assert_int_equal(b[2].most, 0);
    assert_int_equal(b[4].most, 4);
    struct sentinel_ballot few[5] = {{.sum = 4}, {.sum = 7}, {.sum = 8}, {.sum = 7}, {.sum = 9}};
    sentinel_count(few, 5); /* two are most, though less than half */
    for (int i = 0; i < 5; i++)
        assert_true(few[i].differs == (few[i].sum != 7) && !few[i].is_unclear && few[i].most == 1);
    struct sentinel_ballot two[2] = {{.sum = 1}, {.sum = 2}};
    sentinel_count(two, 2);
    assert_true(two[0].is_unclear && two[1].is_unclear && !two[0].differs && !two[1].differs);
    two[1].is_left_out = true; /* known to be wrong already */
    sentinel_count(two, 2);
    assert_true(!two[0].is_unclear && !two[0].differs && two[1].differs);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(majority), cmocka_unit_test(no_majority),
                                          cmocka_unit_test(every_place), cmocka_unit_test(ballots)};
HARNESS_MAIN(tests)
