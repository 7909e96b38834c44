/* check_json — the report for programs. One object:
 *   schema   1; a reader of another schema refuses the file
 *   program  "convoy check"
 *   version  of the program
 *   depth    "quick", "standard" or "full"
 *   started  when the check began, seconds since 1970
 *   seconds  how long it took
 *   nodes, ranks
 *   verdict  the worst of all rows: "pass", "warn" or "fail"
 *   rows     an array of objects, one a line, each with all of these keys:
 *     stage     "agreement", "static", "node", "pairs", "groups" or "soak"
 *     point     of the published list of eighteen: "GPU enumeration" …; "host": of none
 *     name      what was looked at; rows of one name and unit can be compared
 *     subject   on what, such as "GPU 3"; "": the node
 *     node      the node; null: all
 *     peer      of a link, the other end; null
 *     rank      null: not of one rank
 *     suspect   of a bad link, the end whose other links are bad too; null
 *     verdict   "pass", "skipped", "warn" or "fail"
 *     value, limit, slack   in `unit`; null: not known. slack is null where nothing was measured
 *     unit      "" for a mere number
 *     better    "higher" or "lower"
 *     hardware  what absolute limits are known for; ""
 *     why       a sentence
 *     remedy    a command or a setting; ""
 */
#include "check/check_report.h"

#include <math.h>

#include "base/json.h"
#include "check/check_text.h"

static void add_text(struct text *out, const char *key, const char *value)
{
    char quoted[6 * sizeof((struct check_row *)0)->why + 3];
    json_quote(quoted, sizeof quoted, value);
    text_add(out, ", \"%s\": %s", key, quoted);
}

static void add_number(struct text *out, const char *key, double value)
{
    text_add(out, ", \"%s\": %s", key, isfinite(value) ? text_f64(value).text : "null");
}

/* A node, a rank; -1: there is none. */
static void add_index(struct text *out, const char *key, int value)
{
    add_number(out, key, value < 0 ? NAN : value);
}

static void add_row(struct text *out, const struct check_row *row)
{
    text_add(out, "{\"stage\": \"%s\"", check_row_stage(row->stage));
    add_text(out, "point", check_row_point(row->point));
    add_text(out, "name", row->name);
    add_text(out, "subject", row->subject);
    add_index(out, "node", row->node);
    add_index(out, "peer", row->peer);
    add_index(out, "rank", row->rank);
    add_index(out, "suspect", row->suspect);
    add_text(out, "verdict", check_row_verdict(row->verdict));
    add_number(out, "value", row->value);
    add_number(out, "limit", row->limit);
    add_number(out, "slack", row->slack);
    add_text(out, "unit", row->unit);
    add_text(out, "better", row->better == CHECK_BETTER_HIGHER ? "higher" : "lower");
    add_text(out, "hardware", row->hardware);
    add_text(out, "why", row->why);
    add_text(out, "remedy", row->remedy);
    text_add(out, "}");
}

enum status check_json_write(const struct check_rows *rows, const struct check_report_about *about,
                             struct text *out)
{
    check_report_begin(out);
    text_add(out, "{\"schema\": %d, \"program\": \"convoy check\"", CHECK_REPORT_SCHEMA);
    add_text(out, "version", about->version);
    add_text(out, "depth", about->depth);
    text_add(out, ", \"started\": %lld", (long long)about->started);
    add_number(out, "seconds", about->seconds);
    add_index(out, "nodes", about->nodes);
    add_index(out, "ranks", about->ranks);
    add_text(out, "verdict", check_row_verdict(check_rows_worst(rows, -1)));
    text_add(out, ", \"rows\": [");
    for (int i = 0; i < rows->n; i++) {
        text_add(out, i > 0 ? ",\n" : "\n");
        add_row(out, &rows->row[i]);
    }
    text_add(out, "\n]}\n");
    return check_report_end(out, "JSON");
}
