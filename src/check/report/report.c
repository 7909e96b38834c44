/* check_report — functions of all formats, and the report for programs. JSON, one object:
 *   schema   1; a reader of another schema refuses the file
 *   program  "convoy check"
 *   version  version of the program
 *   depth    "quick", "standard" or "full"
 *   started  begin of the check, seconds since 1970
 *   seconds  duration of the check
 *   nodes, ranks
 *   verdict  the worst of all rows: "pass", "warn" or "fail"
 *   rows     an array of objects, one per line, each with all of these keys:
 *     stage     "agreement", "static", "node", "pairs", "groups" or "soak"
 *     point     a point of the published list of eighteen: "GPU enumeration" …; "host": none
 *     name      the measured quantity; rows of one name and unit can be compared
 *     subject   the measured thing, such as "GPU 3"; "": the node
 *     node      the node; null: all nodes
 *     peer      for a link, the other end; null
 *     rank      null: the row is not about one rank
 *     suspect   for a bad link, the end whose other links are also bad; null
 *     verdict   "pass", "skipped", "warn" or "fail"
 *     value, limit, slack   in `unit`; null: unknown. slack is null if nothing was measured
 *     unit      "" for a plain number
 *     better    "higher" or "lower"
 *     hardware  the hardware of an absolute limit; ""
 *     why       a sentence
 *     remedy    a command or a setting; "" */
#include "check/report/report.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

/* ---- functions of all formats ---- */

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
        return FAIL(
            ST_RETRY,
            "the %s report is out of memory after %zu bytes; use a machine with more memory",
            format, out->len);
    return ST_OK;
}

/* ---- JSON ---- */

static void add_number(struct text *out, double value)
{
    text_add(out, "%s", isfinite(value) ? text_f64(value).text : "null");
}

static void add_field(struct text *out, const struct check_row_field *field,
                      const struct check_row *row)
{
    const char *at = (const char *)row + field->at;
    int i;
    double number;
    switch (field->kind) {
    case CHECK_ROW_WORD:
        memcpy(&i, at, sizeof i);
        json_quote_text(out, field->words[i]);
        return;
    case CHECK_ROW_INDEX:
        memcpy(&i, at, sizeof i);
        add_number(out, i < 0 ? NAN : i);
        return;
    case CHECK_ROW_NUMBER:
        memcpy(&number, at, sizeof number);
        add_number(out, number);
        return;
    case CHECK_ROW_TEXT:
        json_quote_text(out, at);
        return;
    }
}

void check_report_row(const struct check_row *row, bool is_short, struct text *out)
{
    const char *before = "{";
    for (int i = 0; i < CHECK_ROW_FIELDS; i++) {
        const struct check_row_field *field = check_row_field(i);
        if (is_short && !field->is_short)
            continue;
        text_add(out, "%s\"%s\": ", before, field->name);
        add_field(out, field, row);
        before = ", ";
    }
    text_add(out, "}");
}

enum status check_report_json(const struct check_rows *rows, const struct check_report_about *about,
                              struct text *out)
{
    check_report_begin(out);
    text_add(out, "{\"schema\": %d, \"program\": \"convoy check\"", CHECK_REPORT_SCHEMA);
    text_add(out, ", \"version\": ");
    json_quote_text(out, about->version);
    text_add(out, ", \"depth\": \"%s\", \"started\": %lld, \"seconds\": ", about->depth,
             (long long)about->started);
    add_number(out, about->seconds);
    text_add(out, ", \"nodes\": %d, \"ranks\": %d, \"verdict\": \"%s\", \"rows\": [", about->nodes,
             about->ranks, check_row_verdict(check_row_worst(rows, -1)));
    for (int i = 0; i < rows->n; i++) {
        text_add(out, i > 0 ? ",\n" : "\n");
        check_report_row(&rows->row[i], false, out);
    }
    text_add(out, "\n]}\n");
    return check_report_end(out, "JSON");
}
