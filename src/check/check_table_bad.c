/* check_table_bad — the rows that fail or warn, each with its reason and its remedy. */
#include "check/check_table_inside.h"

#include <stdlib.h>
#include <string.h>

#include "check/check_layout.h"
#include "check/check_text.h"

/* A limit that is too low on 4,096 nodes, each with a number of its own. */
enum { SHOWN_MAX = 16 };

/* Rows that are one fault: the same sentence of several nodes, or links of one suspect. */
struct fault {
    const struct check_row *const *row;
    int n;
};

static int by_kind(const struct check_row *x, const struct check_row *y)
{
    if (x->verdict != y->verdict)
        return (int)y->verdict - (int)x->verdict; /* what fails comes first */
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

const char *check_table_bad_nodes(char *out, size_t cap, const int *node, int n)
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

/* Where the rows of a fault are: a place, some nodes, or the links of a node. */
static void describe(const struct check_table *table, const struct fault *fault, char *out,
                     size_t cap)
{
    const struct check_row *row = fault->row[0];
    char nodes[120], place[256];
    int *node = fault->n > 1 ? malloc(sizeof *node * (size_t)fault->n) : NULL;
    for (int i = 0; node && i < fault->n; i++)
        node[i] = fault->row[i]->node;
    if (fault->n > 1 && row->suspect >= 0)
        text_format(out, cap, "%d links of %s", fault->n,
                    check_text_node(place, sizeof place, &table->hosts, row->suspect));
    else if (node && row->node >= 0)
        text_format(out, cap, "nodes %s%s%s",
                    check_table_bad_nodes(nodes, sizeof nodes, node, fault->n),
                    row->subject[0] ? ", " : "", row->subject);
    else
        check_text_place(out, cap, &table->hosts, row);
    free(node);
}

static void add_fault(const struct check_table *table, const struct fault *fault)
{
    const struct check_row *row = fault->row[0];
    char where[300], line[400];
    check_layout_verdict(table->out, row->verdict, sizeof indent - 1, table->about->is_terminal);
    describe(table, fault, where, sizeof where);
    text_format(line, sizeof line, "%s: %s", row->name, where);
    check_layout_pad(table->out, line, CHECK_LAYOUT_COLUMNS - ((int)sizeof indent - 1));
    check_layout_end(table->out);
    check_layout_wrap(table->out, indent, row->why, false);
    if (row->remedy[0])
        check_layout_wrap(table->out, "     > ", row->remedy, true);
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* What is left of a kind: how many, and on which nodes. */
static enum status add_others(const struct check_table *table, const struct fault *fault, int n)
{
    char nodes[240];
    int *node = malloc(sizeof *node * (size_t)n);
    if (!node)
        return FAIL(ST_RETRY, "out of memory: %d rows of a check; use a machine with more", n);
    for (int i = 0; i < n; i++)
        node[i] = fault[i].row[0]->node;
    qsort(node, (size_t)n, sizeof *node, by_number);
    text_add(table->out, "%sand %d more like this; REPORT=check.json has all. Nodes:\n", indent, n);
    check_layout_wrap(table->out, indent, check_table_bad_nodes(nodes, sizeof nodes, node, n),
                      false);
    free(node);
    return ST_OK;
}

static enum status add_kind(const struct check_table *table, const struct fault *fault, int n)
{
    const int shown = n <= SHOWN_MAX ? n : SHOWN_MAX / 2;
    for (int i = 0; i < shown; i++)
        add_fault(table, &fault[i]);
    return n > shown ? add_others(table, fault + shown, n - shown) : ST_OK;
}

/* Returns the number of faults. */
static int fold(const struct check_row **row, int n, struct fault *fault)
{
    int faults = 0;
    qsort(row, (size_t)n, sizeof(struct check_row *), by_fault_and_node);
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && by_fault(row[first], row[end]) == 0;)
            end++;
        fault[faults++] = (struct fault){row + first, end - first};
    }
    qsort(fault, (size_t)faults, sizeof *fault, by_kind_and_node);
    return faults;
}

static enum status add_all(const struct check_table *table, const struct fault *fault, int n)
{
    if (n > 0)
        text_add(table->out, "\n");
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && by_kind(fault[first].row[0], fault[end].row[0]) == 0;)
            end++;
        TRY(add_kind(table, fault + first, end - first));
    }
    return ST_OK;
}

enum status check_table_bad_write(const struct check_table *table)
{
    const struct check_rows *rows = table->rows;
    const size_t cap = (size_t)(rows->n + 1);
    const struct check_row **list = malloc(sizeof(struct check_row *) * cap);
    struct fault *fault = malloc(sizeof *fault * cap);
    enum status st = ST_OK;
    int n = 0;
    for (int i = 0; list && i < rows->n; i++)
        if (rows->row[i].verdict == CHECK_VERDICT_WARN ||
            rows->row[i].verdict == CHECK_VERDICT_FAIL)
            list[n++] = &rows->row[i];
    if (list && fault)
        st = add_all(table, fault, fold(list, n, fault));
    else
        st = FAIL(ST_RETRY, "out of memory: %d rows of a check; use a machine with more", rows->n);
    free(list);
    free(fault);
    return st;
}
