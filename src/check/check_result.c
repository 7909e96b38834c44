/* check_result — see check_result.h. */
#include "check/check_result.h"

#include <stdlib.h>
#include <string.h>

#include "check/check.h"

const char *check_result_depth(const struct check_result *result)
{
    static const char *const depths[] = {[CHECK_DEPTH_QUICK] = "quick",
                                         [CHECK_DEPTH_STANDARD] = "standard",
                                         [CHECK_DEPTH_FULL] = "full"};
    return depths[result->depth >= 0 && result->depth <= CHECK_DEPTH_FULL ? result->depth : 0];
}

#define ROWS_SHOWN 64 /* most rows in /status; only rows that warn or fail */

/* Header before the rows on the board. */
struct head {
    int64_t started, left_out;
    double seconds;
    int32_t is_whole, depth;
};

/* pack_rows — packs the rows that warn or fail first, then the others while there is room. Returns
 * how many were left out. */
static int64_t pack_rows(const struct check_rows *rows, size_t max, struct text *out)
{
    int64_t left_out = 0;
    for (int is_second = 0; is_second < 2; is_second++)
        for (int i = 0; i < rows->n; i++) {
            const size_t before = out->len;
            if (check_row_is_bad(&rows->row[i]) == (is_second != 0))
                continue;
            check_row_pack(&rows->row[i], out);
            if (out->len > max || out->overflow) {
                out->len = before;
                out->overflow = false;
                left_out++;
            }
        }
    return left_out;
}

enum status check_result_publish(struct board *board, const struct check_result *result)
{
    struct text bytes = {.limit = CHECK_ROW_BYTES_MAX};
    struct head head;
    memset(&head, 0, sizeof head);
    text_add_bytes(&bytes, &head, sizeof head);
    if (bytes.overflow)
        return FAIL(ST_RETRY, "out of memory: %d rows of a check", result->rows.n);
    head.left_out = result->left_out +
                    pack_rows(&result->rows, board_blob_max(board, BOARD_BLOB_CHECK), &bytes);
    head.started = result->started;
    head.seconds = result->seconds;
    head.is_whole = result->is_whole;
    head.depth = result->depth;
    memcpy(bytes.data, &head, sizeof head);
    board_blob_publish(board, BOARD_BLOB_CHECK, bytes.data, bytes.len);
    text_free(&bytes);
    return ST_OK;
}

bool check_result_read(const struct board *board, struct check_result *out)
{
    struct head head;
    size_t n = 0;
    *out = (struct check_result){.depth = 0};
    if (board_blob_revision(board, BOARD_BLOB_CHECK) == 0)
        return false;
    char *bytes = malloc(board_blob_max(board, BOARD_BLOB_CHECK));
    bool is_there =
        bytes && board_blob_copy(board, BOARD_BLOB_CHECK, bytes, &n) && n >= sizeof head;
    if (is_there) {
        memcpy(&head, bytes, sizeof head);
        *out = (struct check_result){.started = head.started,
                                     .seconds = head.seconds,
                                     .is_whole = head.is_whole != 0,
                                     .left_out = head.left_out,
                                     .depth = head.depth};
        is_there = check_row_unpack(bytes + sizeof head, n - sizeof head, &out->rows) == ST_OK;
    }
    free(bytes);
    if (!is_there)
        check_result_free(out);
    return is_there;
}

void check_result_free(struct check_result *result) { check_row_free(&result->rows); }

/* The node that a failing row must be about. */
enum about { ABOUT_ANY = -1, ABOUT_SOME_NODE = -2 }; /* or the number of a node */

/* first_failure — returns the first failing row about `node`; NULL: none. *n_out: number of such
 * rows. */
static const struct check_row *first_failure(const struct check_rows *rows, int node, int *n_out)
{
    const struct check_row *first = NULL;
    *n_out = 0;
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        if (row->verdict != CHECK_VERDICT_FAIL ||
            !(node == ABOUT_SOME_NODE ? row->node >= 0 || row->suspect >= 0
                                      : check_row_is_about(row, node)))
            continue;
        first = first ? first : row;
        (*n_out)++;
    }
    return first;
}

