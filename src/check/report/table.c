/* check_table — writes the report for people: a line for each measured name, the rows that fail or
 * warn with reason and remedy, the eighteen points, the verdict. Lines have at most COLUMNS
 * columns. */
#include "check/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/quantile.h"
#include "check/report/host.h"
#include "check/report/text.h"
#include "measure/measure_table.h"

#define COLUMNS 100

/* The input of all functions here. */
struct table {
    const struct check_rows *rows;
    const struct check_report_about *about;
    struct check_hosts hosts;
    struct text *out;
};

/* ---- lines ---- */

/* Returns the number of bytes of s that fit into a line: up to the last blank, or else all that
 * fit. */
static int line_bytes(const char *s, int columns)
{
    const int all = text_prefix(s, columns);
    if (!s[all])
        return all;
    int n = all;
    while (n > 0 && s[n] != ' ')
        n--;
    return n > 0 ? n : all;
}

/* Returns the state of a shell after s[*i], which it skips: 0, a quote, or '#' for a comment. */
static char state_after(char state, const char *s, int *i)
{
    const char c = s[*i];
    if (c == '\\' && state != '#' && state != '\'' && s[*i + 1])
        ++*i;
    else if (state == 0 && (c == '\'' || c == '"' || (c == '#' && (*i == 0 || s[*i - 1] == ' '))))
        return c;
    else if (c == state && c != '#')
        return 0;
    return state;
}

/* A line of a command. */
struct segment {
    int bytes;    /* bytes of the text, without blanks around it */
    char state;   /* state of the shell at the begin of the next line */
    bool is_word; /* it continues in the middle of a word */
};

/* Returns the segment up to the last blank outside of quotes that fits, else up to the middle of a
 * word. begin: state of the shell at the begin of the line. */
static struct segment segment_of(const char *s, int columns, char begin)
{
    const int all = text_prefix(s, columns);
    struct segment blank = {0}, word = {0};
    char state = begin;
    if (!s[all])
        return (struct segment){all, 0, false};
    for (int i = 0; i <= all; i++) {
        if (s[i] == ' ' && i > 0 && (state == 0 || state == '#'))
            blank = (struct segment){i, state, false};
        if ((s[i] & 0xC0) != 0x80)
            word = (struct segment){i, state, true};
        state = state_after(state, s, &i);
    }
    return blank.bytes > 0 ? blank : word;
}

/* Appends a command that means the same when it is pasted: a broken line ends in a backslash, a
 * quote is closed there and opened again, and each line of a comment begins with '#'. */
static void wrap_command(struct text *out, int indent, const char *at)
{
    const int columns = COLUMNS - indent - 3; /* room for two quotes and a backslash */
    struct segment last = {0};
    for (bool is_first = true; is_first || *at; is_first = false) {
        const bool is_quoted = last.is_word && last.state != 0 && last.state != '#';
        const struct segment segment = segment_of(at, columns, last.state);
        text_add(out, "%*s%s%.*s%.*s", is_first || last.is_word ? 0 : indent, "",
                 last.state == '#' ? "# " : "", is_quoted, &last.state, segment.bytes, at);
        at += segment.bytes;
        if (segment.is_word && segment.state != 0 && segment.state != '#')
            text_add(out, "%c", segment.state);
        if (*at && segment.state != '#')
            text_add(out, segment.is_word ? "\\" : " \\");
        measure_table_end(out);
        while (*at == ' ' && !segment.is_word)
            at++;
        last = segment;
    }
}

/* Appends s as lines, broken at blanks. The first line already has `indent` columns; the others
 * begin with the same number of blanks. Ends with a newline. */
static void wrap_at(struct text *out, int indent, const char *s, bool is_command)
{
    char clean[1024];
    text_printable(clean, sizeof clean, s);
    const char *at = clean;
    if (is_command) {
        wrap_command(out, indent, at);
        return;
    }
    do {
        const int n = line_bytes(at, COLUMNS - indent);
        text_add(out, "%*s%.*s", at == clean ? 0 : indent, "", n, at);
        measure_table_end(out);
        at += n;
        while (*at == ' ')
            at++;
    } while (*at);
}

