/* balance — virtual shards dealt by speed. */
#include "harness.h"

#include "train/feature/step_shards.h"

static int refuse_unit; /* deals whose runs are not multiples of it are refused */
static bool has_memory(void *arg, const int *begin)
{
    const struct balance *b = arg;
    for (int i = 0; i <= b->ranks && refuse_unit; i++)
        if (begin[i] % refuse_unit != 0)
            return false;
    return true;
}

/* The shards of each rank; begins with equal ones. Returns whether there is another deal. */
static bool deal(int shards, int ranks, const double *ms, int *count)
{
    int begin[8] = {0}, now[8] = {0};
    struct balance b = {ms, shards, ranks, now, has_memory, &b};
    for (int i = 0; i <= ranks; i++)
        now[i] = shards * i / ranks;
    bool is_dealt = step_shards_balance_deal(&b, begin);
    for (int i = 0; i < ranks; i++)
        count[i] = begin[i + 1] - begin[i];
    return is_dealt;
}

TEST(by_speed)
{
    int n[8];
    assert_true(deal(16, 2, (double[]){1, 2.5}, n)); /* 100 % and 40 % of a processor */
    assert_int_equal(n[0], 12); /* aligned: 12 and 4 take 12, and so do 11.4 and 4.6, nearly */
    assert_int_equal(n[1], 4);
    assert_true(deal(64, 4, (double[]){1, 1, 1, 3}, n));
    assert_true(n[3] >= 4 && n[3] <= 8 && n[0] + n[1] + n[2] + n[3] == 64);
    assert_true(deal(7, 3, (double[]){1, 1, 100}, n));
    assert_int_equal(n[2], 1);
}

TEST(only_where_it_pays)
{
    int n[8];
    assert_false(deal(16, 2, (double[]){1, 1.02}, n));
    assert_false(deal(4, 4, (double[]){1, 2, 3, 4}, n)); /* each has one already */
    assert_false(deal(16, 2, (double[]){1, 0}, n));      /* not measured */
    assert_false(deal(16, 2, (double[]){1, NAN}, n));
    assert_false(deal(16, 2, (double[]){1, INFINITY}, n));
}

TEST(within_memory)
{
    int n[8];
    refuse_unit = 8;
    assert_false(deal(16, 2, (double[]){1, 2.5}, n));
    refuse_unit = 2;
    assert_true(deal(16, 2, (double[]){1, 6}, n));
    assert_int_equal(n[1], 2);
    refuse_unit = 0;
}

HARNESS_RUN_ALL()