const char *check_result_sentence(const struct check_row *row, char *out, size_t cap)
{
    char where[128] = "the job";
    if (row->node >= 0 && row->peer >= 0)
        text_format(where, sizeof where, "nodes %d and %d", row->node, row->peer);
    else if (row->node >= 0)
        text_format(where, sizeof where, "node %d%s%s", row->node, row->subject[0] ? ", " : "",
                    row->subject);
    text_format(out, cap, "%s: %s: %s%s%s", where, row->name, row->why, row->remedy[0] ? "; " : "",
                row->remedy);
    return out;
}

/* ---- for /status and the page ---- */

void check_result_json(const struct check_result *result, struct text *out)
{
    const struct check_report_counts counts = check_report_count(&result->rows);
    int shown = 0;
    text_add(out,
             "{\"verdict\":\"%s\",\"whole\":%s,\"depth\":\"%s\",\"started\":%lld,\"seconds\":%s,"
             "\"passed\":%d,\"warned\":%d,\"failed\":%d,\"skipped\":%d,\"rows\":[",
             check_row_verdict(check_row_worst(&result->rows, -1)),
             result->is_whole ? "true" : "false", check_result_depth(result),
             (long long)result->started, text_f64(result->seconds).text,
             counts.n[CHECK_VERDICT_PASS], counts.n[CHECK_VERDICT_WARN],
             counts.n[CHECK_VERDICT_FAIL], counts.n[CHECK_VERDICT_SKIPPED]);
    for (int i = 0; i < result->rows.n && shown < ROWS_SHOWN; i++) {
        if (!check_row_is_bad(&result->rows.row[i]))
            continue;
        text_add(out, "%s", shown++ > 0 ? "," : "");
        check_report_row(&result->rows.row[i], true, out);
    }
    text_add(out, "]}");
}

void check_result_line(const struct check_rows *rows, struct text *out)
{
    const struct check_report_counts counts = check_report_count(rows);
    const struct check_row *worst = NULL;
    char text[640];
    for (int i = 0; i < rows->n; i++)
        if (check_row_is_bad(&rows->row[i]) && (!worst || rows->row[i].verdict > worst->verdict))
            worst = &rows->row[i];
    text_add(out, "check: %s, of %d rows %d fail and %d warn",
             check_row_verdict(check_row_worst(rows, -1)), rows->n, counts.n[CHECK_VERDICT_FAIL],
             counts.n[CHECK_VERDICT_WARN]);
    if (worst)
        text_add(out, ": %s", check_result_sentence(worst, text, sizeof text));
}

/* ---- the exit status of a node ---- */

/* fail_with_row — fails with the first of n rows. */
static enum status fail_with_row(enum status st, const char *what, const struct check_row *row,
                                 int n)
{
    char text[640], more[64] = "";
    if (n > 1)
        text_format(more, sizeof more, " (and %d more)", n - 1);
    return FAIL(st, "the check failed%s: %s%s", what, check_result_sentence(row, text, sizeof text),
                more);
}

enum status check_result_status(const struct check_result *result, int node, bool is_command)
{
    int n;
    const struct check_row *own = first_failure(&result->rows, node, &n);
    if (own)
        return fail_with_row(ST_UNHEALTHY, "", own, n);
    if (!result->is_whole)
        return ST_OK;
    if (!is_command) {
        /* Before a run, a node without a failing row of its own. */
        const struct check_row *other = first_failure(&result->rows, ABOUT_SOME_NODE, &n);
        if (other)
            return fail_with_row(ST_PEER, "", other, n);
        other = first_failure(&result->rows, ABOUT_ANY, &n);
        if (other)
            return fail_with_row(ST_DISAGREE,
                                 ", and no node could be named, so nothing was trained and no node "
                                 "is to be taken out yet",
                                 other, n);
        return ST_OK;
    }
    const struct check_row *any = first_failure(&result->rows, ABOUT_ANY, &n);
    return any && node == 0 ? fail_with_row(ST_UNHEALTHY, "", any, n) : ST_OK;
}
