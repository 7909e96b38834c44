/* check_output — a check in a node's supervisor: its end (table, files of REPORT, and the status of
 * the node's process), and its state as /status and /metrics show it. Must not know how anything is
 * checked, nor HTTP. */
#ifndef CONVOY_NODE_CHECK_OUTPUT_H
#define CONVOY_NODE_CHECK_OUTPUT_H

#include "base/board.h"
#include "check/check_result.h"
#include "conf/conf.h"
#include "serve/view.h"

/* check_output_about — returns the section of a report that is the same for all rows of a
 * result. */
struct check_report_about check_output_about(const struct conf *conf,
                                             const struct check_result *result);
/* check_output_targets — fails with ST_BAD_SETTING if a file of REPORT, or OUT, exists and was not
 * written by an earlier check. */
enum status check_output_targets(const struct conf *conf);
/* check_output_files — writes the files of REPORT. ST_STORE: a file cannot be written. */
enum status check_output_files(const struct conf *conf, const struct check_result *result);
/* check_output_end — writes the results of a check. st: how the node's run has ended, with its
 * message in status_message. For `check`, writes the findings to stdout, even if the check is
 * incomplete; node 0 also writes the files of REPORT (in `train` they are written when the check
 * ends). Returns st, or the status of the rows (check_result_status). ST_STORE: a report cannot be
 * written. Without a check it only returns st. */
enum status check_output_end(const struct conf *conf, const struct board *board, bool is_command,
                             enum status st);

/* check_view — the check of a node as /status and /metrics show it, built once for each result on
 * the board. Must not know HTTP. */

struct check_view;

/* check_view_open — opens a view. conf and board are borrowed. */
struct check_view *check_view_open(const struct conf *conf, const struct board *board);
/* check_view_close — accepts NULL. */
void check_view_close(struct check_view *view);
/* check_view_fill — sets check_json and check_metrics, which are valid until the next call. */
void check_view_fill(struct check_view *view, struct view *out);

#endif
