/* sum — the sum of several buffers, element by element, along one fixed tree, at the speed of
 * memory. Must not know ranks or transports.
 *
 * There is a version for each of three ISA levels of x86-64, one for NEON and a plain one; the
 * level is chosen once. All versions yield the same bits: the sum of an element depends only on its
 * sources and their tree. Its position, the number of elements, the ISA level and the chunking do
 * not matter. Single-threaded. */
#ifndef CONVOY_COMM_SUM_H
#define CONVOY_COMM_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"

struct sum_args {
    const void *const *in;
    void *const *out;
    int nodes, locals, outs_n;
    enum dtype dtype_in, dtype_out;
    int64_t elems;
    bool is_nt;
};
/* sum_run — writes out[o][i] = Σ_s in[s][i], added along sum_tree_plan_nodes(nodes, locals); slot s
 * of that plan holds in[s].
 *   in     nodes·locals sources of `elems` elements; dtype_in F32, F64, BF16 or F16
 *   out    outs_n buffers; dtype_out = dtype_in, or F32 from BF16 or F16, or these from F32. An out
 *          may be one of the sources (same address); otherwise they do not overlap.
 *   is_nt  use non-temporal stores, which bypass the caches: for data larger than the caches. Other
 *          threads may read the result after sum_run has returned and this thread has executed a
 *          release.
 * BF16 and F16 are summed in fp32 and rounded once, to nearest even. */
void sum_run(const struct sum_args *a);

/* sum_copy — copies `bytes` bytes, with non-temporal stores if is_nt. */
void sum_copy(void *out, const void *in, int64_t bytes, bool is_nt);

/* ---- the order in which the contributions of ranks are added: one fixed binary tree ----
 *
 * The sum of n neighbours is sum(left half) + sum(right half); the size of the left half is the
 * greatest power of two below n. Ranks are added inside each node first, then the sums of the
 * nodes. So
 *   - the sum of a node's workers is a subtree;
 *   - a power of two of ranks is a perfect tree;
 *   - the sum of an element does not depend on its position in the buffer. */

/* sum_tree_shape — returns the nodes and workers per node that `ranks` form among themselves (n,
 * ascending; rank = node · locals + local). Unequal numbers of workers on the nodes count as n
 * nodes of one worker. */
void sum_tree_shape(const int *ranks, int n, int locals, int *nodes_out, int *locals_out);

/* sum_tree_left — returns the size of the left half of n ≥ 2 neighbours. */
int sum_tree_left(int n);

/* One addition: slot[to] += slot[from]. */
struct sum_tree_step {
    int to, from;
};
/* sum_tree_plan — writes the n-1 additions that sum n slots, in their order. The sum ends in slot
 * 0. */
void sum_tree_plan(int n, struct sum_tree_step *out);

/* sum_tree_plan_nodes — does the same for nodes × locals ranks: nodes·locals - 1 steps, each node's
 * own first. sum_run follows this rule; called for tests. */
void sum_tree_plan_nodes(int nodes, int locals, struct sum_tree_step *out);

#endif
