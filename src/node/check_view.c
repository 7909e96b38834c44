/* check_view — see check_view.h. */
#include "node/check_view.h"

#include <stdlib.h>

#include <cjson/cJSON.h>

#include "base/json.h"
#include "base/log.h"
#include "node/check_output.h"
#include "node/check_result.h"

#define ROWS_SHOWN 64    /* in /status: rows that warn or fail */
#define ROWS_METRICS 512 /* in /metrics; of more, those that warn or fail come first */

struct check_view {
    const struct conf *conf;
    const struct board *board;
    uint64_t revision;
    struct text json, metrics, line;
};

enum status check_view_open(const struct conf *conf, const struct board *board,
                            struct check_view **out)
{
    struct check_view *view = calloc(1, sizeof *view);
    if (!view)
        return FAIL(ST_RETRY, "out of memory: the check's state");
    *view = (struct check_view){.conf = conf, .board = board};
    *out = view;
    return ST_OK;
}

void check_view_close(struct check_view *view)
{
    if (!view)
        return;
    text_free(&view->json);
    text_free(&view->metrics);
    text_free(&view->line);
    free(view);
}

static bool is_bad(const struct check_row *row)
{
    return row->verdict == CHECK_VERDICT_WARN || row->verdict == CHECK_VERDICT_FAIL;
}

static void add_node(cJSON *object, const char *name, int node)
{
    if (node >= 0)
        json_add_i64(object, name, node);
    else
        cJSON_AddNullToObject(object, name);
}

/* json_add_text — text of any bytes. */
static void add_text(cJSON *object, const char *name, const char *text)
{
    char quoted[6 * 256 + 3];
    json_quote(quoted, sizeof quoted, text);
    cJSON_AddRawToObject(object, name, quoted);
}

static void add_row(cJSON *rows, const struct check_row *row)
{
    cJSON *object = cJSON_CreateObject();
    add_text(object, "stage", check_row_stage(row->stage));
    add_text(object, "name", row->name);
    add_text(object, "verdict", check_row_verdict(row->verdict));
    add_node(object, "node", row->node);
    add_node(object, "peer", row->peer);
    add_text(object, "subject", row->subject);
    json_add_number(object, "value", row->value);
    add_text(object, "unit", row->unit);
    add_text(object, "why", row->why);
    add_text(object, "remedy", row->remedy);
    cJSON_AddItemToArray(rows, object);
}

static void add_counts(cJSON *root, const struct check_rows *rows)
{
    static const struct {
        enum check_verdict verdict;
        const char *name;
    } names[] = {{CHECK_VERDICT_PASS, "passed"},
                 {CHECK_VERDICT_WARN, "warned"},
                 {CHECK_VERDICT_FAIL, "failed"},
                 {CHECK_VERDICT_SKIPPED, "skipped"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t n = 0;
        for (int r = 0; r < rows->n; r++)
            n += rows->row[r].verdict == names[i].verdict;
        json_add_i64(root, names[i].name, n);
    }
}

static void write_json(const struct check_result *result, struct text *out)
{
    cJSON *root = cJSON_CreateObject();
    int shown = 0;
    add_text(root, "verdict", check_row_verdict(check_rows_worst(&result->rows, -1)));
    cJSON_AddBoolToObject(root, "whole", result->is_whole);
    add_text(root, "depth", check_result_depth(result));
    json_add_i64(root, "started", result->started);
    json_add_number(root, "seconds", result->seconds);
    add_counts(root, &result->rows);
    cJSON *rows = cJSON_AddArrayToObject(root, "rows");
    for (int i = 0; i < result->rows.n && shown < ROWS_SHOWN; i++)
        if (is_bad(&result->rows.row[i])) {
            add_row(rows, &result->rows.row[i]);
            shown++;
        }
    char *json = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    if (json)
        text_add(out, "%s", json);
    cJSON_free(json);
}

/* write_line — "check: fail, 1 row fails and 2 warn: node 2: …". */
static void write_line(const struct check_rows *rows, struct text *out)
{
    int failed = 0, warned = 0;
    const struct check_row *worst = NULL;
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        failed += row->verdict == CHECK_VERDICT_FAIL;
        warned += row->verdict == CHECK_VERDICT_WARN;
        if (is_bad(row) && (!worst || row->verdict > worst->verdict))
            worst = row;
    }
    text_add(out, "check: %s, of %d rows %d fail and %d warn",
             check_row_verdict(check_rows_worst(rows, -1)), rows->n, failed, warned);
    char text[640];
    if (worst)
        text_add(out, ": %s", check_result_sentence(worst, text, sizeof text));
}

/* pick — rows that warn or fail, then others, ROWS_METRICS at most. */
static enum status pick(const struct check_rows *rows, struct check_rows *out)
{
    for (int is_second = 0; is_second < 2; is_second++)
        for (int i = 0; i < rows->n && out->n < ROWS_METRICS; i++)
            if (is_bad(&rows->row[i]) != (is_second != 0))
                TRY(check_rows_add(out, &rows->row[i]));
    return ST_OK;
}

static enum status write_metrics(const struct conf *conf, const struct check_result *result,
                                 struct text *out)
{
    struct check_rows rows = {0};
    const struct check_report_about about = check_output_about(conf, result);
    enum status st = pick(&result->rows, &rows);
    if (st == ST_OK)
        st = check_prometheus_write(&rows, &about, out);
    check_rows_free(&rows);
    return st;
}

static void refresh(struct check_view *view)
{
    struct check_result result;
    uint64_t revision = board_blob_revision(view->board, BOARD_BLOB_CHECK);
    if (revision == view->revision || !check_result_read(view->board, &result))
        return;
    view->revision = revision;
    text_free(&view->json);
    text_free(&view->metrics);
    text_free(&view->line);
    write_line(&result.rows, &view->line);
    write_json(&result, &view->json);
    if (write_metrics(view->conf, &result, &view->metrics) != ST_OK) {
        LOG_WARN("/metrics does not show the check: %s", status_message());
        status_clear();
        text_free(&view->metrics);
    }
    check_result_free(&result);
}

void check_view_fill(struct check_view *view, struct view *out)
{
    refresh(view);
    out->check_json = view->json.data;
    out->check_metrics = view->metrics.data;
    out->check_line = view->line.data;
}
