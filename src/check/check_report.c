/* check_report — what all formats share; see check_report.h. */
#include "check/check_report.h"

struct check_report_counts check_report_count(const struct check_rows *rows)
{
    struct check_report_counts counts = {.all = rows->n};
    for (int i = 0; i < rows->n; i++)
        counts.n[rows->row[i].verdict]++;
    return counts;
}

void check_report_begin(struct text *out)
{
    if (out->limit == 0)
        out->limit = CHECK_REPORT_BYTES_MAX;
}

enum status check_report_end(const struct text *out, const char *format)
{
    if (out->overflow)
        return FAIL(ST_RETRY,
                    "the %s report has no memory after %zu bytes; use a machine with more", format,
                    out->len);
    return ST_OK;
}
