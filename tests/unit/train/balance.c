/* balance — units of a step dealt by speed. */
#include "harness.h"

#include "train/feature/step_balance.h"

static int most_units; /* 0: all */
static bool is_lockstep;
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
    struct balance b = {.ms = ms,
                        .units = shards,
                        .ranks = ranks,
                        .most = most_units > 0 ? most_units : shards,
                        .is_lockstep = is_lockstep,
                        .is_tree = !is_lockstep,
                        .begin = now,
                        .fits = has_memory,
                        .arg = &b};
    for (int i = 0; i <= ranks; i++)
        now[i] = shards * i / ranks;
    bool is_dealt = step_balance_choose(&b, begin);
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

/* No rank has more than it has memory for. */
TEST(at_most)
{
    int n[8];
    most_units = 10;
    assert_true(deal(16, 2, (double[]){1, 6}, n));
    assert_int_equal(n[0], 10);
    assert_true(deal(15, 3, (double[]){1, 6, 6}, n));
    assert_true(n[0] == 10 && n[1] + n[2] == 5);
    most_units = 0;
}

/* Ranks that wait for each other in every pass: a slow rank has either as many as the others, or
 * one. */
TEST(in_lockstep)
{
    int n[8];
    is_lockstep = true;
    assert_false(deal(16, 2, (double[]){1, 1.9}, n)); /* 16 of 1.9 in 8 passes, or 14 + 1.9 */
    assert_true(deal(16, 2, (double[]){1, 2.5}, n));
    assert_int_equal(n[1], 1);
    assert_false(deal(16, 4, (double[]){1, 1, 1, 1.3}, n));
    assert_true(deal(32, 4, (double[]){1, 1, 1, 2}, n));
    assert_true(n[3] == 1 && n[0] >= 10 && n[1] >= 10 && n[2] >= 10);
    is_lockstep = false;
}

HARNESS_RUN_ALL()
