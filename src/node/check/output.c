/* check_output — see check/output.h. */
#include "node/check/output.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "check/node/disk.h"
#include "check/node/scratch.h"
#include "node/process/print.h"

#define SWEEP_MS 2000 /* milliseconds to wait for a process that is being killed */
/* milliseconds; a network file system without its server never answers */
#define SWEEP_LIMIT_MS 10000

struct check_report_about check_output_about(const struct conf *conf,
                                             const struct check_result *result)
{
    return (struct check_report_about){
        .nodes = (int)conf_i64(conf, CONF_N_NODES),
        .ranks = conf_ranks(conf),
        .version = version_text(),
        .depth = check_result_depth(result),
        .started = result->started,
        .seconds = result->seconds,
        .is_terminal = isatty(STDOUT_FILENO) && !conf_is_dumb(environ) &&
                       conf_text(conf, CONF_NO_COLOR)[0] == 0,
    };
}

/* ---- files ---- */

/* next_report — returns the next file of REPORT, from *at on; false: there is none. */
static bool next_report(const char **at, char path[4096])
{
    const size_t n = strcspn(*at, ",");
    if ((*at)[0] == 0)
        return false;
    text_format(path, 4096, "%.*s", (int)n, *at);
    *at += n + ((*at)[n] != 0);
    return true;
}

enum status check_output_targets(const struct conf *conf)
{
    const char *at = conf_text(conf, CONF_REPORT), *out = conf_text(conf, CONF_OUT);
    char path[4096];
    while (next_report(&at, path)) {
        const char *mark =
            text_ends(path, ".json") ? "\"program\": \"convoy check\"" : "# HELP convoy_check_";
        TRY(file_check_own("REPORT", path, "a report of convoy check", mark, strlen(mark)));
    }
    return out[0] != 0 ? file_check_own("OUT", out, "a cluster file of convoy check",
                                        "{\n  \"name\": ", strlen("{\n  \"name\": "))
                       : ST_OK;
}

enum status check_output_files(const struct conf *conf, const struct check_result *result)
{
    const struct check_report_about about = check_output_about(conf, result);
    const char *at = conf_text(conf, CONF_REPORT);
    char path[4096];
    while (next_report(&at, path)) {
        struct text out = {0};
        enum status st = text_ends(path, ".json")
                             ? check_report_json(&result->rows, &about, &out)
                             : check_prometheus_write(&result->rows, &about, &out);
        if (st == ST_OK)
            st = file_replace(path, out.data, out.len);
        text_free(&out);
        TRY(st);
    }
    return ST_OK;
}

/* ---- stdout ---- */

static enum status print_rows(const struct conf *conf, const struct check_rows *rows,
                              const struct check_report_about *about)
{
    struct text out = {0};
    enum status st = conf_i64(conf, CONF_JSON) != 0 ? check_report_json(rows, about, &out)
                                                    : check_table_write(rows, about, &out);
    if (st != ST_OK) {
        text_free(&out);
        return st;
    }
    return print_text(&out);
}

/* print_result — prints the rows: node 0 prints all, another node prints the rows about itself,
 * which node 0 may not have. */
static enum status print_result(const struct conf *conf, const struct check_result *result,
                                const struct check_report_about *about)
{
    const int node = (int)conf_i64(conf, CONF_NODE_ID);
    struct check_rows own = {0};
    if (node == 0)
        return print_rows(conf, &result->rows, about);
    enum status st = ST_OK;
    /* Select the rows about this node. */
    for (int i = 0; i < result->rows.n; i++)
        if (check_row_is_about(&result->rows.row[i], node))
            check_row_add(&own, &result->rows.row[i]);
    if (result->is_whole) {
        /* Node 0 prints the table; log only the counts of this node. */
        const struct check_report_counts counts = check_report_count(&own);
        LOG_INFO("check: rows about this node: %d passed, %d warn, %d failed, %d skipped; node 0 "
                 "has the table",
                 counts.n[CHECK_VERDICT_PASS], counts.n[CHECK_VERDICT_WARN],
                 counts.n[CHECK_VERDICT_FAIL], counts.n[CHECK_VERDICT_SKIPPED]);
    } else
        st = print_rows(conf, &own, about);
    check_row_free(&own);
    return st;
}

/* ---- the end ---- */

static enum status write_all(const struct conf *conf, struct check_result *result, bool is_command,
                             enum status st, const char *sentence)
{
    struct check_report_about about = check_output_about(conf, result);
    if (!result->is_whole) {
        /* A row for an incomplete check: a node never connected, a rank was lost, or a person
         * stopped it. */
        bool is_stop = status_group(st) == STATUS_GROUP_STOP;
        struct check_row row =
            check_row_found(CHECK_STAGE_AGREEMENT, CHECK_POINT_WORKERS, -1, "workers",
                            is_stop ? CHECK_VERDICT_SKIPPED : CHECK_VERDICT_FAIL,
                            "the check did not finish: %s", sentence);
        if (st != ST_OK)
            check_row_add(&result->rows, &row);
    }
    if (!is_command)
        return ST_OK;
    TRY(print_result(conf, result, &about));
    return conf_i64(conf, CONF_NODE_ID) == 0 ? check_output_files(conf, result) : ST_OK;
}

enum status check_output_end(const struct conf *conf, const struct board *board, bool is_command,
                             enum status st)
{
    struct status_saved saved;
    struct check_result result;
    status_save(&saved);
    if (!board || !check_result_read(board, &result)) {
        status_restore(&saved);
        return st;
    }
    if (st != ST_OK && !result.is_whole) {
        /* The workers have ended. A worker that was killed, or stopped while it wrote a checkpoint,
         * has left a folder. A disk that does not answer is skipped, and any other disk gets a time
         * limit. */
        const char *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
        const struct check_config seen = {.found = &result.rows};
        int removed;
        if (dir[0] && !check_disk_is_bad(&seen) &&
            check_scratch_sweep_own(dir, SWEEP_MS, SWEEP_LIMIT_MS, &removed) != ST_OK) {
            LOG_WARN("%s; its folders .convoy-check-… stay in %s", status_message(), dir);
            status_clear();
        }
    }
    enum status written = write_all(conf, &result, is_command, st, saved.message);
    if (written == ST_OK) {
        /* The rows have precedence over the cluster's reason for this node's end: a bad node has
         * its own exit code, whichever message came first. */
        enum status found = ST_OK;
        if (status_group(st) != STATUS_GROUP_STOP)
            found = check_result_status(&result, (int)conf_i64(conf, CONF_NODE_ID), is_command);
        if (found == ST_OK)
            status_restore(&saved);
        else
            st = found;
    }
    check_result_free(&result);
    return written == ST_OK ? st : written;
}
