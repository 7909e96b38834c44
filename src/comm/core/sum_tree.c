/* sum_tree — the order of additions: pure arithmetic, no state. */
#include "comm/core/sum_tree.h"

#include <stdbool.h>

#include "base/assert.h"

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

/* Writes the steps for n slots, the first one `first`, `stride` apart. Returns the end of the
 * steps. */
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
