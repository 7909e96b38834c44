/* check_report: the table fits a terminal and names what is bad; JSON and Prometheus can be read
 * by programs, whatever bytes the rows hold. */
#include "harness.h"

#include "base/json.h"
#include "base/rand.h"
#include "check/check_judge.h"
#include "check/report/report.h"
#include "check/report/text.h"
#include "check/check_sample.h"

typedef enum status (*write_fn)(const struct check_rows *, const struct check_report_about *,
                                struct text *);
static const write_fn formats[] = {check_table_write, check_report_json, check_prometheus_write};

static const struct check_report_about about = {.nodes = 8,
                                                .ranks = 16,
                                                .version = "0.17.0",
                                                .depth = "quick",
                                                .started = 1795452000,
                                                .seconds = 41.7};

static struct check_row *add_found(struct check_rows *rows, enum check_point point, int node,
                                   const char *name, enum check_verdict verdict, const char *why)
{
    return sample_add(rows,
                      check_row_found(CHECK_STAGE_STATIC, point, node, name, verdict, "%s", why));
}

/* Eight nodes: a slow GPU, a bad port, a missing GPU, a limit that is too low on all. */
static void cluster(struct check_rows *rows, int nodes)
{
    sample_hosts(rows, nodes, CHECK_SCHEDULER_SLURM);
    for (int node = 0; node < nodes; node++) {
        for (int gpu = 0; gpu < 2; gpu++) {
            struct check_row *row = sample_rate(rows, node, node == 3 && gpu == 1 ? 50 : 100);
            snprintf(row->subject, sizeof row->subject, "GPU %d", gpu);
            row->rank = 2 * node + gpu;
        }
        for (int peer = node + 1; peer < nodes && peer < node + 16; peer++) {
            const bool is_bad = node == 2 || peer == 2;
            struct check_row *link = sample_link(rows, node, peer, is_bad ? 5040 : 41);
            link->verdict = is_bad ? CHECK_VERDICT_FAIL : CHECK_VERDICT_PASS;
            link->suspect = is_bad ? 2 : -1;
        }
        add_found(rows, CHECK_POINT_GPUS, node, "gpus",
                  node == 5 ? CHECK_VERDICT_FAIL : CHECK_VERDICT_PASS,
                  node == 5 ? "7 of 8 GPUs are present" : "8 of 8 GPUs are present");
        add_found(rows, CHECK_POINT_GRES, node, "slurm gres", CHECK_VERDICT_SKIPPED,
                  "not started by Slurm");
        strcpy(add_found(rows, CHECK_POINT_HOST, node, "memlock", CHECK_VERDICT_WARN,
                         "8 MiB may be locked")
                   ->remedy,
               "ulimit -l unlimited");
    }
    check_judge(rows);
}

static char *written(write_fn write, const struct check_rows *rows,
                     const struct check_report_about *what)
{
    struct text out = {0};
    assert_int_equal(write(rows, what, &out), ST_OK);
    assert_int_equal(strlen(out.data), out.len);
    return out.data;
}

/* Lines of at most 100 columns, without blanks at their ends and without controls. */
static void check_lines(const char *text)
{
    while (*text) {
        char line[1024];
        const size_t n = strcspn(text, "\n");
        assert_true(n < sizeof line);
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (text_columns(line) > 100 || (n > 0 && line[n - 1] == ' '))
            fail_msg("%d columns: %s", text_columns(line), line);
        for (size_t i = 0; i < n; i++)
            assert_true((unsigned char)line[i] >= 0x20);
        text += n + (text[n] == '\n');
    }
}

static void contains(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("there is no \"%s\" in\n%s", words, text);
}

TEST(table_names_what_is_bad)
{
    struct check_rows rows = {0};
    cluster(&rows, 8);
    char *text = written(check_table_write, &rows, &about);
    check_lines(text);
    contains(text, "check of 8 nodes, 16 ranks: quick, convoy 0.17.0, 2026-11-23 16:40 UTC, 41.7 "
                   "s\n");
    contains(text, "x rate ");
    contains(text, " 100 GB/s       50 GB/s gpu-3, GPU 1\n");
    contains(text, "fail   rate: node 3 (gpu-3), GPU 1\n"
                   "       50 GB/s; 50 % worse than the median of 16 peers, 100 GB/s; limit 80 "
                   "GB/s\n"
                   "     > scontrol update NodeName=gpu-3 State=DRAIN Reason=\"convoy check: "
                   "rate\"\n");
    contains(text, "fail   link latency: 7 links of node 2 (gpu-2)\n");
    contains(text, "warn   memlock: nodes 0-7\n       8 MiB may be locked\n     > ulimit -l "
                   "unlimited\n");
    contains(text, "GPU enumeration                   fail    gpus: node 5 (gpu-5)\n");
    contains(text, "latency and bandwidth             fail    link latency: links of node 2");
    contains(text, "worker enumeration                pass    8 rows\n");
    contains(text, "Slurm GRES                        skipped not started by Slurm\n");
    contains(text, "failing: nodes 2-3, 5\nverdict: fail (76 rows: 51 pass, 8 warn, 9 fail, 8 "
                   "skipped)\n");
    for (int p = 0; p < CHECK_POINT_HOST; p++)
        contains(text, check_row_point((enum check_point)p));
    assert_null(strchr(text, '\033'));
    free(text);
    check_row_free(&rows);
}