void check_table_wrap(struct text *out, const char *first, const char *s, bool is_command)
{
    text_add(out, "%s", first);
    wrap_at(out, (int)strlen(first), s, is_command);
}

/* Appends the verdict's word in `columns` columns, on a terminal in its colour. */
static void add_word(const struct table *table, enum check_verdict verdict, int columns)
{
    static const char *const colours[] = {"\033[32m", "\033[2m", "\033[33m", "\033[1;31m", ""};
    const bool is_terminal = table->about->is_terminal;
    text_add(table->out, "%s%-*.*s%s", is_terminal ? colours[verdict] : "", columns, columns,
             check_row_verdict(verdict), is_terminal ? "\033[0m" : "");
}

/* ---- measured rows ---- */

enum { BAR = 16 };
static const struct measure_column columns[] = {
    {"", -1, 0},       {"measured", -24, 0}, {"n", 5, 0},      {"0 to highest", -BAR, 0},
    {"median", 13, 0}, {"worst", 13, 0},     {"where", -22, 0}};
enum { COLUMNS_N = sizeof columns / sizeof columns[0] };

static int by_name(const struct check_row *x, const struct check_row *y)
{
    if (x->stage != y->stage)
        return (int)x->stage - (int)y->stage;
    const int name = strcmp(x->name, y->name);
    return name ? name : strcmp(x->unit, y->unit);
}

/* Orders the rows of a name by their value, the worst first. */
static int by_name_and_value(const void *a, const void *b)
{
    const struct check_row *x = *(const struct check_row *const *)a,
                           *y = *(const struct check_row *const *)b;
    const int name = by_name(x, y);
    const int rising = (x->value > y->value) - (x->value < y->value);
    return name ? name : x->better == CHECK_BETTER_HIGHER ? rising : -rising;
}

static int cells_of(double value, double of)
{
    const int n = (int)lround(BAR * value / of);
    return n < 0 ? 0 : n > BAR ? BAR : n;
}

/* Draws several values from 0 to the highest one: full up to the lowest, light above it, and a line
 * at the median. */
static void draw_bar(double low, double median, double high, char *out, size_t cap)
{
    const bool is_drawn = low >= 0 && high > 0;
    const int full = is_drawn ? cells_of(low, high) : 0, all = is_drawn ? BAR : 0;
    const int middle = is_drawn && full < BAR ? cells_of(median, high) - 1 : -1;
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < all; i++) {
        text_copy(out + used, cap - used, i == middle ? "│" : i < full ? "█" : "░");
        used += strlen(out + used);
    }
}

/* Appends the line of n rows of one name, the worst first. values: room for n. */
static void add_line(const struct table *table, const struct check_row *const *row, int n,
                     double *values)
{
    const struct check_row *worst = row[0], *best = row[n - 1];
    char bar[3 * BAR + 1] = "", middle[64], last[64], location[256];
    for (int i = 0; i < n; i++)
        values[i] = row[i]->value;
    const double median = quantile_median(values, n);
    if (n > 1)
        draw_bar(fmin(worst->value, best->value), median, fmax(worst->value, best->value), bar,
                 sizeof bar);
    char node[80];
    const char *name = table->hosts.is_ambiguous ? "" : check_host_name(&table->hosts, worst->node);
    if (worst->peer >= 0) {
        text_format(location, sizeof location, "node %d - node %d", worst->node, worst->peer);
    } else if (worst->node < 0) {
        text_copy(location, sizeof location, worst->subject[0] ? worst->subject : "all nodes");
    } else {
        text_format(node, sizeof node, "node %d", worst->node);
        text_format(location, sizeof location, "%s%s%s", name[0] ? name : node,
                    worst->subject[0] ? ", " : "", worst->subject);
    }
    const struct measure_cell cells[COLUMNS_N] = {
        {.text = worst->verdict == CHECK_VERDICT_FAIL   ? "x"
                 : worst->verdict == CHECK_VERDICT_WARN ? "!"
                                                        : ""},
        {.text = worst->name},
        {.number = n},
        {.text = bar},
        {.text = measure_table_value(middle, sizeof middle, median, worst->unit)},
        {.text = measure_table_value(last, sizeof last, worst->value, worst->unit)},
        {.text = location}};
    measure_table_row(table->out, columns, COLUMNS_N, cells);
}

