/* check_report — the judged rows of a check, for people and for programs. Each format is a file of
 * its own: check_table, check_report (JSON), check_prometheus.
 *
 * All functions append to out and return ST_RETRY if memory or out's limit is exhausted. out->limit
 * 0 is raised to CHECK_REPORT_BYTES_MAX, because a report of 4,096 nodes is long. Rows may have any
 * content: names and sentences are escaped, values that are not finite are left out or null. */
#ifndef CONVOY_CHECK_CHECK_REPORT_H
#define CONVOY_CHECK_CHECK_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "check/check_row.h"

#define CHECK_REPORT_BYTES_MAX ((size_t)1 << 30)
#define CHECK_REPORT_SCHEMA 1

/* Data that are the same for all rows. */
struct check_report_about {
    int nodes, ranks;
    const char *version; /* version of the program */
    const char *depth;   /* "quick", "standard", "full" */
    int64_t started;     /* seconds since 1970, UTC */
    double seconds;      /* duration of the check */
    bool is_terminal;    /* the table has colours and control characters of a terminal */
};

/* check_table_write — writes the table for people, at most 100 columns wide. It has one line for
 * each measured name (a bar of the spread, median, worst and its location), the rows that warn or
 * fail with reason and remedy, the eighteen points, and the verdict. */
enum status check_table_write(const struct check_rows *rows, const struct check_report_about *about,
                              struct text *out);
/* check_table_wrap — appends s as lines of at most 100 columns. The first line begins with `first`
 * (ASCII), the others with the same number of blanks. is_command: s is a shell command, which must
 * mean the same when it is pasted. Public for tests. */
void check_table_wrap(struct text *out, const char *first, const char *s, bool is_command);
/* check_table_nodes — formats sorted numbers as "0-3, 7, 12-40"; "…" ends a list that does not fit.
 * Returns out. Public for tests. */
const char *check_table_nodes(char *out, size_t cap, const int *node, int n);
/* check_report_json — writes one object, schema 1; described at the head of report/report.c. */
enum status check_report_json(const struct check_rows *rows, const struct check_report_about *about,
                              struct text *out);
/* check_report_row — writes a row as a JSON object of one line. is_short: only the members for
 * /status. */
void check_report_row(const struct check_row *row, bool is_short, struct text *out);
/* check_prometheus_write — writes gauges convoy_check_* in base units, for the textfile collector
 * of node_exporter. */
enum status check_prometheus_write(const struct check_rows *rows,
                                   const struct check_report_about *about, struct text *out);
/* check_prometheus_example — for docs/status.md: writes all of these gauges with all labels. */
void check_prometheus_example(struct text *out);

/* For the formats only: numbers of rows by verdict. */
struct check_report_counts {
    int n[CHECK_VERDICT_MEASURED + 1], all;
};
/* check_report_count — counts the rows of each verdict. */
struct check_report_counts check_report_count(const struct check_rows *rows);
/* check_report_begin — begins a format: raises out's limit. */
void check_report_begin(struct text *out);
/* check_report_end — ends a format. Fails if something did not fit. */
enum status check_report_end(const struct text *out, const char *format);

/* check_baseline — reads a report of a good day (JSON) and compares it with today's rows. Two rows
 * are the same if they have the same name, unit, node, peer, rank and subject.
 *
 * The file comes from outside: every field is checked, and no size in it is trusted. */

#define CHECK_BASELINE_BYTES_MAX (1 << 30)

/* Zero-initialised is valid and empty. */
struct check_baseline {
    struct check_rows rows;
    int64_t started; /* seconds since 1970 */
    int nodes;
};

/* check_baseline_read — reads a report. ST_NO_INPUT: there is no such file (the caller may write it
 * after the check). ST_BAD_DATA: it is no report, is incomplete, or has another schema; the message
 * contains the row. */
enum status check_baseline_read(const char *path, struct check_baseline *out);
/* check_baseline_parse — reads a report from bytes. what: the document's name in messages. Public
 * for tests. */
enum status check_baseline_parse(const char *bytes, size_t n, const char *what,
                                 struct check_baseline *out);
/* check_baseline_free — frees the rows and zeroes the struct. Accepts a zeroed struct. */
void check_baseline_free(struct check_baseline *baseline);

/* check_baseline_compare — compares the rows with the baseline, after check_judge. Returns the
 * number of rows that are in both; 0: the baseline is from another cluster. Measured rows that are
 * worse than in the baseline by CHECK_JUDGE_WARN or CHECK_JUDGE_FAIL, and by more than their slack,
 * warn or fail, and their why contains the baseline's day. No verdict gets better. Nodes are the
 * same if they have the same name (report/host.h), or the same number if no name is in both. */
int check_baseline_compare(struct check_rows *rows, const struct check_baseline *baseline);

#endif
