/* check_result — the result of a check on the board of a node: its rows, and the status that
 * follows for this node. The node's first worker writes it, and the supervisor reads it. */
#ifndef CONVOY_CHECK_CHECK_RESULT_H
#define CONVOY_CHECK_CHECK_RESULT_H

#include "base/board.h"
#include "check/report/report.h"
#include "check/check_row.h"

struct check_result {
    struct check_rows rows;
    bool is_whole;   /* true: judged rows of all ranks; false: the findings so far */
    int64_t started; /* seconds since 1970 */
    double seconds;
    int depth;        /* enum check_depth */
    int64_t left_out; /* number of passed rows that had no room on the board */
};

/* check_result_publish — writes a result to the board. Rows that passed are left out if there is
 * not enough room. ST_RETRY: out of memory. */
enum status check_result_publish(struct board *board, const struct check_result *result);
/* check_result_depth — returns "quick", "standard" or "full". */
const char *check_result_depth(const struct check_result *result);
/* check_result_read — reads the result from the board. Returns false if there is none. */
bool check_result_read(const struct board *board, struct check_result *out);
/* check_result_free — frees the rows. May be called twice. */
void check_result_free(struct check_result *result);

/* check_result_status — returns the status of node `node`: ST_OK, or FAIL() with
 *   ST_UNHEALTHY  a failing row is about this node; node 0 of `check`: any row fails
 *   ST_PEER       `train`: no failing row is about this node, but one is about another
 *   ST_DISAGREE   `train`: no failing row is about a node. On all nodes: a scheduler that drains a
 *                 node for ST_UNHEALTHY would drain all of them, and one that restarts the job for
 *                 ST_PEER would restart it with the same fault
 *
 * In an incomplete check only rows about the node count. The message contains node, finding and
 * remedy. */
enum status check_result_status(const struct check_result *result, int node, bool is_command);

/* check_result_sentence — writes "node 2, GPU 3: gpu ecc: why; remedy"; for a link both nodes.
 * Returns out. */
const char *check_result_sentence(const struct check_row *row, char *out, size_t cap);

/* check_result_json — writes the object of /status: verdict, counts, the rows that warn or fail (at
 * most 64). */
void check_result_json(const struct check_result *result, struct text *out);
/* check_result_line — writes one line: "check: fail, of 76 rows 1 fail and 2 warn: node 2: …". */
void check_result_line(const struct check_rows *rows, struct text *out);

#endif