/* The rows of one name and unit, the worst first. */
struct group {
    const struct check_row *const *row;
    int n;
    const struct check_row *first; /* first row in the order of the stages */
};

static int by_first(const void *a, const void *b)
{
    const struct check_row *x = ((const struct group *)a)->first,
                           *y = ((const struct group *)b)->first;
    return (x > y) - (x < y);
}

static void add_lines(const struct table *table, const struct check_row **list, struct group *group,
                      double *values)
{
    const struct check_rows *rows = table->rows;
    int n = 0;
    for (int i = 0; i < rows->n; i++)
        if (isfinite(rows->row[i].value) && (rows->row[i].unit[0] || !isnan(rows->row[i].slack)))
            list[n++] = &rows->row[i];
    qsort(list, (size_t)n, sizeof(struct check_row *), by_name_and_value);
    if (n > 0) {
        text_add(table->out, "\n");
        measure_table_head(table->out, columns, COLUMNS_N);
    }
    /* Keep the order in which the stages wrote them. */
    int groups = 0;
    for (int first = 0, end; first < n; first = end) {
        const struct check_row *least = list[first];
        for (end = first; end < n && by_name(list[first], list[end]) == 0; end++)
            least = list[end] < least ? list[end] : least;
        group[groups++] = (struct group){list + first, end - first, least};
    }
    qsort(group, (size_t)groups, sizeof *group, by_first);
    for (int i = 0; i < groups; i++)
        add_line(table, group[i].row, group[i].n, values);
}

/* ---- rows that fail or warn ---- */

/* For example, a limit is too low on 4,096 nodes, and each has another value. */
enum { SHOWN_MAX = 16 };

/* Rows of one fault: the same sentence about several nodes, or links of one suspect. */
struct fault {
    const struct check_row *const *row;
    int n;
};

static int by_kind(const struct check_row *x, const struct check_row *y)
{
    if (x->verdict != y->verdict)
        return (int)y->verdict - (int)x->verdict; /* failing rows come first */
    return x->stage != y->stage ? (int)x->stage - (int)y->stage : strcmp(x->name, y->name);
}

static int by_fault(const struct check_row *x, const struct check_row *y)
{
    int order = by_kind(x, y);
    if (order == 0)
        order = x->suspect - y->suspect;
    if (order == 0)
        order = strcmp(x->remedy, y->remedy);
    if (order == 0 && x->suspect < 0)
        order = x->peer - y->peer;
    if (order == 0 && x->suspect < 0)
        order = strcmp(x->subject, y->subject);
    return order || x->suspect >= 0 ? order : strcmp(x->why, y->why);
}

static int by_fault_and_node(const void *a, const void *b)
{
    const struct check_row *x = *(const struct check_row *const *)a,
                           *y = *(const struct check_row *const *)b;
    const int fault = by_fault(x, y);
    return fault ? fault : x->node != y->node ? x->node - y->node : x->peer - y->peer;
}

static int by_kind_and_node(const void *a, const void *b)
{
    const struct check_row *x = ((const struct fault *)a)->row[0],
                           *y = ((const struct fault *)b)->row[0];
    const int kind = by_kind(x, y);
    return kind ? kind : x->node != y->node ? x->node - y->node : x->peer - y->peer;
}

static const char indent[] = "       ";

const char *check_table_nodes(char *out, size_t cap, const int *node, int n)
{
    char item[32];
    size_t used = 0;
    out[0] = 0;
    for (int first = 0, last; first < n; first = last + 1) {
        for (last = first; last + 1 < n && node[last + 1] <= node[last] + 1;)
            last++;
        if (node[last] > node[first])
            text_format(item, sizeof item, "%s%d-%d", used ? ", " : "", node[first], node[last]);
        else
            text_format(item, sizeof item, "%s%d", used ? ", " : "", node[first]);
        if (used + strlen(item) + sizeof ", …" > cap) {
            text_format(out + used, cap - used, ", …");
            break;
        }
        text_copy(out + used, cap - used, item);
        used += strlen(item);
    }
    return out;
}

