/* check_table_inside — the parts of the table for people; see check_report.h. */
#ifndef CONVOY_CHECK_CHECK_TABLE_INSIDE_H
#define CONVOY_CHECK_CHECK_TABLE_INSIDE_H

#include "check/check_host.h"
#include "check/check_report.h"

/* What all parts are made of. */
struct check_table {
    const struct check_rows *rows;
    const struct check_report_about *about;
    struct check_hosts hosts;
    struct text *out;
};

/* check_table_measured_write — a line for each name and unit that has numbers. ST_RETRY: out of
 * memory. */
enum status check_table_measured_write(const struct check_table *table);
/* check_table_bad_write — the rows that fail, then those that warn, with reasons and remedies; of
 * many rows of one name the first, and the nodes of the others. ST_RETRY: out of memory. */
enum status check_table_bad_write(const struct check_table *table);
/* check_table_bad_nodes — for people, of sorted numbers: "0-3, 7, 12-40". Returns out; "…" ends a
 * list that does not fit. */
const char *check_table_bad_nodes(char *out, size_t cap, const int *node, int n);

#endif
