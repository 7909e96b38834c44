/* check_result — the result of a check as it lies on the board of a node: its rows, and what they
 * mean for this node. Written by the node's first worker, read by the supervisor. */
#ifndef CONVOY_CHECK_CHECK_RESULT_H
#define CONVOY_CHECK_CHECK_RESULT_H

#include "base/board.h"
#include "check/report/report.h"
#include "check/check_row.h"

struct check_result {
    struct check_rows rows;
    bool is_whole;   /* judged rows of all ranks; false: what was found so far */
    int64_t started; /* seconds since 1970 */
    double seconds;
    int depth;        /* enum check_depth */
    int64_t left_out; /* rows that passed and had no room on the board */
};

/* check_result_publish — where the rows take more than the board has room for, rows that passed are
 * left out. ST_RETRY: out of memory. */
enum status check_result_publish(struct board *board, const struct check_result *result);
/* check_result_depth — "quick", "standard", "full". */
const char *check_result_depth(const struct check_result *result);
/* check_result_read — false: nothing is there. check_result_free — may be called twice. */
bool check_result_read(const struct board *board, struct check_result *out);
void check_result_free(struct check_result *result);

/* check_result_status — of node `node`: ST_OK, or FAIL() with
 *   ST_UNHEALTHY  a failing row is about this node; node 0 of `check`: any row fails
 *   ST_PEER       `train`: no failing row is about this node, but one is about another
 *   ST_DISAGREE   `train`: the failing rows name no node. On all nodes: a scheduler that takes out
 *                 a node for ST_UNHEALTHY would take out all of them, and one that starts the job
 *                 again for ST_PEER would start it again with the same fault
 * Of a check that did not come to its end only rows about the node count. The sentence names node,
 * finding and remedy. */
enum status check_result_status(const struct check_result *result, int node, bool is_command);

/* check_result_sentence — "node 2, GPU 3: gpu ecc: why; remedy", of a link both nodes. Returns
 * out. */
const char *check_result_sentence(const struct check_row *row, char *out, size_t cap);

/* Writes the object of /status: verdict, counts, the rows that warn or fail (at most 64). */
void check_result_json(const struct check_result *result, struct text *out);
/* Writes one line: "check: fail, of 76 rows 1 fail and 2 warn: node 2: …". */
void check_result_line(const struct check_rows *rows, struct text *out);

#endif
