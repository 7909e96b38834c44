/* rehearse_plan — faults of a seed: the proportions of the mix, their times and nodes; what a
 * mix may say; medians and percentiles. */
#include "harness.h"

#include "node/rehearse/plan.h"

static struct rehearse_mix mix_of(const char *text)
{
    struct rehearse_mix mix;
    assert_int_equal(rehearse_plan_mix(text, &mix), ST_OK);
    return mix;
}

static void test_mix(void **state)
{
    struct rehearse_mix mix = mix_of("hang:2,kill:6,slow");
    assert_int_equal(mix.weight[REHEARSE_KIND_KILL], 6);
    assert_int_equal(mix.weight[REHEARSE_KIND_NODE], 0);
    assert_int_equal(mix.weight[REHEARSE_KIND_HANG], 2);
    assert_int_equal(mix.weight[REHEARSE_KIND_SLOW], 1);
    assert_int_equal(mix.total, 9);
    assert_int_equal(mix_of("kill:0,node:100").total, 100);
}

static void test_mix_refused(void **state)
{
    static const char *const bad[] = {
        "",         "fire",
        "kill:-1",  "kill:101",
        "kill:",    "kill:1,kill:2",
        ",",        "kill:0",
        "kill:1 ",  "KILL:1",
        "kill:1:2", "kill:99999999999999999999",
        "kill:1,",  "kill::1",
        "kill:0x1", ",kill:1,,hang",
        ":",        "killkillkillkillkillkillkillkill:1",
    };
    struct rehearse_mix mix;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (rehearse_plan_mix(bad[i], &mix) != ST_BAD_SETTING)
            fail_msg("'%s' was taken", bad[i]);
}

/* test_drop — a kind that is left out never comes; the others keep their proportions. */
static void test_drop(void **state)
{
    struct rehearse_mix mix = mix_of("kill:2,flip:3,cut:1,disk:1");
    rehearse_plan_drop(&mix, REHEARSE_KIND_FLIP);
    assert_int_equal(mix.total, 4);
    for (int64_t i = 0; i < 400; i++)
        assert_int_not_equal(rehearse_plan_fault(3, &mix, 2, 1000, i).kind, REHEARSE_KIND_FLIP);
}

/* test_proportions — each deck of as many faults as the weights has exactly the mix. */
static void test_proportions(void **state)
{
    struct rehearse_mix mix = mix_of("kill:3,node:3,hang:2,slow:1,flip:1,disk:2,cut:1");
    for (int64_t deck = 0; deck < 50; deck++) {
        int made[REHEARSE_KINDS_N] = {0};
        for (int64_t i = 0; i < mix.total; i++)
            made[rehearse_plan_fault(7, &mix, 4, 1000, deck * mix.total + i).kind]++;
        assert_memory_equal(made, mix.weight, sizeof made);
    }
}

static void test_times_and_nodes(void **state)
{
    struct rehearse_mix mix = mix_of("kill");
    int hits[3] = {0};
    for (int64_t i = 0; i < 3000; i++) {
        struct rehearse_fault fault = rehearse_plan_fault(1, &mix, 3, 500, i);
        assert_true(fault.at_ms >= i * 500 && fault.at_ms < (i + 1) * 500);
        assert_in_range(fault.node, 0, 2);
        hits[fault.node]++;
    }
    for (int node = 0; node < 3; node++)
        assert_in_range(hits[node], 900, 1100);
}

/* test_seed — the same seed: the same faults; another one: others. */
static void test_seed(void **state)
{
    int same = 0;
    struct rehearse_mix mix = mix_of("kill:3,hang:3");
    for (int64_t i = 0; i < 100; i++) {
        struct rehearse_fault a = rehearse_plan_fault(1, &mix, 4, 9000, i),
                              b = rehearse_plan_fault(1, &mix, 4, 9000, i),
                              c = rehearse_plan_fault(2, &mix, 4, 9000, i);
        assert_true(a.kind == b.kind && a.node == b.node && a.at_ms == b.at_ms &&
                    a.choice == b.choice);
        same += a.kind == c.kind && a.node == c.node && a.at_ms == c.at_ms;
    }
    assert_true(same < 10);
}

static void test_statistics(void **state)
{
    double one[] = {5}, four[] = {40, 10, 30, 20}, many[100];
    struct rehearse_times t = rehearse_plan_times(NULL, 0);
    assert_true(t.n == 0 && t.median == -1 && t.p95 == -1 && t.worst == -1);
    t = rehearse_plan_times(one, 1);
    assert_true(t.median == 5 && t.p95 == 5 && t.worst == 5);
    t = rehearse_plan_times(four, 4);
    assert_true(t.n == 4 && t.median == 20 && t.p95 == 40 && t.worst == 40);
    for (int i = 0; i < 100; i++)
        many[i] = 100 - i;
    t = rehearse_plan_times(many, 100);
    assert_true(t.median == 50 && t.p95 == 95 && t.worst == 100);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_mix),
    cmocka_unit_test(test_mix_refused),
    cmocka_unit_test(test_drop),
    cmocka_unit_test(test_proportions),
    cmocka_unit_test(test_times_and_nodes),
    cmocka_unit_test(test_seed),
    cmocka_unit_test(test_statistics),
};
HARNESS_MAIN(tests)
