/* order — the one place that says which rank holds which part of a buffer, and in what order
 * contributions are added. Pure.
 *
 * The sum of ranks [first, first+n) is sum(left half) + sum(right half), the left half being the
 * greatest power of two below n; over nodes first, then inside each node. So what a node's workers
 * add among themselves is a subtree, a power of two of ranks is a perfect tree, and an element's
 * sum does not depend on where it lies. Later the leaves may be fixed virtual shards instead of
 * ranks, and the sum the same for any number of nodes. */
#ifndef CONVOY_COMM_SUM_TREE_H
#define CONVOY_COMM_SUM_TREE_H

#include <stdint.h>

#define PART_ALIGN 16 /* elements: a cache line of fp32, and param.h's alignment */

struct part_extent {
    int64_t first, elems;
};
/* part_extent — part part_i of elems elements cut in parts_n: multiples of PART_ALIGN but for the
 * last, sizes as even as that allows; parts may be empty. */
struct part_extent part_extent(int64_t elems, int parts_n, int part_i);

/* part_rail — the parts of the ranks of one number, one on each of the nodes, laid one behind the
 * other: out[node], and how many elements they have together. */
int64_t part_rail(int64_t elems, int nodes, int locals, int local, struct part_extent *out);

/* sum_tree_shape — how many nodes and workers a node `ranks` (n, ascending; rank = node · locals +
 * local) make among themselves: as many workers on each node, else n nodes of one worker. */
void sum_tree_shape(const int *ranks, int n, int locals, int *nodes_out, int *locals_out);

/* sum_tree_left — how many of n ≥ 2 neighbours form the left half. */
int sum_tree_left(int n);

/* sum_tree_plan — the additions of n sources, as steps over slots: slot[to] += slot[from], n-1 of
 * them; the sum ends in slot 0. */
struct sum_tree_step {
    int to, from;
};
void sum_tree_plan(int n, struct sum_tree_step *out);

/* sum_tree_plan_nodes — the same for nodes × locals ranks: each node's own first, then the nodes'
 * sums. nodes·locals - 1 steps. */
void sum_tree_plan_nodes(int nodes, int locals, struct sum_tree_step *out);

#endif
