/* groups — every collective of every group: right results and their rows in a clean world; a
 * rank whose sums have one wrong bit is named each time. */
#include "base/rand.h"
#include "check/world.h"

#define ANY (CHECK_VERDICT_MEASURED + 1)
#define GROUPS_BUDGET_MS 3000

static void clean(int nodes, int locals, bool is_tcp)
{
    struct world *w = world_new(nodes, locals, is_tcp);
    world_run(w, GROUPS_BUDGET_MS, check_groups_run);
    world_print(w, getenv("ALL_ROWS") != NULL);
    assert_int_equal(world_count(w, NULL, CHECK_VERDICT_FAIL), 0);
    assert_int_equal(world_count(w, NULL, CHECK_VERDICT_WARN), 0);
    /* of the world; of each node and between nodes, where they are other groups */
    const int groups = nodes > 1 && locals > 1 ? 1 + nodes + 1 : 1;
    assert_int_equal(world_count(w, "all_reduce", CHECK_VERDICT_PASS), groups);
    assert_int_equal(world_count(w, "reduce_scatter", CHECK_VERDICT_PASS), groups);
    assert_int_equal(world_count(w, "all_gather", CHECK_VERDICT_PASS), groups);
    assert_int_equal(world_count(w, "all_to_all", CHECK_VERDICT_PASS), groups);
    assert_int_equal(world_count(w, "broadcast", CHECK_VERDICT_PASS), groups);
    assert_int_equal(world_count(w, "send_recv", CHECK_VERDICT_PASS), groups);
    world_free(w);
}

TEST(test_clean)
{
    clean(1, 3, false);
    clean(3, 2, false);
    clean(5, 1, true);
}

/* The only rows that fail name this rank and its node. */
static void flipped(int nodes, int locals, bool is_tcp, int rank)
{
    struct world *w = world_new(nodes, locals, is_tcp);
    w->rank[rank].config.flips_sums = true;
    world_run(w, GROUPS_BUDGET_MS, check_groups_run);
    const struct check_rows *rows = &w->rank[0].rows;
    int named = 0;
    for (int i = 0; i < rows->n; i++) {
        if (rows->row[i].verdict != CHECK_VERDICT_FAIL)
            continue;
        if (rows->row[i].rank != rank || rows->row[i].node != rank / locals)
            fail_msg("%d × %d ranks, rank %d flips: %s: %s: %s", nodes, locals, rank,
                     rows->row[i].name, rows->row[i].subject, rows->row[i].why);
        named++;
    }
    assert_int_equal(named, 1);
    assert_int_equal(world_count(w, NULL, CHECK_VERDICT_FAIL), 1);
    world_free(w);
}

TEST(test_flips)
{
    const int trials = harness_number("FLIPS", 6);
    for (int i = 0; i < trials; i++) {
        const uint64_t r = rand_u64(17, 0, (uint64_t)i);
        const int nodes = 3 + (int)(r % 6), locals = 1 + (int)(r >> 8 & 1);
        flipped(nodes, locals, locals == 1 && (r >> 9 & 1) != 0,
                (int)((r >> 16) % (uint64_t)(nodes * locals)));
    }
    print_message("# %d ranks named\n", trials);
}

/* With two ranks no third one can tell which is wrong: both are named. */
TEST(test_two)
{
    struct world *w = world_new(2, 1, false);
    w->rank[1].config.flips_sums = true;
    world_run(w, GROUPS_BUDGET_MS, check_groups_run);
    assert_int_equal(world_count(w, NULL, CHECK_VERDICT_FAIL), 2);
    world_free(w);
}

TEST(test_alone)
{
    struct world *w = world_new(1, 1, false);
    world_run(w, GROUPS_BUDGET_MS, check_groups_run);
    assert_int_equal(world_count(w, NULL, ANY), 1);
    assert_int_equal(world_count(w, "all_reduce", CHECK_VERDICT_SKIPPED), 1);
    world_free(w);
}

HARNESS_RUN_ALL()
