/* check_prometheus — writes the report as Prometheus text:
 *   convoy_check_nodes, convoy_check_duration_seconds
 *   convoy_check_timestamp_seconds         time of the beginning
 *   convoy_check_rows{verdict}             number of rows with this verdict
 *   convoy_check_verdict{stage,name,…}     0: pass, 1: warn, 2: fail; skipped rows are left out
 *   convoy_check_measured_*{stage,name,…}  measured value, in the base unit that ends the name
 *
 * Each row has the labels node and host, and subject, peer and rank if there are any. A verdict
 * also has the label unit, because a name may be measured in two units. */
#include "base/memory.h"
#include "check/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/report/host.h"
#include "check/report/text.h"

/* Units of rows, with their base unit; the last entry is for all other units. */
static const struct unit {
    const char *unit, *base;
    double factor;
} units[] = {
    {"ns", "seconds", 1e-9},
    {"us", "seconds", 1e-6},
    {"ms", "seconds", 1e-3},
    {"s", "seconds", 1},
    {"MB/s", "bytes_per_second", 1e6},
    {"GB/s", "bytes_per_second", 1e9},
    {"Mb/s", "bytes_per_second", 1.25e5},
    {"Gb/s", "bytes_per_second", 1.25e8},
    {"GFLOP/s", "operations_per_second", 1e9},
    {"TFLOP/s", "operations_per_second", 1e12},
    {"B", "bytes", 1},
    {"bytes", "bytes", 1},
    {"MB", "bytes", 1e6},
    {"GB", "bytes", 1e9},
    {"KiB", "bytes", 1024},
    {"MiB", "bytes", 1048576},
    {"GiB", "bytes", 1073741824},
    {"%", "ratio", 0.01},
    {"C", "celsius", 1},
    {"W", "watts", 1},
    {"MHz", "hertz", 1e6},
    {"GHz", "hertz", 1e9},
    {"cores", "cores", 1},
    {"", "count", 1},
    {NULL, "value", 1},
};
enum { UNITS = sizeof units / sizeof units[0] };

static void add_head(struct text *out, const char *name, const char *help)
{
    text_add(out, "# HELP convoy_check_%s %s\n# TYPE convoy_check_%s gauge\n", name, help, name);
}

static void add_gauge(struct text *out, const char *name, const char *help, double value)
{
    add_head(out, name, help);
    text_add(out, "convoy_check_%s %s\n", name, text_f64(isfinite(value) ? value : 0).text);
}

static void add_index(struct text *out, const char *name, int value)
{
    if (value >= 0)
        text_add(out, ",%s=\"%d\"", name, value);
}

static void add_labels(struct text *out, const struct check_hosts *hosts,
                       const struct check_row *row, bool has_unit)
{
    text_add(out, "{stage=\"%s\"", check_row_stage(row->stage));
    text_add_label(out, "name", row->name);
    text_add(out, ",node=\"%d\"", row->node);
    text_add_label(out, "host", check_host_name(hosts, row->node));
    if (row->subject[0])
        text_add_label(out, "subject", row->subject);
    add_index(out, "peer", row->peer);
    add_index(out, "rank", row->rank);
    if (has_unit && row->unit[0])
        text_add_label(out, "unit", row->unit);
    text_add(out, "}");
}

/* Compares without the unit. */
static int compare_points(const struct check_row *x, const struct check_row *y)
{
    const int orders[] = {(int)x->stage - (int)y->stage,
                          strcmp(x->name, y->name),
                          x->node - y->node,
                          x->peer - y->peer,
                          x->rank - y->rank,
                          strcmp(x->subject, y->subject)};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        if (orders[i])
            return orders[i];
    return 0;
}

static int by_labels(const struct check_row *x, const struct check_row *y)
{
    const int order = compare_points(x, y);
    return order ? order : strcmp(x->unit, y->unit);
}

/* Orders rows; among rows with the same labels the worst comes first. */
static int by_labels_and_verdict(const void *a, const void *b)
{
    const struct check_row *x = *(const struct check_row *const *)a,
                           *y = *(const struct check_row *const *)b;
    const int labels = by_labels(x, y);
    return labels ? labels : (int)y->verdict - (int)x->verdict;
}

