/* cluster — cluster files: the built-in ones, what is refused and how, writing and reading
 * back, shares between points. */
#include "harness.h"

#include "plan/plan_cluster.h"

static const char whole[] =
    "{\"name\":\"x\",\"source\":\"s\",\"device\":\"gpu\",\"locals\":4,\"memory_bytes\":8e10,"
    "\"memory_bytes_per_second\":2e12,\"memory_share\":0.8,\"optimizer_share\":0.7,"
    "\"operation_us\":2,\"step_us\":0,\"overlap_cost\":0.1,\"peak\":{\"bf16\":3e14},"
    "\"product\":{\"bf16\":[[1e9,0.25],[1e11,0.75]]},"
    "\"inside\":{\"latency_us\":3,\"bytes_per_second\":3e11}}";

/* parse — `whole` with the first `from` replaced by `to`. */
static enum status parse(const char *from, const char *to, struct plan_cluster *out)
{
    char bytes[2048];
    const char *at = strstr(whole, from);
    assert_non_null(at);
    snprintf(bytes, sizeof bytes, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
    return plan_cluster_parse(bytes, strlen(bytes), "test", out);
}

TEST(test_reads)
{
    struct plan_cluster c;
    assert_int_equal(parse("", "", &c), ST_OK);
    assert_string_equal(c.name, "x");
    assert_true(c.is_gpu);
    assert_int_equal(c.locals, 4);
    assert_int_equal(c.nodes, 0);
    assert_float_equal(c.peak[PLAN_PRECISION_BF16], 3e14, 0);
    assert_float_equal(c.peak[PLAN_PRECISION_FP8], 0, 0);
    assert_int_equal(c.product[PLAN_PRECISION_F32].n, 2); /* those of bf16 */
    assert_float_equal(c.inside.bytes_per_second, 3e11, 0);
    assert_float_equal(c.across.bytes_per_second, 0, 0);
}

TEST(test_share)
{
    struct plan_cluster c;
    assert_int_equal(parse("", "", &c), ST_OK);
    const struct plan_share *share = &c.product[PLAN_PRECISION_BF16];
    assert_float_equal(plan_cluster_share(share, 1), 0.25, 0);
    assert_float_equal(plan_cluster_share(share, 1e9), 0.25, 0);
    assert_float_equal(plan_cluster_share(share, 1e10), 0.5, 1e-12);
    assert_float_equal(plan_cluster_share(share, 1e11), 0.75, 0);
    assert_float_equal(plan_cluster_share(share, 1e20), 0.75, 0);
    assert_float_equal(plan_cluster_share(&c.attention, 5), 1, 0); /* no points */
}

static void refused(const char *from, const char *to, const char *message)
{
    struct plan_cluster c;
    assert_int_equal(parse(from, to, &c), ST_BAD_DATA);
    if (!strstr(status_message(), message))
        fail_msg("\"%s\" is not in: %s", message, status_message());
}

TEST(test_refuses)
{
    refused("\"locals\"", "\"local\"", "unknown key \"local\"; did you mean \"locals\"?");
    refused("\"latency_us\"", "\"latency_ms\"", "did you mean \"latency_us\"?");
    refused("{\"bf16\":3e14}", "{\"bf16\":3e14,\"fp4\":1}", "peak has the unknown key \"fp4\"");
    refused("{\"bf16\":3e14}", "{\"bf16\":0}", "no number above 0");
    refused("{\"bf16\":3e14}", "7", "\"peak\" is a number, expected an object");
    refused("\"locals\":4", "\"locals\":65", "expected 1 to 64");
    refused("\"locals\":4", "\"locals\":4.5", "whole number");
    refused("\"locals\":4,", "", "\"locals\" is missing");
    refused("\"memory_share\":0.8", "\"memory_share\":1.5", "\"memory_share\" is 1.5");
    refused("\"gpu\"", "\"tpu\"", "expected \"gpu\" or \"cpu\"");
    refused("[1e9,0.25]", "[1e12,0.25]", "point 2");
    refused("[1e9,0.25]", "[1e9,0]", "point 1");
    refused("[1e9,0.25]", "[1e9]", "point 1 is not [size, share]");
    refused("\"name\":\"x\"", "\"name\":\"x\",\"name\":\"y\"", "appears twice");
    refused("\"name\":\"x\"", "\"name\":\"\"", "\"name\" is empty");
    refused("{\"name\"", "[{\"name\"", "not JSON");
}

/* Rates by rows and widths: an object for each width. */
#define ROWS_BEFORE "\"locals\":4"
#define ROWS(text) ROWS_BEFORE ",\"product_rows\":" text

TEST(test_rows)
{
    struct plan_cluster c, again;
    struct text text = {0};
    assert_int_equal(parse(ROWS_BEFORE,
                           ROWS("[{\"width\":128,\"share\":[[64,0.25],[256,0.75]]},"
                                "{\"width\":512,\"share\":[[64,0.5]]}]"),
                           &c),
                     ST_OK);
    const struct plan_rows *rows = &c.product_rows;
    assert_int_equal(rows->n, 2);
    assert_float_equal(plan_cluster_rows_share(rows, 64, 16), 0.25, 0); /* of the nearest width */
    assert_float_equal(plan_cluster_rows_share(rows, 128, 128), 0.5, 1e-12);
    assert_float_equal(plan_cluster_rows_share(rows, 256, 256), 0.625, 1e-12); /* 0.75 and 0.5 */
    assert_float_equal(plan_cluster_rows_share(rows, 64, 4096), 0.5, 0);
    assert_int_equal(c.product_wide.n, 0);
    plan_cluster_write(&c, &text);
    assert_int_equal(plan_cluster_parse(text.data, text.len, "again", &again), ST_OK);
    assert_memory_equal(&again.product_rows, rows, sizeof *rows);
    text_free(&text);
}

TEST(test_refuses_rows)
{
    refused(ROWS_BEFORE, ROWS("7"), "\"product_rows\" is a number, expected an array");
    refused(ROWS_BEFORE, ROWS("[7]"), "entry 1 is no object");
    refused(ROWS_BEFORE, ROWS("[{\"share\":[[64,1]]}]"), "\"width\" is missing");
    refused(ROWS_BEFORE, ROWS("[{\"width\":128,\"share\":[]}]"), "128 and 0 points");
    refused(ROWS_BEFORE, ROWS("[{\"width\":-1,\"share\":[[64,1]]}]"), "entry 1 has the width -1");
    refused(ROWS_BEFORE, ROWS("[{\"widht\":128}]"), "did you mean \"width\"?");
    refused(ROWS_BEFORE,
            ROWS("[{\"width\":128,\"share\":[[64,1]]},{\"width\":128,\"share\":[[64,1]]}]"),
            "entry 2 has the width 128");
    refused(ROWS_BEFORE, ROWS("[1,2,3,4,5,6,7,8,9]"), "has 9 widths, at most 8");
}

TEST(test_writes)
{
    struct plan_cluster c, again;
    struct text text = {0}, twice = {0};
    assert_int_equal(parse("0.25", "0.123456789012345", &c), ST_OK);
    c.threads_n = 3;
    plan_cluster_write(&c, &text);
    assert_int_equal(plan_cluster_parse(text.data, text.len, "again", &again), ST_OK);
    plan_cluster_write(&again, &twice);
    assert_string_equal(text.data, twice.data);
    assert_int_equal(again.threads_n, 3);
    assert_float_equal(again.product[PLAN_PRECISION_BF16].point[0].share, 0.123456789012345, 0);
    text_free(&text);
    text_free(&twice);
}

/* Rates of own attention kernels: none if the file has none, and what is read is written. */
TEST(test_own_attention)
{
    struct plan_cluster c, again;
    struct text text = {0};
    assert_int_equal(parse("", "", &c), ST_OK);
    assert_int_equal(c.attention_own_forward.n + c.attention_own_backward.n, 0);
    assert_int_equal(parse("\"step_us\"",
                           "\"attention_own_forward\":[[1e11,0.2]],"
                           "\"attention_own_backward\":[[1e11,0.125],[1e12,0.25]],\"step_us\"",
                           &c),
                     ST_OK);
    plan_cluster_write(&c, &text);
    assert_int_equal(plan_cluster_parse(text.data, text.len, "again", &again), ST_OK);
    assert_int_equal(again.attention_own_forward.n, 1);
    assert_int_equal(again.attention_own_backward.n, 2);
    assert_float_equal(plan_cluster_share(&again.attention_own_forward, 1), 0.2, 0);
    assert_float_equal(plan_cluster_share(&again.attention_own_backward, 1e12), 0.25, 0);
    refused("\"step_us\"", "\"attention_own_backwrd\":[[1e11,0.2]],\"step_us\"",
            "did you mean \"attention_own_backward\"?");
    text_free(&text);
}

TEST(test_built_in)
{
    struct plan_cluster c, found;
    int n = 0;
    for (; plan_cluster_nth(n, &c); n++) {
        assert_int_equal(plan_cluster_open(c.name, &found), ST_OK);
        assert_string_equal(found.source, c.source);
        assert_true(c.memory_bytes > 1e9);
    }
    assert_true(n >= 2);
    assert_false(plan_cluster_nth(n, &c));
}

/* lambda: the a100-40 of the scorecard's machine of that name (tests/plan/scorecard.tsv). */
TEST(test_lambda)
{
    struct plan_cluster base, lambda;
    assert_int_equal(plan_cluster_open("a100-40", &base), ST_OK);
    assert_int_equal(plan_cluster_open("lambda", &lambda), ST_OK);
    const struct plan_share *was = &base.product[PLAN_PRECISION_BF16],
                            *is = &lambda.product[PLAN_PRECISION_BF16];
    assert_int_equal(is->n, was->n);
    for (int i = 0; i < is->n; i++)
        assert_float_equal(is->point[i].share, 0.6852 * was->point[i].share, 1e-9);
    for (int i = 0; i < lambda.attention.n; i++)
        assert_float_equal(lambda.attention.point[i].share, 0.6852 * base.attention.point[i].share,
                           1e-9);
    assert_float_equal(lambda.across.bytes_per_second, 8.271e8, 0);
    assert_float_equal(lambda.across.latency_us, 50, 0);
    assert_float_equal(lambda.memory_bytes, base.memory_bytes, 0);
    assert_float_equal(lambda.inside.bytes_per_second, base.inside.bytes_per_second, 0);
}

/* A name that is not known: the nearest one is suggested. */
TEST(test_nearest)
{
    static const struct {
        const char *name, *says;
    } rows[] = {
        {"h100", "; did you mean h100-sxm? ("},    {"h200-sxn", "; did you mean h200-sxm? ("},
        {"lamda", "; did you mean lambda? ("},     {"mi300", "; did you mean mi300x? ("},
        {"mi25", "; did you mean mi250? ("},       {"tpu-v5", "is no built-in cluster (h100-sxm, "},
        {"", "is no built-in cluster (h100-sxm, "}};
    struct plan_cluster c;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(plan_cluster_open(rows[i].name, &c), ST_BAD_SETTING);
        if (!strstr(status_message(), rows[i].says))
            fail_msg("%s: %s", rows[i].name, status_message());
    }
}

TEST(test_opens)
{
    struct plan_cluster c;
    char path[600];
    assert_int_equal(plan_cluster_open("h100", &c), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "h100-sxm, "));
    snprintf(path, sizeof path, "%s/m.json", harness_tmpdir());
    assert_int_equal(plan_cluster_open(path, &c), ST_NO_INPUT);
    assert_int_equal(file_replace(path, whole, sizeof whole - 1), ST_OK);
    assert_int_equal(plan_cluster_open(path, &c), ST_OK);
    assert_int_equal(file_replace(path, "{", 1), ST_OK);
    assert_int_equal(plan_cluster_open(path, &c), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), path));
}

HARNESS_RUN_ALL()
