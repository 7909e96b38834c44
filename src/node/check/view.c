/* check_view — see check/output.h. */
#include "node/check/output.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "check/check_result.h"

#define ROWS_METRICS 512 /* most rows in /metrics; rows that warn or fail come first */

struct check_view {
    const struct conf *conf;
    const struct board *board;
    uint64_t revision;
    struct text json, metrics, line;
};

struct check_view *check_view_open(const struct conf *conf, const struct board *board)
{
    struct check_view *view = memory_new(1, sizeof *view);
    *view = (struct check_view){.conf = conf, .board = board};
    return view;
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

void check_view_fill(struct check_view *view, struct view *out)
{
    struct check_result result;
    uint64_t revision = board_blob_revision(view->board, BOARD_BLOB_CHECK);
    if (revision != view->revision && check_result_read(view->board, &result)) {
        view->revision = revision;
        text_free(&view->json);
        text_free(&view->metrics);
        text_free(&view->line);
        check_result_line(&result.rows, &view->line);
        check_result_json(&result, &view->json);
        struct check_rows rows = {0};
        const struct check_report_about about = check_output_about(view->conf, &result);
        /* At most ROWS_METRICS rows: first the rows that warn or fail, then others. */
        for (int is_second = 0; is_second < 2; is_second++)
            for (int i = 0; i < result.rows.n && rows.n < ROWS_METRICS; i++)
                if (check_row_is_bad(&result.rows.row[i]) != (is_second != 0))
                    check_row_add(&rows, &result.rows.row[i]);
        enum status st = check_prometheus_write(&rows, &about, &view->metrics);
        check_row_free(&rows);
        if (st != ST_OK) {
            LOG_WARN("/metrics does not show the check: %s", status_message());
            status_clear();
            text_free(&view->metrics);
        }
        check_result_free(&result);
    }
    out->check_json = view->json.data;
    out->check_metrics = view->metrics.data;
    out->check_line = view->line.data;
}