/* Writes the location of a fault's rows: one location, some nodes, or the links of a node. */
static void write_location(const struct table *table, const struct fault *fault, char *out,
                           size_t cap)
{
    const struct check_row *row = fault->row[0];
    char nodes[120], location[256];
    int *node = fault->n > 1 ? memory_new((size_t)fault->n, sizeof *node) : NULL;
    for (int i = 0; node && i < fault->n; i++)
        node[i] = fault->row[i]->node;
    if (fault->n > 1 && row->suspect >= 0)
        text_format(out, cap, "%d links of %s", fault->n,
                    check_text_node(location, sizeof location, &table->hosts, row->suspect));
    else if (node && row->node >= 0)
        text_format(out, cap, "nodes %s%s%s",
                    check_table_nodes(nodes, sizeof nodes, node, fault->n),
                    row->subject[0] ? ", " : "", row->subject);
    else
        check_text_location(out, cap, &table->hosts, row);
    free(node);
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void add_kind(const struct table *table, const struct fault *fault, int n)
{
    const int shown = n <= SHOWN_MAX ? n : SHOWN_MAX / 2;
    for (int i = 0; i < shown; i++) {
        static const struct measure_column rest = {.width = -(COLUMNS - ((int)sizeof indent - 1))};
        const struct check_row *row = fault[i].row[0];
        char where[300], line[400];
        add_word(table, row->verdict, sizeof indent - 1);
        write_location(table, &fault[i], where, sizeof where);
        text_format(line, sizeof line, "%s: %s", row->name, where);
        measure_table_row(table->out, &rest, 1, &(struct measure_cell){.text = line});
        check_table_wrap(table->out, indent, row->why, false);
        if (row->remedy[0])
            check_table_wrap(table->out, "     > ", row->remedy, true);
    }
    if (n > shown) {
        /* The other rows of a kind: their number and their nodes. */
        const struct fault *left = fault + shown;
        const int left_n = n - shown;
        char nodes[240];
        int *node = memory_new((size_t)left_n, sizeof *node);
        for (int i = 0; i < left_n; i++)
            node[i] = left[i].row[0]->node;
        qsort(node, (size_t)left_n, sizeof *node, by_number);
        text_add(table->out, "%sand %d more like this; REPORT=check.json has all. Nodes:\n", indent,
                 left_n);
        check_table_wrap(table->out, indent, check_table_nodes(nodes, sizeof nodes, node, left_n),
                         false);
        free(node);
    }
}

/* Appends the rows that fail, then the rows that warn, with reasons and remedies. Of many rows with
 * one name it writes the first ones, and the nodes of the others. */
static void add_bad(const struct table *table)
{
    const struct check_rows *rows = table->rows;
    const size_t cap = (size_t)(rows->n + 1);
    const struct check_row **list = memory_new(cap, sizeof(struct check_row *));
    struct fault *fault = memory_new(cap, sizeof *fault);
    int n = 0;
    for (int i = 0; i < rows->n; i++)
        if (check_row_is_bad(&rows->row[i]))
            list[n++] = &rows->row[i];
    /* Group the rows of one fault, and the faults of one kind. */
    int faults = 0;
    qsort(list, (size_t)n, sizeof(struct check_row *), by_fault_and_node);
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && by_fault(list[first], list[end]) == 0;)
            end++;
        fault[faults++] = (struct fault){list + first, end - first};
    }
    qsort(fault, (size_t)faults, sizeof *fault, by_kind_and_node);
    if (faults > 0)
        text_add(table->out, "\n");
    for (int first = 0, end; first < faults; first = end) {
        for (end = first; end < faults && by_kind(fault[first].row[0], fault[end].row[0]) == 0;)
            end++;
        add_kind(table, fault + first, end - first);
    }
    free(list);
    free(fault);
}

/* ---- the eighteen points, the verdict ---- */

/* The rows of a point that were not skipped, the skipped ones, and the worst row. */
struct point {
    int rows, skipped;
    const struct check_row *worst, *first_skipped;
};

static struct point look_at(const struct check_rows *rows, enum check_point point)
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

