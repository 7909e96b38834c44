/* check_table_measured — a line for each name that was measured: how many values, a bar of their
 * spread, median, worst and where. */
#include "check/check_table_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/check_layout.h"
#include "check/check_text.h"

enum { NAME = 24, COUNT = 5, BAR = 16, VALUE = 13, PLACE = 22 };

static bool has_number(const struct check_row *row)
{
    return isfinite(row->value) && (row->unit[0] || !isnan(row->slack));
}

static int by_name(const struct check_row *x, const struct check_row *y)
{
    if (x->stage != y->stage)
        return (int)x->stage - (int)y->stage;
    const int name = strcmp(x->name, y->name);
    return name ? name : strcmp(x->unit, y->unit);
}

/* Rows of a name by their value, the worst first. */
static int by_name_and_value(const void *a, const void *b)
{
    const struct check_row *x = *(const struct check_row *const *)a,
                           *y = *(const struct check_row *const *)b;
    const int name = by_name(x, y);
    const int rising = (x->value > y->value) - (x->value < y->value);
    return name ? name : x->better == CHECK_BETTER_HIGHER ? rising : -rising;
}

static int cells(double value, double of)
{
    const int n = (int)lround(BAR * value / of);
    return n < 0 ? 0 : n > BAR ? BAR : n;
}

/* For several values. From 0 to the highest value: full up to the lowest, light from there on, a
 * line at the median. */
static void add_bar(struct text *out, double low, double median, double high)
{
    const bool is_drawn = low >= 0 && high > 0;
    const int full = is_drawn ? cells(low, high) : 0, all = is_drawn ? BAR : 0;
    const int middle = is_drawn && full < BAR ? cells(median, high) - 1 : -1;
    for (int i = 0; i < BAR; i++)
        text_add(out, "%s", i == middle ? "│" : i < full ? "█" : i < all ? "░" : " ");
}

static void add_place(struct text *out, const struct check_hosts *hosts,
                      const struct check_row *row)
{
    char place[256], node[80];
    const char *name = hosts->is_ambiguous ? "" : check_host_name(hosts, row->node);
    if (row->peer >= 0)
        text_format(place, sizeof place, "node %d - node %d", row->node, row->peer);
    else if (row->node < 0)
        text_copy(place, sizeof place, row->subject[0] ? row->subject : "all nodes");
    else {
        text_format(node, sizeof node, "node %d", row->node);
        text_format(place, sizeof place, "%s%s%s", name[0] ? name : node,
                    row->subject[0] ? ", " : "", row->subject);
    }
    check_layout_pad(out, place, PLACE);
}

static void add_line(const struct check_table *table, const struct check_row *const *row, int n)
{
    struct text *out = table->out;
    char text[64];
    const struct check_row *worst = row[0], *best = row[n - 1];
    const double median =
        n % 2 ? row[n / 2]->value : row[n / 2 - 1]->value / 2 + row[n / 2]->value / 2;
    const enum check_verdict verdict = worst->verdict;
    text_add(out, "%s ",
             verdict == CHECK_VERDICT_FAIL   ? "x"
             : verdict == CHECK_VERDICT_WARN ? "!"
                                             : " ");
    check_layout_pad(out, worst->name, NAME);
    text_add(out, " %*d ", COUNT, n);
    if (n > 1)
        add_bar(out, fmin(worst->value, best->value), median, fmax(worst->value, best->value));
    else
        text_add(out, "%*s", BAR, "");
    text_add(out, " ");
    check_layout_pad_left(out, check_text_value(text, sizeof text, median, worst->unit), VALUE);
    text_add(out, " ");
    check_layout_pad_left(out, check_text_value(text, sizeof text, worst->value, worst->unit),
                          VALUE);
    text_add(out, " ");
    add_place(out, &table->hosts, worst);
    check_layout_end(out);
}

static void add_head(struct text *out)
{
    text_add(out, "\n  %-*s %*s %-*s %*s %*s %s\n", NAME, "measured", COUNT, "n", BAR,
             "0 to highest", VALUE, "median", VALUE, "worst", "where");
}

/* The rows of one name and unit, the worst first. */
struct group {
    const struct check_row *const *row;
    int n;
    const struct check_row *first; /* as the stage wrote them */
};

static int by_first(const void *a, const void *b)
{
    const struct check_row *x = ((const struct group *)a)->first,
                           *y = ((const struct group *)b)->first;
    return (x > y) - (x < y);
}

/* Returns the number of groups, in the order in which the stages wrote them. */
static int find_groups(const struct check_row *const *list, int n, struct group *group)
{
    int groups = 0;
    for (int first = 0, end; first < n; first = end) {
        const struct check_row *least = list[first];
        for (end = first; end < n && by_name(list[first], list[end]) == 0; end++)
            least = list[end] < least ? list[end] : least;
        group[groups++] = (struct group){list + first, end - first, least};
    }
    qsort(group, (size_t)groups, sizeof *group, by_first);
    return groups;
}

static void add_lines(const struct check_table *table, const struct check_row **list,
                      struct group *group)
{
    const struct check_rows *rows = table->rows;
    int n = 0;
    for (int i = 0; i < rows->n; i++)
        if (has_number(&rows->row[i]))
            list[n++] = &rows->row[i];
    qsort(list, (size_t)n, sizeof(struct check_row *), by_name_and_value);
    if (n > 0)
        add_head(table->out);
    const int groups = find_groups(list, n, group);
    for (int i = 0; i < groups; i++)
        add_line(table, group[i].row, group[i].n);
}

enum status check_table_measured_write(const struct check_table *table)
{
    const size_t n = (size_t)(table->rows->n + 1);
    const struct check_row **list = malloc(sizeof(struct check_row *) * n);
    struct group *group = malloc(sizeof *group * n);
    enum status st = ST_OK;
    if (list && group)
        add_lines(table, list, group);
    else
        st = FAIL(ST_RETRY, "out of memory: %zu rows of a check; use a machine with more", n - 1);
    free(list);
    free(group);
    return st;
}
