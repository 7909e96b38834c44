/* test_sum_tree — parts and trees: every small case, and large numbers. */
#include "harness.h"

#include <string.h>

#include "comm/core/sum_tree.h"

static void extents_cover(void **state)
{
    (void)state;
    for (int parts = 1; parts <= 40; parts++)
        for (int64_t elems = 0; elems <= 700; elems++) {
            int64_t at = 0, least = INT64_MAX, most = 0;
            for (int i = 0; i < parts; i++) {
                struct part_extent e = part_extent(elems, parts, i);
                assert_int_equal(e.first, at);
                assert_true(e.elems >= 0);
                assert_true(i == parts - 1 || e.elems % PART_ALIGN == 0);
                at += e.elems;
                int64_t units = (e.elems + PART_ALIGN - 1) / PART_ALIGN;
                least = units < least ? units : least;
                most = units > most ? units : most;
            }
            assert_int_equal(at, elems);
            assert_true(most - least <= 1);
        }
}

static void extents_huge(void **state)
{
    (void)state;
    int64_t elems = (INT64_MAX >> 16) - 3, at = 0;
    for (int i = 0; i < 4096; i++) {
        struct part_extent e = part_extent(elems, 4096, i);
        assert_int_equal(e.first, at);
        at += e.elems;
    }
    assert_int_equal(at, elems);
}

static void left_half(void **state)
{
    (void)state;
    for (int n = 2; n <= 5000; n++) {
        int left = sum_tree_left(n);
        assert_int_equal(left & (left - 1), 0);
        assert_true(left < n && 2 * left >= n);
    }
}

/* Carries out a plan over strings: the brackets show the order. */
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

static void plans_read(void **state)
{
    (void)state;
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

/* Every source is added once; a node's workers are a subtree; with one worker a node, or one node,
 * it is the flat tree; with a power of two of workers a node too. */
static void plans_hold(void **state)
{
    (void)state;
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

static void nodes_of_groups(void **state)
{
    (void)state;
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

/* The rows of all numbers are all elements; each part as it is elsewhere, behind the one before,
 * where vectors may begin. */
static void rows_cover(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 17, 96, 1000, 20001};
    struct part_extent row[5];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int nodes = 1; nodes <= 5; nodes++)
            for (int locals = 1; locals <= 3; locals++) {
                int64_t all = 0;
                for (int local = 0; local < locals; local++) {
                    int64_t elems = part_rail(sizes[i], nodes, locals, local, row), at = 0;
                    for (int v = 0; v < nodes; v++) {
                        assert_int_equal(
                            row[v].elems,
                            part_extent(sizes[i], nodes * locals, v * locals + local).elems);
                        assert_int_equal(row[v].first, at);
                        assert_true(row[v].elems == 0 || at % PART_ALIGN == 0);
                        at += row[v].elems;
                    }
                    assert_int_equal(elems, at);
                    all += elems;
                }
                assert_int_equal(all, sizes[i]);
            }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(extents_cover), cmocka_unit_test(extents_huge),
    cmocka_unit_test(left_half),     cmocka_unit_test(plans_read),
    cmocka_unit_test(plans_hold),    cmocka_unit_test(nodes_of_groups),
    cmocka_unit_test(rows_cover),
};
HARNESS_MAIN(tests)