TEST(table_has_colours_on_a_terminal)
{
    struct check_rows rows = {0};
    struct check_report_about terminal = about;
    terminal.is_terminal = true;
    cluster(&rows, 8);
    char *text = written(check_table_write, &rows, &terminal);
    contains(text, "verdict: \033[1;31mfail\033[0m");
    free(text);
    check_row_free(&rows);
}

/* 4,096 nodes, a fault of a kind on each: the table stays short and is quick. */
TEST(table_of_many_nodes)
{
    struct check_rows rows = {0};
    char why[64];
    int lines = 0;
    cluster(&rows, 4096);
    for (int node = 0; node < 4096; node += 2) {
        snprintf(why, sizeof why, "%d uncorrected errors", node + 1);
        add_found(&rows, CHECK_POINT_GPUS, node, "gpu ecc", CHECK_VERDICT_FAIL, why);
    }
    const int64_t begin = clock_ms();
    char *text = written(check_table_write, &rows, &about);
    assert_true(clock_ms() - begin < harness_patience_ms(5000));
    check_lines(text);
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    assert_true(lines < 120);
    contains(text, "warn   memlock: nodes 0-4095\n");
    contains(text, "fail   gpu ecc: node 14 (gpu-14)\n");
    contains(text,
             "and 2040 more like this; REPORT=check.json has all. Nodes:\n       16, 18, 20,");
    free(text);
    check_row_free(&rows);
}

TEST(lists_of_nodes)
{
    static const int node[] = {0, 1, 2, 2, 3, 7, 12, 13, 40};
    char out[64], narrow[16];
    assert_string_equal(check_table_nodes(out, sizeof out, node, 9), "0-3, 7, 12-13, 40");
    assert_string_equal(check_table_nodes(narrow, sizeof narrow, node, 9), "0-3, 7, …");
    assert_string_equal(check_table_nodes(out, sizeof out, node, 0), "");
}

TEST(empty_report)
{
    struct check_rows rows = {0};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        free(written(formats[f], &rows, &about));
    char *text = written(check_table_write, &rows, &about);
    contains(text, "verdict: pass (0 rows");
    free(text);
}

TEST(json_has_all_rows)
{
    struct check_rows rows = {0};
    cJSON *root = NULL;
    const cJSON *list;
    cluster(&rows, 8);
    char *text = written(check_report_json, &rows, &about);
    assert_int_equal(json_parse(text, strlen(text), "the report", &root), ST_OK);
    assert_true(json_number(root, "schema") == 1 && json_number(root, "nodes") == 8);
    assert_string_equal(json_text(root, "verdict"), "fail");
    assert_int_equal(json_get_array(root, "rows", &list), ST_OK);
    assert_int_equal(cJSON_GetArraySize(list), rows.n);
    for (int i = 0; i < rows.n; i++) {
        const cJSON *item = cJSON_GetArrayItem(list, i);
        const double value = json_number(item, "value");
        assert_string_equal(json_text(item, "name"), rows.row[i].name);
        assert_string_equal(json_text(item, "why"), rows.row[i].why);
        assert_string_equal(json_text(item, "remedy"), rows.row[i].remedy);
        assert_string_equal(json_text(item, "verdict"), check_row_verdict(rows.row[i].verdict));
        assert_true(isnan(rows.row[i].value) ? isnan(value) : value == rows.row[i].value);
    }
    cJSON_Delete(root);
    free(text);
    check_row_free(&rows);
}

