/* order — parts of buffers and the order of sums. Pure arithmetic; must not know who asks. */
#include "comm/core/sum_tree.h"

#include <stdbool.h>

#include "base/assert.h"

struct part_extent part_extent(int64_t elems, int parts_n, int part_i)
{
    ASSERTF(elems >= 0 && elems <= INT64_MAX >> 16 && parts_n >= 1 && part_i >= 0 &&
                part_i < parts_n,
            "%lld elements, part %d of %d", (long long)elems, part_i, parts_n);
    int64_t units = elems / PART_ALIGN + (elems % PART_ALIGN != 0);
    int64_t first = units * part_i / parts_n * PART_ALIGN,
            end = units * (part_i + 1) / parts_n * PART_ALIGN;
    first = first < elems ? first : elems;
    end = end < elems ? end : elems;
    return (struct part_extent){.first = first, .elems = end - first};
}

int64_t part_rail(int64_t elems, int nodes, int locals, int local, struct part_extent *out)
{
    int64_t row_elems = 0;
    for (int v = 0; v < nodes; v++) {
        out[v] = (struct part_extent){row_elems,
                                      part_extent(elems, nodes * locals, v * locals + local).elems};
        row_elems += out[v].elems;
    }
    return row_elems;
}

void sum_tree_shape(const int *ranks, int n, int locals, int *nodes_out, int *locals_out)
{
    ASSERTF(n >= 1 && locals >= 1, "%d ranks, %d on a node", n, locals);
    int each = 1;
    while (each < n && ranks[each] / locals == ranks[0] / locals)
        each++;
    bool is_even = n % each == 0;
    for (int i = 0; i < n && is_even; i++)
        is_even = (i % each == 0) == (i == 0 || ranks[i] / locals != ranks[i - 1] / locals);
    *locals_out = is_even ? each : 1;
    *nodes_out = n / *locals_out;
}

int sum_tree_left(int n)
{
    ASSERTF(n >= 2, "%d neighbours", n);
    int left = 1;
    while (left < n - left)
        left *= 2;
    return left;
}

/* Writes the steps of n sources that begin at slot `first` and lie `stride` apart; returns the
 * place after the last. */
static struct sum_tree_step *plan(int first, int n, int stride, struct sum_tree_step *out)
{
    if (n < 2)
        return out;
    int left = sum_tree_left(n);
    out = plan(first, left, stride, out);
    out = plan(first + left * stride, n - left, stride, out);
    *out = (struct sum_tree_step){.to = first, .from = first + left * stride};
    return out + 1;
}

void sum_tree_plan(int n, struct sum_tree_step *out) { plan(0, n, 1, out); }

void sum_tree_plan_nodes(int nodes, int locals, struct sum_tree_step *out)
{
    for (int node = 0; node < nodes; node++)
        out = plan(node * locals, locals, 1, out);
    plan(0, nodes, locals, out);
}
