/* sum_tree — the order of additions: every small case. */
#include "harness.h"

#include "comm/core/sum.h"

TEST(left_half)
{
    for (int n = 2; n <= 5000; n++) {
        int left = sum_tree_left(n);
        assert_int_equal(left & (left - 1), 0);
        assert_true(left < n && 2 * left >= n);
    }
}

/* Executes a plan on strings: the brackets show the order. */
static char text[64][512];
static void carry_out(const struct sum_tree_step *steps, int steps_n, int slots)
{
    for (int i = 0; i < slots; i++)
        snprintf(text[i], sizeof(text[i]), "%d", i);
    for (int k = 0; k < steps_n; k++) {
        char sum[512];
        snprintf(sum, sizeof(sum), "(%.250s+%.250s)", text[steps[k].to], text[steps[k].from]);
        snprintf(text[steps[k].to], sizeof(text[0]), "%s", sum);
    }
}

TEST(plans_read)
{
    static const char *const want[] = {"0",
                                       "(0+1)",
                                       "((0+1)+2)",
                                       "((0+1)+(2+3))",
                                       "(((0+1)+(2+3))+4)",
                                       "(((0+1)+(2+3))+(4+5))",
                                       "(((0+1)+(2+3))+((4+5)+6))",
                                       "(((0+1)+(2+3))+((4+5)+(6+7)))"};
    struct sum_tree_step steps[64];
    for (int n = 1; n <= 8; n++) {
        sum_tree_plan(n, steps);
        carry_out(steps, n - 1, n);
        assert_string_equal(text[0], want[n - 1]);
    }
    sum_tree_plan_nodes(2, 3, steps);
    carry_out(steps, 5, 6);
    assert_string_equal(text[0], "(((0+1)+2)+((3+4)+5))");
    sum_tree_plan_nodes(3, 2, steps);
    carry_out(steps, 5, 6);
    assert_string_equal(text[0], "(((0+1)+(2+3))+(4+5))");
}

/* Every source is added once, and a node's workers are a subtree. The nested tree equals the flat
 * one in three cases: one node, one worker on each node, a power of two of workers on each. */
TEST(plans_hold)
{
    struct sum_tree_step steps[64], flat[64];
    for (int nodes = 1; nodes <= 8; nodes++)
        for (int locals = 1; locals <= 8; locals++) {
            int n = nodes * locals, gone[64] = {0};
            sum_tree_plan_nodes(nodes, locals, steps);
            for (int k = 0; k < n - 1; k++) {
                assert_true(!gone[steps[k].to] && !gone[steps[k].from] &&
                            steps[k].to < steps[k].from);
                gone[steps[k].from] = 1;
                if (k < nodes * (locals - 1))
                    assert_int_equal(steps[k].to / locals, steps[k].from / locals);
            }
            assert_int_equal(gone[0], 0);
            if ((locals & (locals - 1)) != 0 && nodes > 1)
                continue;
            char nested[512];
            sum_tree_plan(n, flat);
            carry_out(steps, n - 1, n);
            snprintf(nested, sizeof(nested), "%s", text[0]);
            carry_out(flat, n - 1, n);
            assert_string_equal(nested, text[0]);
        }
}

TEST(shapes_of_splits)
{
    static const struct {
        int ranks[6], n, locals, want_nodes, want_locals;
    } cases[] = {
        {{0, 1, 2, 3}, 4, 2, 2, 2}, {{0, 2}, 2, 2, 2, 1},       {{1, 3, 5}, 3, 2, 3, 1},
        {{0, 1}, 2, 4, 1, 2},       {{0, 2, 3}, 3, 2, 3, 1},    {{0, 1, 2}, 3, 2, 3, 1},
        {{5}, 1, 3, 1, 1},          {{0, 1, 4, 5}, 4, 3, 2, 2}, {{1, 2, 3}, 3, 4, 1, 3},
        {{0, 1, 3, 4}, 4, 3, 2, 2}, {{0, 1, 2, 3}, 4, 3, 4, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int nodes, locals;
        sum_tree_shape(cases[i].ranks, cases[i].n, cases[i].locals, &nodes, &locals);
        assert_int_equal(nodes, cases[i].want_nodes);
        assert_int_equal(locals, cases[i].want_locals);
    }
}

HARNESS_RUN_ALL()
