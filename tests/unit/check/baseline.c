/* check_baseline: what a report says is read again; damage is refused; what got worse since then
 * warns or fails and names the day. */
#include "harness.h"

#include "base/rand.h"
#include "check/check_judge.h"
#include "check/report/report.h"
#include "check/check_sample.h"

enum { NOV_20 = 1795132800 }; /* 2026-11-20 00:00 UTC */

static const struct check_report_about about = {.nodes = 4,
                                                .ranks = 4,
                                                .version = "0.17.0",
                                                .depth = "quick",
                                                .started = NOV_20,
                                                .seconds = 12.5};

/* Four nodes of two rates and links; factor: of all rates of node `slow`. */
static void cluster(struct check_rows *rows, int slow, double factor)
{
    sample_hosts(rows, 4, CHECK_SCHEDULER_SLURM);
    for (int node = 0; node < 4; node++) {
        for (int gpu = 0; gpu < 2; gpu++)
            snprintf(sample_rate(rows, node, node == slow ? 100 * factor : 100)->subject, 64,
                     "GPU %d", gpu);
        for (int peer = node + 1; peer < 4; peer++)
            sample_link(rows, node, peer, 50);
    }
}

static struct text report(const struct check_rows *rows)
{
    struct text out = {0};
    assert_int_equal(check_report_json(rows, &about, &out), ST_OK);
    return out;
}

static void baseline_of(const struct check_rows *rows, struct check_baseline *out)
{
    struct text json = report(rows);
    assert_int_equal(check_baseline_parse(json.data, json.len, "base.json", out), ST_OK);
    text_free(&json);
}

static void same_double(double a, double b) { assert_true(a == b || (isnan(a) && isnan(b))); }

TEST(a_report_is_read_again)
{
    struct check_rows rows = {0};
    struct check_baseline base;
    cluster(&rows, 2, 0.3);
    sample_rate(&rows, -1, INFINITY);
    struct check_row odd = check_row_found(CHECK_STAGE_SOAK, CHECK_POINT_HOST, 3, "xid",
                                           CHECK_VERDICT_FAIL, "\"quotes\" \\ \n µ");
    sample_add(&rows, odd);
    check_judge(&rows);
    baseline_of(&rows, &base);
    assert_int_equal(base.rows.n, rows.n);
    assert_true(base.started == NOV_20 && base.nodes == 4);
    for (int i = 0; i < rows.n; i++) {
        const struct check_row *a = &rows.row[i], *b = &base.rows.row[i];
        assert_true(a->stage == b->stage && a->point == b->point && a->verdict == b->verdict);
        assert_true(a->node == b->node && a->peer == b->peer && a->rank == b->rank);
        assert_true(a->suspect == b->suspect && a->better == b->better);
        same_double(isfinite(a->value) ? a->value : NAN, b->value);
        same_double(a->limit, b->limit);
        same_double(a->slack, b->slack);
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->subject, b->subject);
        assert_string_equal(a->why, b->why);
        assert_string_equal(a->remedy, b->remedy);
    }
    check_baseline_free(&base);
    check_baseline_free(&base);
    check_row_free(&rows);
}

/* All nodes became slower together: peers cannot show it. Or one did, by less than an outlier. */
TEST(what_got_worse)
{
    static const struct {
        double factor;
        enum check_verdict verdict;
    } cases[] = {{1.2, CHECK_VERDICT_PASS},
                 {0.96, CHECK_VERDICT_PASS},
                 {0.94, CHECK_VERDICT_WARN},
                 {0.79, CHECK_VERDICT_FAIL}};
    struct check_rows good = {0};
    struct check_baseline base;
    cluster(&good, -1, 1);
    check_judge(&good);
    baseline_of(&good, &base);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct check_rows rows = {0};
        cluster(&rows, -1, 1);
        for (int r = 0; r < rows.n; r++)
            if (!strcmp(rows.row[r].name, "rate"))
                rows.row[r].value *= cases[i].factor;
        check_judge(&rows);
        assert_int_equal(check_row_worst(&rows, -1), CHECK_VERDICT_PASS);
        assert_int_equal(check_baseline_compare(&rows, &base), 8 + 6);
        assert_int_equal(check_row_worst(&rows, -1), cases[i].verdict);
        check_row_free(&rows);
    }
    check_baseline_free(&base);
    check_row_free(&good);
}

