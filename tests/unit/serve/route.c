/* route — the table of paths and the form of errors, without a socket. */
#include "harness.h"

#include "base/board.h"
#include "base/json.h"
#include "serve/route.h"

static struct view view;

static int look(void **state)
{
    struct board *board;
    if (board_create(1, 1, &board) != ST_OK)
        return -1;
    view_copy(&view, board, clock_ms(), 0, 1000);
    board_close(board);
    return 0;
}

static int code(const char *path, bool is_get, bool has_body)
{
    struct route_answer answer;
    route_answer(path, is_get, has_body, &view, &answer);
    int found = answer.code;
    assert_non_null(answer.body.data);
    assert_non_null(answer.reason);
    assert_int_equal(found == 405, answer.allow != NULL);
    if (found >= 400) {
        cJSON *root = NULL;
        const cJSON *error = NULL;
        int64_t value = 0;
        const char *message = NULL;
        assert_int_equal(json_parse(answer.body.data, answer.body.len, "body", &root), ST_OK);
        assert_int_equal(json_get_object(root, "error", &error), ST_OK);
        assert_int_equal(json_get_i64(error, "code", found, found, &value), ST_OK);
        assert_int_equal(json_get_string(error, "message", &message), ST_OK);
        assert_true(strlen(message) > 5);
        cJSON_Delete(root);
    }
    route_free(&answer);
    route_free(&answer);
    return found;
}

TEST_WITH(the_table, look, NULL)
{
    assert_int_equal(code("/status", true, false), 200);
    assert_int_equal(code("/metrics", true, false), 200);
    assert_int_equal(code("/livez", true, false), 200);
    assert_int_equal(code("/healthz", true, false), 200);
    assert_int_equal(code("/readyz", true, false), 503); /* nobody trains yet */
    assert_int_equal(code("/", true, false), 200);
    assert_int_equal(code("/history", true, false), 200);
    assert_int_equal(code("/history.csv", true, false), 200);
    assert_int_equal(code("/log", true, false), 200);
    assert_int_equal(code("/settings", true, false), 200);
    assert_int_equal(code("/index.html", true, false), 404);
    assert_int_equal(code("//", true, false), 404);
    assert_int_equal(code("", true, false), 404);
    assert_int_equal(code("/statu", true, false), 404);
    assert_int_equal(code("/statuss", true, false), 404);
    assert_int_equal(code("/status", false, false), 405);
    assert_int_equal(code("/nope", false, true), 405);
    assert_int_equal(code("/status", true, true), 413);
}

static const char *policy_of(const char *path, const char *type)
{
    static char policy[512];
    struct route_answer answer;
    route_answer(path, true, false, &view, &answer);
    assert_string_equal(answer.content_type, type);
    text_copy(policy, sizeof(policy), answer.policy);
    route_free(&answer);
    return policy;
}

TEST_WITH(policies, look, NULL)
{
    assert_true(text_starts(policy_of("/", "text/html; charset=utf-8"),
                            "default-src 'none'; script-src 'sha256-"));
    assert_string_equal(policy_of("/status", "application/json"),
                        "default-src 'none'; frame-ancestors 'none'");
    assert_string_equal(policy_of("/history", "application/json"),
                        "default-src 'none'; frame-ancestors 'none'");
    assert_string_equal(policy_of("/history.csv", "text/csv; charset=utf-8"),
                        "default-src 'none'; frame-ancestors 'none'");
    assert_string_equal(policy_of("/log", "text/plain; charset=utf-8"),
                        "default-src 'none'; frame-ancestors 'none'");
    assert_string_equal(policy_of("/nope", "application/json"),
                        "default-src 'none'; frame-ancestors 'none'");
}

HARNESS_RUN_ALL()
