/* check_report — the judged rows of a check, for people and for programs. Each format is a file of
 * its own: check_table, check_report (JSON), check_prometheus.
 *
 * All functions append to out and return ST_RETRY when memory or out's limit ends; out->limit 0 is
 * raised to CHECK_REPORT_BYTES_MAX, because a report of 4,096 nodes is long. Rows may be of any
 * content: names and sentences are escaped, values that are not finite are left out or null. */
#ifndef CONVOY_CHECK_CHECK_REPORT_H
#define CONVOY_CHECK_CHECK_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "check/check_row.h"

#define CHECK_REPORT_BYTES_MAX ((size_t)1 << 30)
#define CHECK_REPORT_SCHEMA 1

/* What is the same for all rows. */
struct check_report_about {
    int nodes, ranks;
    const char *version; /* of the program */
    const char *depth;   /* "quick", "standard", "full" */
    int64_t started;     /* seconds since 1970, UTC */
    double seconds;      /* that the check took */
    bool is_terminal;    /* of the table: colours, and signs of the terminal */
};

/* check_table_write — for people, at most 100 columns: one line for each name that was measured (a
 * bar of the spread, median, worst and where), the rows that warn or fail with the reason and the
 * remedy, the eighteen points, the verdict. */
enum status check_table_write(const struct check_rows *rows, const struct check_report_about *about,
                              struct text *out);
/* Adds s as lines of at most 100 columns (for tests), the first of which begins with `first`
 * (ASCII), the others with as many blanks. is_command: of a shell, which means the same when it is
 * pasted. */
void check_table_wrap(struct text *out, const char *first, const char *s, bool is_command);
/* Formats sorted numbers as "0-3, 7, 12-40" (for tests); "…" ends a list that does not fit. Returns
 * out. */
const char *check_table_nodes(char *out, size_t cap, const int *node, int n);
/* check_report_json — one object, schema 1; described at the head of report/report.c. */
enum status check_report_json(const struct check_rows *rows, const struct check_report_about *about,
                              struct text *out);
/* Writes a row as a JSON object of one line. is_short: only the members for /status. */
void check_report_row(const struct check_row *row, bool is_short, struct text *out);
/* check_prometheus_write — gauges convoy_check_*, base units, for the textfile collector of
 * node_exporter. */
enum status check_prometheus_write(const struct check_rows *rows,
                                   const struct check_report_about *about, struct text *out);

/* Of the formats' own use: rows by verdict. */
struct check_report_counts {
    int n[CHECK_VERDICT_MEASURED + 1], all;
};
struct check_report_counts check_report_count(const struct check_rows *rows);
/* check_report_begin, check_report_end — around the writing of a format: raises out's limit; fails
 * when something did not fit. */
void check_report_begin(struct text *out);
enum status check_report_end(const struct text *out, const char *format);

/* check_baseline — a report of a good day (JSON), read again and compared with
 * today's rows. Rows are the same that have the same name, unit, node, peer, rank and subject.
 *
 * The file comes from outside: every field is checked, and no size in it is believed. */

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
 * cluster. Rows that were measured and are worse than in the baseline by CHECK_JUDGE_WARN or
 * CHECK_JUDGE_FAIL, and by more than their slack, warn or fail, and why names the baseline's day.
 * No verdict gets better. Nodes are the same if they have the same name (report/host.h), or, if no
 * name is in both, the same number. */
int check_baseline_compare(struct check_rows *rows, const struct check_baseline *baseline);

#endif