TEST(why_names_the_day)
{
    struct check_rows good = {0}, rows = {0};
    struct check_baseline base;
    sample_rate(&good, 0, 54.63);
    check_judge(&good);
    baseline_of(&good, &base);
    sample_rate(&rows, 0, 43.11);
    check_judge(&rows);
    check_baseline_compare(&rows, &base);
    assert_string_equal(rows.row[0].why,
                        "43.11 GB/s; 21.1 % worse than the baseline of 2026-11-20, "
                        "54.63 GB/s; limit 43.7 GB/s; 43.11 GB/s; too few peers to "
                        "compare with (1 of 3)");
    assert_true(fabs(rows.row[0].limit - 0.8 * 54.63) < 1e-9);
    assert_string_equal(rows.row[0].remedy,
                        "repair this machine, then measure: convoy check CHECK=full");
    check_baseline_free(&base);
    check_row_free(&good);
    check_row_free(&rows);
}

/* Slack holds; a FAIL stays; a better value changes nothing. */
TEST(slack_and_verdicts_stay)
{
    struct check_rows good = {0}, rows = {0};
    struct check_baseline base;
    sample_link(&good, 0, 1, 10);
    sample_rate(&good, 0, 100);
    check_judge(&good);
    baseline_of(&good, &base);
    sample_link(&rows, 0, 1, 14.9); /* 49 % worse; 5 us mean nothing */
    sample_rate(&rows, 0, 94);
    check_judge(&rows);
    rows.row[1].verdict = CHECK_VERDICT_FAIL;
    assert_int_equal(check_baseline_compare(&rows, &base), 2);
    assert_int_equal(rows.row[0].verdict, CHECK_VERDICT_PASS);
    assert_int_equal(rows.row[1].verdict, CHECK_VERDICT_FAIL);
    check_baseline_free(&base);
    check_row_free(&good);
    check_row_free(&rows);
}

/* The scheduler numbered the nodes anew: names find them; without names, numbers. */
TEST(nodes_are_found_by_name)
{
    struct check_rows good = {0}, rows = {0};
    struct check_baseline base;
    cluster(&good, 1, 0.5); /* gpu-1 was always slower */
    check_judge(&good);
    baseline_of(&good, &base);
    cluster(&rows, 3, 0.5);
    rows.row[1] = check_host_row(1, CHECK_SCHEDULER_SLURM, "gpu-3");
    rows.row[3] = check_host_row(3, CHECK_SCHEDULER_SLURM, "gpu-1");
    check_judge(&rows);
    for (int i = 0; i < rows.n; i++)
        rows.row[i].verdict = CHECK_VERDICT_PASS;
    check_baseline_compare(&rows, &base);
    assert_int_equal(check_row_worst(&rows, -1), CHECK_VERDICT_PASS);
    rows.row[3] = check_host_row(3, CHECK_SCHEDULER_SLURM, "gpu-9"); /* replaced */
    assert_int_equal(check_baseline_compare(&rows, &base), 6 + 3);
    for (int node = 0; node < 4; node++) /* no name is in both */
        rows.row[node] = check_host_row(node, CHECK_SCHEDULER_NONE, "new");
    assert_int_equal(check_baseline_compare(&rows, &base), 8 + 6);
    assert_int_equal(check_row_worst(&rows, 3), CHECK_VERDICT_FAIL);
    check_baseline_free(&base);
    check_row_free(&good);
    check_row_free(&rows);
}

static void refused(const char *bytes, const char *words)
{
    struct check_baseline base = {0};
    assert_int_equal(check_baseline_parse(bytes, strlen(bytes), "base.json", &base), ST_BAD_DATA);
    if (!strstr(status_message(), words))
        fail_msg("\"%s\" does not say \"%s\"", status_message(), words);
    assert_null(base.rows.row);
}