/* Appends the measured rows. The same quantity in another unit, such as us and ms, is left out. */
static void add_measured(struct text *out, const struct check_hosts *hosts, const char *base,
                         const struct check_row *const *row, int n)
{
    const struct check_row *last = NULL;
    char name[64];
    text_format(name, sizeof name, "measured_%s", base);
    for (int i = 0; i < n; i++) {
        int u = 0;
        while (u + 1 < UNITS && strcmp(units[u].unit, row[i]->unit) != 0)
            u++;
        const struct unit *unit = &units[u];
        const bool is_other = !unit->unit;
        if (strcmp(unit->base, base) != 0 || !isfinite(row[i]->value) ||
            (last && !is_other && compare_points(last, row[i]) == 0))
            continue;
        if (!last)
            add_head(out, name, "Measured value of a row.");
        last = row[i];
        text_add(out, "convoy_check_%s", name);
        add_labels(out, hosts, row[i], is_other);
        text_add(out, " %s\n", text_f64(row[i]->value * unit->factor).text);
    }
}

enum status check_prometheus_write(const struct check_rows *rows,
                                   const struct check_report_about *about, struct text *out)
{
    struct check_hosts hosts;
    int n = 0;
    check_report_begin(out);
    check_host_collect(rows, &hosts);
    /* A series may occur only once: of rows with the same labels, the worst is written. Sorted, so
     * that two reports can be compared. */
    const struct check_row **row = memory_new((size_t)rows->n, sizeof(struct check_row *));
    for (int i = 0; i < rows->n; i++)
        row[i] = &rows->row[i];
    qsort(row, (size_t)rows->n, sizeof(struct check_row *), by_labels_and_verdict);
    for (int i = 0; i < rows->n; i++)
        if (n == 0 || by_labels(row[n - 1], row[i]) != 0)
            row[n++] = row[i];
    add_gauge(out, "nodes", "Nodes that were checked.", about->nodes);
    add_gauge(out, "timestamp_seconds", "Time at which the check began, in seconds since 1970.",
              (double)about->started);
    add_gauge(out, "duration_seconds", "Duration of the check.", about->seconds);
    const struct check_report_counts counts = check_report_count(rows);
    add_head(out, "rows", "Number of rows with this verdict.");
    for (int v = 0; v < CHECK_VERDICT_MEASURED; v++)
        text_add(out, "convoy_check_rows{verdict=\"%s\"} %d\n",
                 check_row_verdict((enum check_verdict)v), counts.n[v]);
    add_head(out, "verdict", "Verdict of a row: 0 pass, 1 warn, 2 fail.");
    for (int i = 0; i < n; i++) {
        const enum check_verdict verdict = row[i]->verdict;
        if (verdict == CHECK_VERDICT_SKIPPED || verdict == CHECK_VERDICT_MEASURED)
            continue;
        text_add(out, "convoy_check_verdict");
        add_labels(out, &hosts, row[i], true);
        text_add(out, " %d\n", verdict == CHECK_VERDICT_FAIL ? 2 : verdict == CHECK_VERDICT_WARN);
    }
    for (int u = 0; u < UNITS; u++)
        if (u == 0 || strcmp(units[u].base, units[u - 1].base) != 0)
            add_measured(out, &hosts, units[u].base, row, n);
    free(row);
    check_host_free(&hosts);
    return check_report_end(out, "Prometheus");
}

void check_prometheus_example(struct text *out)
{
    struct check_rows rows = {0};
    for (int u = 0; u < UNITS; u++) {
        /* The name puts a row with a unit first: the page has the labels of the first row. */
        struct check_row row = {.name = {units[u].base[0]}, .subject = "subject"};
        text_copy(row.unit, sizeof row.unit, units[u].unit != NULL ? units[u].unit : "other");
        check_row_add(&rows, &row);
    }
    check_prometheus_write(&rows, &(struct check_report_about){0}, out);
    check_row_free(&rows);
}
