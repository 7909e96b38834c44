/* sentinel — which of several checksums is the odd one. */
#include "harness.h"

#include "train/feature/sentinel.h"

#define VOTE(...) \
    sentinel_vote((uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

TEST(majority)
{
    assert_int_equal(VOTE(7).odd, -1);
    assert_int_equal(VOTE(7, 7).odd, -1);
    assert_int_equal(VOTE(7, 7, 7, 7).odd, -1);
    assert_int_equal(VOTE(8, 7, 7).odd, 0);
    assert_int_equal(VOTE(7, 8, 7).odd, 1);
    assert_int_equal(VOTE(7, 7, 7, 0).odd, 3);
    assert_int_equal(VOTE(7, 8, 7, 9, 7).odd, 1); /* the first of two */
}

TEST(no_majority)
{
    assert_false(VOTE(7, 8).is_majority);
    assert_false(VOTE(7, 7, 8, 8).is_majority);
    assert_false(VOTE(7, 8, 9).is_majority);
    assert_false(VOTE(7, 7, 8, 9).is_majority);
}

/* Every place of the odd one, among 2 to 40. */
TEST(every_position)
{
    for (int n = 3; n <= 40; n++)
        for (int odd = 0; odd < n; odd++) {
            uint64_t sum[40];
            for (int i = 0; i < n; i++)
                sum[i] = i == odd ? UINT64_MAX : 5;
            const struct sentinel_vote vote = sentinel_vote(sum, n);
            assert_true(vote.is_majority && !vote.is_tied && vote.odd == odd);
        }
}

/* The soak's: ranks of one kind are compared, and those left out have no vote. */
TEST(ballots)
{
    struct sentinel_ballot b[] = {{.sum = 4}, {.sum = 5}, {.sum = 6}, {.sum = 5}, {9, .kind = 1}},
                           two[] = {{.sum = 1}, {.sum = 2}};
    sentinel_count(b, 5); /* two are most, though less than half */
    for (int i = 0; i < 5; i++)
        assert_true(b[i].differs == (b[i].sum == 4 || b[i].sum == 6) && !b[i].is_unclear);
    assert_true(b[0].most == 1 && b[4].most == 4);
    sentinel_count(two, 2);
    assert_true(two[0].is_unclear && two[1].is_unclear && !two[0].differs && !two[1].differs);
    two[1].is_left_out = true; /* known to be wrong already */
    sentinel_count(two, 2);
    assert_true(!two[0].is_unclear && !two[0].differs && two[1].differs);
}

HARNESS_RUN_ALL()
