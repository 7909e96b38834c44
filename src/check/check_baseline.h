/* check_baseline — a report of a good day (check_report.h, JSON), read again and compared with
 * today's rows. Rows are the same that have the same name, unit, node, peer, rank and subject.
 *
 * The file comes from outside: every field is checked, and no size in it is believed. */
#ifndef CONVOY_CHECK_CHECK_BASELINE_H
#define CONVOY_CHECK_CHECK_BASELINE_H

#include <stddef.h>
#include <stdint.h>

#include "check/check_row.h"

#define CHECK_BASELINE_BYTES_MAX (1 << 30)

/* Zero-initialised is valid and empty. */
struct check_baseline {
    struct check_rows rows;
    int64_t started; /* seconds since 1970 */
    int nodes;
};

/* check_baseline_read — ST_NO_INPUT: there is no such file (the caller may write it after the
 * check). ST_BAD_DATA: not a report, cut short, or of another schema; names the row. */
enum status check_baseline_read(const char *path, struct check_baseline *out);
/* check_baseline_parse — for tests: the same of bytes; what: the document's name for failures. */
enum status check_baseline_parse(const char *bytes, size_t n, const char *what,
                                 struct check_baseline *out);
void check_baseline_free(struct check_baseline *baseline);

/* Compares after check_judge, and returns how many rows are in both; 0: the baseline is of another
 * cluster. Rows that were measured and are worse than in the
 * baseline by CHECK_JUDGE_WARN or CHECK_JUDGE_FAIL, and by more than their slack, warn or fail, and
 * why names the baseline's day. No verdict gets better. Nodes are the same that have the same name
 * (check_host.h); where no name is in both, that have the same number. */
int check_baseline_compare(struct check_rows *rows, const struct check_baseline *baseline);

#endif