/* Each series once, all of a metric together after its HELP and TYPE; as the format wants it. */
static void check_prometheus(const char *text)
{
    char *copy = strdup(text), *save = NULL, metric[128] = "";
    const char *seen[4096];
    int n = 0;
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (!strncmp(line, "# HELP ", 7)) {
            snprintf(metric, sizeof metric, "%.*s", (int)strcspn(line + 7, " "), line + 7);
            continue;
        }
        if (!strncmp(line, "# TYPE ", 7)) {
            assert_int_equal(strncmp(line + 7, metric, strlen(metric)), 0);
            continue;
        }
        char *value = strrchr(line, ' ');
        assert_non_null(value);
        *value = 0;
        assert_int_equal(strcspn(line, "{"), strlen(metric));
        assert_int_equal(strncmp(line, metric, strlen(metric)), 0);
        assert_int_equal(strspn(value + 1, "0123456789.e+-"), strlen(value + 1));
        for (int i = 0; i < n; i++)
            assert_string_not_equal(seen[i], line);
        assert_true(n < 4096);
        seen[n++] = line;
    }
    free(copy);
}

TEST(prometheus_gauges)
{
    struct check_rows rows = {0};
    cluster(&rows, 8);
    sample_add(&rows, rows.row[10]); /* the same labels again */
    char *text = written(check_prometheus_write, &rows, &about);
    check_prometheus(text);
    contains(text, "# TYPE convoy_check_rows gauge\n");
    contains(text, "convoy_check_rows{verdict=\"fail\"} 9\n");
    contains(text, "convoy_check_duration_seconds 41.7\n");
    contains(text, "convoy_check_verdict{stage=\"static\",name=\"gpus\",node=\"5\",host=\"gpu-5\"} "
                   "2\n");
    contains(text, "convoy_check_measured_bytes_per_second{stage=\"node\",name=\"rate\",node=\"3\","
                   "host=\"gpu-3\",subject=\"GPU 1\",rank=\"7\"} 50000000000\n");
    contains(text, "convoy_check_measured_seconds{stage=\"pairs\",name=\"link latency\","
                   "node=\"0\",host=\"gpu-0\",peer=\"1\"} 4.1e-05\n");
    free(text);
    check_row_free(&rows);
}

/* Two names of units for the same quantity, and a unit that Prometheus has no word for. */
TEST(prometheus_units)
{
    struct check_rows rows = {0};
    strcpy(sample_link(&rows, 0, 1, 7)->unit, "ms");
    sample_link(&rows, 0, 1, 7000);
    strcpy(sample_rate(&rows, 0, 3)->unit, "apples");
    strcpy(sample_rate(&rows, 0, 4)->unit, "pears");
    sample_rate(&rows, 0, INFINITY);
    char *text = written(check_prometheus_write, &rows, &about);
    check_prometheus(text);
    contains(text, "peer=\"1\"} 0.007\n");
    contains(text, "host=\"\",unit=\"apples\"} 3\n");
    contains(text, "host=\"\",unit=\"pears\"} 4\n");
    free(text);
    check_row_free(&rows);
}

/* Fills a text with bytes of any kind, most of them such as have a meaning somewhere. */
static void scribble(char *out, size_t cap, uint64_t *at)
{
    static const char tricky[] = "\"\\<>&'{}\n\r\t\033\x7f\xc2\x9b\xff\xed\xa0\x80%s ";
    const size_t n = rand_below(9, 1, (*at)++, cap);
    for (size_t i = 0; i < n; i++) {
        const uint64_t pick = rand_below(9, 2, (*at)++, 2);
        out[i] = pick ? tricky[rand_below(9, 3, (*at)++, sizeof tricky - 1)]
                      : (char)(1 + rand_below(9, 4, (*at)++, 255));
    }
    out[n] = 0;
}

TEST(any_bytes_in_rows)
{
    static const double values[] = {0, -1, 1e308, NAN, INFINITY, -INFINITY, 4e-324};
    uint64_t at = 0;
    for (int round = 0; round < 60; round++) {
        struct check_rows rows = {0};
        for (int i = 0; i < 20; i++) {
            struct check_row *row =
                sample_rate(&rows, (int)rand_below(9, 5, at++, 4) - 1, values[i % 7]);
            row->peer = i % 3 == 0 ? 1 : -1;
            row->point = (enum check_point)(i % CHECK_POINT_N);
            row->verdict = (enum check_verdict)(i % 5);
            scribble(row->name, sizeof row->name, &at);
            scribble(row->subject, sizeof row->subject, &at);
            scribble(row->unit, sizeof row->unit, &at);
            scribble(row->why, sizeof row->why, &at);
            scribble(row->remedy, sizeof row->remedy, &at);
        }
        cJSON *root = NULL;
        char *table = written(check_table_write, &rows, &about),
             *json = written(check_report_json, &rows, &about),
             *prometheus = written(check_prometheus_write, &rows, &about);
        check_lines(table);
        assert_int_equal(json_parse(json, strlen(json), "the report", &root), ST_OK);
        cJSON_Delete(root);
        check_prometheus(prometheus);
        free(table);
        free(json);
        free(prometheus);
        check_row_free(&rows);
    }
}

