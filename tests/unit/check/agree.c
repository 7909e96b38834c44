/* agree — stage 0 of a check: the nodes that differ are named, by the value that most have;
 * rows as bytes are the same rows again, and no other bytes are rows. */
#include "check/world.h"

#define REMEDY "give all nodes the same"

static struct check_fact facts[RANKS_MAX][3];

/* give — every rank has the same three facts in two groups. */
static void give(struct world *w)
{
    for (int r = 0; r < w->ranks; r++) {
        facts[r][0] =
            (struct check_fact){"settings", CHECK_POINT_LAUNCH, "LR", "3e-4", false, REMEDY};
        facts[r][1] =
            (struct check_fact){"settings", CHECK_POINT_LAUNCH, "SEED", "1", false, REMEDY};
        facts[r][2] = (struct check_fact){
            "libraries", CHECK_POINT_COMMUNICATION, "NCCL", "2.28.9", true, REMEDY};
        w->rank[r].config.facts = facts[r];
        w->rank[r].config.facts_n = 3;
        w->rank[r].config.host = "gpu";
    }
}

static const struct check_row *bad_row(const struct world *w)
{
    const struct check_rows *rows = &w->rank[0].rows;
    for (int i = 0; i < rows->n; i++)
        if (rows->row[i].verdict == CHECK_VERDICT_WARN ||
            rows->row[i].verdict == CHECK_VERDICT_FAIL)
            return &rows->row[i];
    return NULL;
}

static int bad(const struct world *w)
{
    return world_count(w, NULL, CHECK_VERDICT_WARN) + world_count(w, NULL, CHECK_VERDICT_FAIL);
}

TEST(the_same_passes)
{
    struct world *w = world_new(3, 2, false);
    give(w);
    world_run(w, 0, check_agree_run);
    world_print(w, false);
    assert_int_equal(bad(w), 0);
    assert_int_equal(world_count(w, "settings", CHECK_VERDICT_PASS), 1);
    assert_int_equal(world_count(w, "libraries", CHECK_VERDICT_PASS), 1);
    assert_int_equal(world_count(w, "host", CHECK_VERDICT_PASS), 3);
    world_free(w);
}

/* One node of five differs in two facts: one row, about it. Node 0 is no better than another. */
TEST(the_minority_is_named)
{
    for (int node = 0; node < 5; node++) {
        struct world *w = world_new(5, 1, false);
        give(w);
        facts[node][0].value = "1e-3";
        facts[node][1].value = "7";
        world_run(w, 0, check_agree_run);
        const struct check_row *row = bad_row(w);
        assert_int_equal(bad(w), 1);
        assert_int_equal(row->node, node);
        assert_int_equal(row->verdict, CHECK_VERDICT_FAIL);
        assert_non_null(strstr(row->why, "LR is 1e-3 here and 3e-4 on node"));
        assert_non_null(strstr(row->why, "SEED is 7 here and 1 on node"));
        assert_string_equal(row->remedy, REMEDY);
        world_free(w);
    }
}

/* A second worker of a node counts for the node; a warning stays one; what a rank cannot say is no
 * difference. */
TEST(warnings_and_unknowns)
{
    struct world *w = world_new(2, 2, false);
    give(w);
    facts[3][2].value = "2.20.5";
    facts[1][0].value = "";
    world_run(w, 0, check_agree_run);
    assert_int_equal(bad(w), 1);
    assert_int_equal(bad_row(w)->node, 1);
    assert_int_equal(bad_row(w)->verdict, CHECK_VERDICT_WARN);
    world_free(w);
}

TEST(two_nodes_are_a_tie)
{
    struct world *w = world_new(2, 1, false);
    give(w);
    facts[1][1].value = "2";
    world_run(w, 0, check_agree_run);
    assert_int_equal(bad(w), 1);
    assert_int_equal(bad_row(w)->node, 1);
    assert_string_equal(bad_row(w)->why, "SEED is 2 here and 1 on node 0");
    world_free(w);
}

/* ---- rows as bytes ---- */

static void fill(struct check_rows *rows)
{
    struct check_row link = check_row_measured(CHECK_STAGE_PAIRS, CHECK_POINT_LATENCY, 2,
                                               "link latency", "us", 12.5, CHECK_BETTER_LOWER, 3);
    link.peer = 5;
    link.suspect = 5;
    text_copy(link.subject, sizeof link.subject, "tcp");
    text_copy(link.hardware, sizeof link.hardware, "cable");
    struct check_row found = check_row_found(CHECK_STAGE_STATIC, CHECK_POINT_HOST, 1, "memlock",
                                             CHECK_VERDICT_FAIL, "64 KiB \"may\" be locked");
    text_copy(found.remedy, sizeof found.remedy, "ulimit -l unlimited");
    check_row_add(rows, &link);
    check_row_add(rows, &found);
}

TEST(bytes_are_rows_again)
{
    struct check_rows rows = {0}, read = {0};
    struct text bytes = {0}, again = {0};
    fill(&rows);
    assert_int_equal(check_row_pack_all(&rows, &bytes), ST_OK);
    assert_int_equal(check_row_unpack(bytes.data, bytes.len, &read), ST_OK);
    assert_int_equal(read.n, 2);
    assert_string_equal(read.row[0].hardware, "cable");
    assert_true(read.row[0].suspect == 5 && read.row[0].value == 12.5 && read.row[0].slack == 3);
    assert_string_equal(read.row[1].why, "64 KiB \"may\" be locked");
    assert_int_equal(check_row_pack_all(&read, &again), ST_OK);
    assert_true(again.len == bytes.len && memcmp(again.data, bytes.data, bytes.len) == 0);
    check_row_free(&rows);
    check_row_free(&read);
    text_free(&bytes);
    text_free(&again);
}

/* Cut anywhere but between rows: refused. With a byte turned over: refused, or other rows. */
TEST(other_bytes_are_refused)
{
    struct check_rows rows = {0};
    struct text bytes = {0};
    int refused = 0;
    fill(&rows);
    assert_int_equal(check_row_pack_all(&rows, &bytes), ST_OK);
    for (size_t n = 1; n <= 2 * bytes.len; n++) {
        struct check_rows read = {0};
        char *copy = malloc(bytes.len);
        memcpy(copy, bytes.data, bytes.len);
        if (n > bytes.len)
            copy[n - bytes.len - 1] ^= 0x55;
        enum status st = check_row_unpack(copy, n > bytes.len ? bytes.len : n, &read);
        assert_true(st == ST_OK || st == ST_BUG);
        refused += st == ST_BUG;
        check_row_free(&read);
        free(copy);
    }
    assert_true(refused >= (int)bytes.len - 2);
    check_row_free(&rows);
    text_free(&bytes);
}

HARNESS_RUN_ALL()
