/* check_junit — the report as JUnit XML, for the page of a CI system: a testsuite for each stage, a
 * testcase for each row. */
#include "check/check_report.h"

#include <string.h>

#include "check/check_text.h"

/* Text and attributes: special characters by name, what XML 1.0 forbids as '?'. */
static void add_escaped(struct text *out, const char *s)
{
    static const char special[] = "&<>\"'";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
    char clean[1024];
    text_printable(clean, sizeof clean, s);
    for (const char *c = clean; *c; c++) {
        const char *at = strchr(special, *c);
        if (at)
            text_add(out, "%s", names[at - special]);
        else
            text_add(out, "%c", *c);
    }
}

static void add_attribute(struct text *out, const char *name, const char *value)
{
    text_add(out, " %s=\"", name);
    add_escaped(out, value);
    text_add(out, "\"");
}

static void add_verdict(struct text *out, const struct check_row *row)
{
    const char *tag = row->verdict == CHECK_VERDICT_FAIL ? "failure" : "skipped";
    if (row->verdict == CHECK_VERDICT_FAIL || row->verdict == CHECK_VERDICT_SKIPPED) {
        text_add(out, "<%s", tag);
        add_attribute(out, "message", row->why);
        text_add(out, ">");
        add_escaped(out, row->remedy);
        text_add(out, "</%s>", tag);
        return;
    }
    text_add(out, "<system-out>%s: ", check_row_verdict(row->verdict));
    add_escaped(out, row->why);
    if (row->remedy[0]) {
        text_add(out, "; remedy: ");
        add_escaped(out, row->remedy);
    }
    text_add(out, "</system-out>");
}

static void add_case(struct text *out, const struct check_hosts *hosts, const struct check_row *row)
{
    char place[256], class[64];
    text_format(class, sizeof class, "convoy.check.%s", check_row_stage(row->stage));
    text_add(out, "<testcase");
    add_attribute(out, "classname", class);
    text_add(out, " name=\"");
    add_escaped(out, row->name);
    text_add(out, ": ");
    add_escaped(out, check_text_place(place, sizeof place, hosts, row));
    text_add(out, "\" time=\"0\">");
    add_verdict(out, row);
    text_add(out, "</testcase>\n");
}

static void add_counts(struct text *out, struct check_report_counts counts)
{
    text_add(out, " tests=\"%d\" failures=\"%d\" errors=\"0\" skipped=\"%d\"", counts.all,
             counts.n[CHECK_VERDICT_FAIL], counts.n[CHECK_VERDICT_SKIPPED]);
}

static void add_stage(struct text *out, const struct check_hosts *hosts,
                      const struct check_rows *rows, enum check_stage stage)
{
    const struct check_report_counts counts = check_report_count(rows, stage);
    if (counts.all == 0)
        return;
    text_add(out, "<testsuite name=\"%s\"", check_row_stage(stage));
    add_counts(out, counts);
    text_add(out, " time=\"0\">\n");
    for (int i = 0; i < rows->n; i++)
        if (rows->row[i].stage == stage)
            add_case(out, hosts, &rows->row[i]);
    text_add(out, "</testsuite>\n");
}

enum status check_junit_write(const struct check_rows *rows, const struct check_report_about *about,
                              struct text *out)
{
    struct check_hosts hosts;
    check_report_begin(out);
    TRY(check_host_collect(rows, &hosts));
    text_add(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"convoy check\"");
    add_counts(out, check_report_count(rows, CHECK_STAGE_N));
    text_add(out, " time=\"%.3f\">\n", about->seconds);
    for (int stage = 0; stage < CHECK_STAGE_N; stage++)
        add_stage(out, &hosts, rows, (enum check_stage)stage);
    text_add(out, "</testsuites>\n");
    check_host_free(&hosts);
    return check_report_end(out, "JUnit");
}
