/* check_table — the report for people: its head, the eighteen points, the verdict. What was
 * measured and what is bad are in check_table_measured.c and check_table_bad.c. */
#include "check/check_table_inside.h"

#include <stdlib.h>

#include "base/clock.h"
#include "check/check_layout.h"
#include "check/check_text.h"

static void add_head(const struct check_table *table)
{
    const struct check_report_about *about = table->about;
    char when[32], line[256];
    clock_iso(when, sizeof when, about->started * 1000);
    text_format(line, sizeof line, "check of %d %s, %d %s: %s, convoy %s, %.10s %.5s UTC, %.1f s",
                about->nodes, about->nodes == 1 ? "node" : "nodes", about->ranks,
                about->ranks == 1 ? "rank" : "ranks", about->depth, about->version, when, when + 11,
                about->seconds);
    check_layout_wrap(table->out, "", line, false);
}

/* The worst verdict of a point; why: of the row that decided, or how many rows passed. */
struct point {
    int rows, skipped;
    const struct check_row *worst, *first_skipped;
};

static struct point look(const struct check_rows *rows, enum check_point point)
{
    struct point found = {0};
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        if (row->point != point)
            continue;
        if (row->verdict == CHECK_VERDICT_SKIPPED) {
            if (found.skipped++ == 0)
                found.first_skipped = row;
            continue;
        }
        found.rows++;
        if (!found.worst || row->verdict > found.worst->verdict)
            found.worst = row;
    }
    return found;
}

static void describe_point(const struct check_table *table, const struct point *point, char *out,
                           size_t cap)
{
    char place[256];
    if (!point->worst)
        text_copy(out, cap,
                  point->first_skipped ? point->first_skipped->why : "not looked at by this depth");
    else if (point->worst->verdict == CHECK_VERDICT_PASS)
        text_format(out, cap, "%d %s", point->rows, point->rows == 1 ? "row" : "rows");
    else if (point->worst->suspect >= 0)
        text_format(out, cap, "%s: links of %s", point->worst->name,
                    check_text_node(place, sizeof place, &table->hosts, point->worst->suspect));
    else
        text_format(out, cap, "%s: %s", point->worst->name,
                    check_text_place(place, sizeof place, &table->hosts, point->worst));
}

/* The eighteen points, each with its worst verdict. */
static void add_points(const struct check_table *table)
{
    enum { NAME = 33 };
    char what[400];
    text_add(table->out, "\n  %-*s verdict\n", NAME, "the eighteen points");
    for (int p = 0; p < CHECK_POINT_HOST; p++) {
        const struct point point = look(table->rows, (enum check_point)p);
        text_add(table->out, "  %-*s ", NAME, check_row_point((enum check_point)p));
        check_layout_verdict(table->out, point.worst ? point.worst->verdict : CHECK_VERDICT_SKIPPED,
                             7, table->about->is_terminal);
        describe_point(table, &point, what, sizeof what);
        text_add(table->out, " ");
        check_layout_wrap_at(table->out, NAME + 11, what, false);
    }
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The nodes that failing rows are about. */
static enum status add_bad_nodes(const struct check_table *table)
{
    const struct check_rows *rows = table->rows;
    char nodes[512];
    int n = 0, *node = malloc(2 * sizeof *node * (size_t)(rows->n + 1));
    if (!node)
        return FAIL(ST_RETRY, "out of memory: %d rows of a check; use a machine with more",
                    rows->n);
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        if (row->verdict != CHECK_VERDICT_FAIL)
            continue;
        if (row->suspect >= 0 || row->node >= 0)
            node[n++] = row->suspect >= 0 ? row->suspect : row->node;
        if (row->suspect < 0 && row->peer >= 0)
            node[n++] = row->peer;
    }
    qsort(node, (size_t)n, sizeof *node, by_number);
    text_add(table->out, "\n");
    if (n > 0)
        check_layout_wrap(table->out, node[0] == node[n - 1] ? "failing: node " : "failing: nodes ",
                          check_table_bad_nodes(nodes, sizeof nodes, node, n), false);
    free(node);
    return ST_OK;
}

static void add_verdict(const struct check_table *table)
{
    const struct check_report_counts counts = check_report_count(table->rows);
    text_add(table->out, "verdict: ");
    check_layout_verdict(table->out, check_rows_worst(table->rows, -1), 4,
                         table->about->is_terminal);
    text_add(table->out, " (%d rows: %d pass, %d warn, %d fail, %d skipped)\n", counts.all,
             counts.n[CHECK_VERDICT_PASS], counts.n[CHECK_VERDICT_WARN],
             counts.n[CHECK_VERDICT_FAIL], counts.n[CHECK_VERDICT_SKIPPED]);
}

static enum status write_all(const struct check_table *table)
{
    add_head(table);
    TRY(check_table_measured_write(table));
    TRY(check_table_bad_write(table));
    add_points(table);
    TRY(add_bad_nodes(table));
    add_verdict(table);
    return check_report_end(table->out, "table");
}

enum status check_table_write(const struct check_rows *rows, const struct check_report_about *about,
                              struct text *out)
{
    struct check_table table = {.rows = rows, .about = about, .out = out};
    check_report_begin(out);
    TRY(check_host_collect(rows, &table.hosts));
    enum status st = write_all(&table);
    check_host_free(&table.hosts);
    return st;
}