TEST(a_report_that_does_not_fit_fails)
{
    struct check_rows rows = {0};
    cluster(&rows, 8);
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        struct text out = {.limit = 300};
        assert_int_equal(formats[f](&rows, &about, &out), ST_RETRY);
        text_free(&out);
    }
    check_row_free(&rows);
}

TEST(printable_text)
{
    static const struct {
        const char *in, *out;
    } cases[] = {{"a\033[31mb", "a?[31mb"},        {"µs …", "µs …"},
                 {"\xc2\x9b\x7f\x80", "????"},     {"\xed\xa0\x80", "???"},
                 {"\xef\xbf\xbf", "???"},          {"\xf0\x9f\x9a\x82", "\xf0\x9f\x9a\x82"},
                 {"\xf4\x90\x80\x80", "????"},     {"\xe2\x82", "??"},
                 {"\xc0\xaf\xe0\x80\xaf", "?????"}};
    char out[64], narrow[4];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(text_printable(out, sizeof out, cases[i].in), cases[i].out);
    assert_string_equal(text_printable(narrow, sizeof narrow, "ab…"), "ab");
}

/* ---- commands that are pasted ---- */

/* What `sh -c` makes of text: its first line of output in out. */
static void shell(const char *text, char *out, size_t cap)
{
    char command[4096];
    assert_true(text_format(command, sizeof command, "%s", text));
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    out[0] = 0;
    if (fgets(out, (int)cap, pipe) != NULL)
        out[strcspn(out, "\n")] = 0;
    assert_int_equal(pclose(pipe), 0);
}

TEST(words_of_a_shell)
{
    static const char *const paths[] = {"/checkpoints/run-1",
                                        "/with a blank/two  blanks",
                                        "/it's",
                                        "/\"$(reboot)\"; `id` & \\ *",
                                        "",
                                        "~",
                                        "#1",
                                        "/Gr\303\266\303\237e"};
    char word[CHECK_TEXT_WORD], command[256], out[256], path[300];
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        check_text_word(word, sizeof word, paths[i], "none");
        text_format(command, sizeof command, "printf %%s %s", word);
        shell(command, out, sizeof out);
        assert_string_equal(out, paths[i]);
    }
    assert_string_equal(check_text_word(word, sizeof word, paths[0], "none"), paths[0]);
    /* what cannot be shown, and what does not fit, is not cut: a section of a path is another
     * one */
    assert_string_equal(check_text_word(word, sizeof word, "a\nb", "none"), "none");
    assert_string_equal(check_text_word(word, sizeof word, "a\377b", "none"), "none");
    assert_string_equal(check_text_folder(word, sizeof word, "-rf"), "./-rf");
    memset(path, '/', sizeof path - 1);
    path[sizeof path - 1] = 0;
    assert_string_equal(check_text_folder(word, sizeof word, path), "\"$CHECKPOINT_DIR\"");
    path[CHECK_TEXT_WORD - 1] = 0;
    assert_string_equal(check_text_folder(word, sizeof word, path), path);
    memset(path, '\'', CHECK_TEXT_WORD - 1);
    assert_string_equal(check_text_folder(word, sizeof word, path), "\"$CHECKPOINT_DIR\"");
}

/* A command that is wrapped does what it does in one line. */
static void check_wrapped(const char *command)
{
    char once[1024], wrapped[1024];
    struct text text = {0};
    check_table_wrap(&text, "", command, true);
    check_lines(text.data);
    assert_true(strchr(text.data, '\n') < text.data + text.len - 1);
    shell(command, once, sizeof once);
    shell(text.data, wrapped, sizeof wrapped);
    assert_string_equal(once, wrapped);
    text_free(&text);
}

TEST(a_wrapped_command_is_the_same)
{
    static const char tail[] =
        " \"two of them\" three\\ four five six seven eight nine ten eleven twelve # and a "
        "comment, "
        "which has an apostrophe: it isn't broken into a command either, however long # it may be";
    char command[512];
    for (int bytes = 1; bytes < 220; bytes++) {
        static const char word[] =
            "one  word of several with blanks, longer than a line of the table: a backslash within "
            "quotes is a backslash, and a new line is one; it is \\ not broken by it, so: \\\\ in "
            "three lines it is the same word, with all of its  blanks";
        text_format(command, sizeof command, "printf '%%s|' '%.*s'%s", bytes, word, tail);
        check_wrapped(command);
    }
    memset(command, 'a', 250);
    text_format(command + 250, sizeof command - 250, "\"b c\" d%s", tail);
    memcpy(command, "printf %s ", 10);
    check_wrapped(command);
}

HARNESS_RUN_ALL()
