/* check_output — a check in a node's supervisor: its end (table, files of REPORT, and the status of
 * the node's process), and its state as /status and /metrics show it. Must not know how anything is
 * checked, nor HTTP. */
#ifndef CONVOY_NODE_CHECK_OUTPUT_H
#define CONVOY_NODE_CHECK_OUTPUT_H

#include "base/board.h"
#include "check/check_result.h"
#include "conf/conf.h"
#include "serve/view.h"

/* check_output_about — what is the same for all rows of a result. */
struct check_report_about check_output_about(const struct conf *conf,
                                             const struct check_result *result);
/* check_output_targets — fails ST_BAD_SETTING if a file of REPORT, or OUT, exists and is none that
 * an earlier check wrote. */
enum status check_output_targets(const struct conf *conf);
/* check_output_files — the files of REPORT. ST_STORE: one cannot be written. */
enum status check_output_files(const struct conf *conf, const struct check_result *result);
/* check_output_end — st: how the node's run has ended, with its sentence in status_message.
 * `check`: writes what was found to stdout, also where the check did not come to its end; node 0
 * writes the files of REPORT (in `train` they are written when the check ends). Returns st, or
 * what the rows say (check_result_status); ST_STORE: a report cannot be written. Without a check
 * it only returns st. */
enum status check_output_end(const struct conf *conf, const struct board *board, bool is_command,
                             enum status st);

/* check_view — the check of a node as /status and /metrics show it, made once for each result on
 * the board. Must not know HTTP. */

struct check_view;

/* check_view_open — both are borrowed. check_view_close — accepts NULL. */
struct check_view *check_view_open(const struct conf *conf, const struct board *board);
void check_view_close(struct check_view *view);
/* check_view_fill — sets check_json and check_metrics; valid until the next call. */
void check_view_fill(struct check_view *view, struct view *out);

#endif