/* Appends the eighteen points, each with its worst verdict. */
static void add_points(const struct table *table)
{
    enum { NAME = 33 };
    char what[400];
    text_add(table->out, "\n  %-*s verdict\n", NAME, "the eighteen points");
    for (int p = 0; p < CHECK_POINT_HOST; p++) {
        const struct point point = look_at(table->rows, (enum check_point)p);
        text_add(table->out, "  %-*s ", NAME, check_row_point((enum check_point)p));
        add_word(table, point.worst ? point.worst->verdict : CHECK_VERDICT_SKIPPED, 7);
        char location[256];
        if (!point.worst)
            text_copy(what, sizeof what,
                      point.first_skipped ? point.first_skipped->why : "not checked at this depth");
        else if (point.worst->verdict == CHECK_VERDICT_PASS)
            text_format(what, sizeof what, "%d %s", point.rows, point.rows == 1 ? "row" : "rows");
        else if (point.worst->suspect >= 0)
            text_format(
                what, sizeof what, "%s: links of %s", point.worst->name,
                check_text_node(location, sizeof location, &table->hosts, point.worst->suspect));
        else
            text_format(what, sizeof what, "%s: %s", point.worst->name,
                        check_text_location(location, sizeof location, &table->hosts, point.worst));
        text_add(table->out, " ");
        wrap_at(table->out, NAME + 11, what, false);
    }
}

static enum status write_all(const struct table *table)
{
    const struct check_report_about *about = table->about;
    char when[32], line[256];
    clock_iso(when, sizeof when, about->started * 1000);
    text_format(line, sizeof line, "check of %d %s, %d %s: %s, convoy %s, %.10s %.5s UTC, %.1f s",
                about->nodes, about->nodes == 1 ? "node" : "nodes", about->ranks,
                about->ranks == 1 ? "rank" : "ranks", about->depth, about->version, when, when + 11,
                about->seconds);
    check_table_wrap(table->out, "", line, false);
    /* Append a line for each name and unit that has numbers. */
    const size_t n = (size_t)(table->rows->n + 1);
    const struct check_row **list = memory_new(n, sizeof(struct check_row *));
    struct group *group = memory_new(n, sizeof *group);
    double *values = memory_new(n, sizeof *values);
    add_lines(table, list, group, values);
    free(list);
    free(group);
    free(values);
    add_bad(table);
    add_points(table);
    /* List the nodes of the failing rows. */
    const struct check_rows *rows = table->rows;
    char nodes[512];
    int bad = 0, *node = memory_new(2 * (size_t)rows->n, sizeof *node);
    for (int i = 0; i < rows->n; i++) {
        const struct check_row *row = &rows->row[i];
        if (row->verdict != CHECK_VERDICT_FAIL)
            continue;
        if (row->suspect >= 0 || row->node >= 0)
            node[bad++] = row->suspect >= 0 ? row->suspect : row->node;
        if (row->suspect < 0 && row->peer >= 0)
            node[bad++] = row->peer;
    }
    qsort(node, (size_t)bad, sizeof *node, by_number);
    text_add(table->out, "\n");
    if (bad > 0)
        check_table_wrap(table->out,
                         node[0] == node[bad - 1] ? "failing: node " : "failing: nodes ",
                         check_table_nodes(nodes, sizeof nodes, node, bad), false);
    free(node);
    const struct check_report_counts counts = check_report_count(table->rows);
    text_add(table->out, "verdict: ");
    add_word(table, check_row_worst(table->rows, -1), 4);
    text_add(table->out, " (%d rows: %d pass, %d warn, %d fail, %d skipped)\n", counts.all,
             counts.n[CHECK_VERDICT_PASS], counts.n[CHECK_VERDICT_WARN],
             counts.n[CHECK_VERDICT_FAIL], counts.n[CHECK_VERDICT_SKIPPED]);
    return check_report_end(table->out, "table");
}

enum status check_table_write(const struct check_rows *rows, const struct check_report_about *about,
                              struct text *out)
{
    struct table table = {.rows = rows, .about = about, .out = out};
    check_report_begin(out);
    check_host_collect(rows, &table.hosts);
    enum status st = write_all(&table);
    check_host_free(&table.hosts);
    return st;
}
