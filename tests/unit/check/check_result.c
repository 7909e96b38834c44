/* check_result — what a node's process ends with after a check: of its own fault, of another
 * node's, of a fault that names no node. */
#include "harness.h"

#include "check/check_result.h"

/* A row of that verdict about a node and a peer; -1: none. */
static struct check_row row_of(enum check_verdict verdict, int node, int peer, int suspect)
{
    struct check_row row = check_row_found(CHECK_STAGE_GROUPS, CHECK_POINT_COLLECTIVES, node,
                                           "all_reduce", verdict, "planted for node %d", node);
    row.peer = peer;
    row.suspect = suspect;
    text_copy(row.remedy, sizeof row.remedy, "convoy check CHECK=full");
    return row;
}

static void add(struct check_result *result, struct check_row row)
{
    check_row_add(&result->rows, &row);
}

/* Of nodes 0 to 3: the codes of their processes, such as "75 1 75 75". */
static const char *codes(const struct check_result *result, bool is_command, char *out, size_t cap)
{
    text_copy(out, cap, "");
    for (int node = 0; node < 4; node++) {
        const size_t n = strlen(out);
        enum status st = check_result_status(result, node, is_command);
        text_format(out + n, cap - n, "%s%d", node > 0 ? " " : "", status_exit_code(st));
    }
    return out;
}

static void assert_codes(const struct check_result *result, const char *check, const char *train)
{
    char out[64];
    assert_string_equal(codes(result, true, out, sizeof out), check);
    assert_string_equal(codes(result, false, out, sizeof out), train);
}

TEST(test_nothing_fails)
{
    struct check_result result = {.is_whole = true};
    add(&result, row_of(CHECK_VERDICT_PASS, 0, -1, -1));
    add(&result, row_of(CHECK_VERDICT_WARN, -1, -1, -1));
    assert_codes(&result, "0 0 0 0", "0 0 0 0");
    check_result_free(&result);
}

TEST(test_a_node_is_named)
{
    struct check_result result = {.is_whole = true};
    add(&result, row_of(CHECK_VERDICT_FAIL, 2, -1, -1));
    assert_codes(&result, "1 0 1 0", "75 75 1 75");
    check_result_status(&result, 1, false);
    assert_non_null(strstr(status_message(), "node 2: all_reduce: planted for node 2"));
    check_result_free(&result);
}

TEST(test_a_link)
{
    struct check_result result = {.is_whole = true};
    add(&result, row_of(CHECK_VERDICT_FAIL, 1, 3, -1));
    assert_codes(&result, "1 1 0 1", "75 1 75 1");
    result.rows.row[0].suspect = 3;
    assert_codes(&result, "1 0 0 1", "75 75 75 1");
    check_result_free(&result);
}

/* Nothing tells which node: none is taken out, and the job is not started again by itself. */
TEST(test_no_node_is_named)
{
    struct check_result result = {.is_whole = true};
    add(&result, row_of(CHECK_VERDICT_FAIL, -1, -1, -1));
    assert_codes(&result, "1 0 0 0", "76 76 76 76");
    check_result_status(&result, 1, false);
    assert_non_null(strstr(status_message(), "no node could be named"));
    assert_non_null(strstr(status_message(), "the job: all_reduce"));
    assert_non_null(strstr(status_message(), "convoy check CHECK=full"));
    check_result_free(&result);
}

/* A row that names one counts more, whichever comes first. */
TEST(test_one_of_two_names_a_node)
{
    struct check_result result = {.is_whole = true};
    add(&result, row_of(CHECK_VERDICT_FAIL, -1, -1, -1));
    add(&result, row_of(CHECK_VERDICT_FAIL, 1, -1, -1));
    assert_codes(&result, "1 1 0 0", "75 1 75 75");
    check_result_status(&result, 3, false);
    assert_non_null(strstr(status_message(), "node 1"));
    check_result_free(&result);
}

TEST(test_not_whole)
{
    struct check_result result = {.is_whole = false};
    add(&result, row_of(CHECK_VERDICT_FAIL, -1, -1, -1));
    assert_codes(&result, "0 0 0 0", "0 0 0 0");
    add(&result, row_of(CHECK_VERDICT_FAIL, 1, -1, -1));
    assert_codes(&result, "0 1 0 0", "0 1 0 0");
    check_result_free(&result);
}

HARNESS_RUN_ALL()