TEST(other_documents_are_refused)
{
    refused("", "base.json");
    refused("[]", "base.json");
    refused("{}", "not a report of `convoy check`");
    refused("{\"schema\":1,\"program\":\"other\",\"started\":1,\"nodes\":1,\"rows\":[]}",
            "not a report");
    refused("{\"schema\":2,\"program\":\"convoy check\",\"started\":1,\"nodes\":1,\"rows\":[]}",
            "schema 2, and this version reads schema 1");
    refused("{\"schema\":1,\"program\":\"convoy check\",\"started\":-1,\"nodes\":1,\"rows\":[]}",
            "started");
    refused("{\"schema\":1,\"program\":\"convoy check\",\"started\":1,\"nodes\":1,\"rows\":[{}]}",
            "row 1: JSON key \"stage\"");
    refused("{\"schema\":1,\"program\":\"convoy check\",\"started\":1,\"nodes\":1,\"rows\":[],"
            "\"rows\":[]}",
            "twice");
}

/* Replaces the first `from` of a report; the reader names the row and the key. */
static void refused_with(const char *from, const char *to, const char *words)
{
    struct check_rows rows = {0};
    char bytes[4096];
    sample_rate(&rows, 1, 100);
    check_judge(&rows);
    struct text json = report(&rows);
    char *at = strstr(json.data, from);
    assert_non_null(at);
    snprintf(bytes, sizeof bytes, "%.*s%s%s", (int)(at - json.data), json.data, to,
             at + strlen(from));
    refused(bytes, words);
    text_free(&json);
    check_row_free(&rows);
}

TEST(wrong_fields_are_refused)
{
    refused_with("\"pass\", \"value\"", "\"good\", \"value\"", "\"verdict\" is \"good\"");
    refused_with("\"node\", \"point\"", "\"moon\", \"point\"", "\"stage\" is \"moon\"");
    refused_with("\"node\": 1", "\"node\": 1e300", "row 1");
    refused_with("\"node\": 1", "\"node\": -7", "\"node\"");
    refused_with("\"node\": 1", "\"node\": 1.5", "\"node\"");
    refused_with("\"value\": 100", "\"value\": \"100\"", "\"value\"");
    refused_with("\"name\": \"rate\"",
                 "\"name\": \"a name of more than the forty bytes it may have\"", "at most 39");
    refused_with("\"name\": \"rate\", ", "", "\"name\"");
    refused_with("\"better\": \"higher\"", "\"better\": \"better\"", "\"better\"");
}

TEST(cut_reports_are_refused)
{
    struct check_rows rows = {0};
    struct check_baseline base = {0};
    cluster(&rows, 2, 0.3);
    check_judge(&rows);
    struct text json = report(&rows);
    for (size_t n = 0; n + 2 < json.len; n++) /* all but the last newline is needed */
        assert_int_equal(check_baseline_parse(json.data, n, "base.json", &base), ST_BAD_DATA);
    assert_int_equal(check_baseline_parse(json.data, json.len - 1, "base.json", &base), ST_OK);
    check_baseline_free(&base);
    text_free(&json);
    check_row_free(&rows);
}

/* Any byte of it changed: read or refused, and nothing else. */
TEST(damaged_reports_do_no_harm)
{
    struct check_rows rows = {0};
    cluster(&rows, 2, 0.3);
    check_judge(&rows);
    struct text json = report(&rows);
    for (uint64_t i = 0; i < 3000; i++) {
        struct check_baseline base = {0};
        char *at = json.data + rand_below(5, 0, i, json.len), kept = *at;
        *at = (char)rand_below(5, 1, i, 256);
        if (check_baseline_parse(json.data, json.len, "base.json", &base) == ST_OK)
            check_baseline_compare(&rows, &base);
        check_baseline_free(&base);
        *at = kept;
    }
    text_free(&json);
    check_row_free(&rows);
}

TEST(files)
{
    char path[600];
    struct check_rows rows = {0};
    struct check_baseline base = {0};
    snprintf(path, sizeof path, "%s/base.json", harness_tmpdir());
    assert_int_equal(check_baseline_read(path, &base), ST_NO_INPUT);
    cluster(&rows, -1, 1);
    check_judge(&rows);
    struct text json = report(&rows);
    assert_int_equal(file_replace(path, json.data, json.len), ST_OK);
    assert_int_equal(check_baseline_read(path, &base), ST_OK);
    assert_int_equal(base.rows.n, rows.n);
    check_baseline_free(&base);
    text_free(&json);
    check_row_free(&rows);
}

HARNESS_RUN_ALL()
