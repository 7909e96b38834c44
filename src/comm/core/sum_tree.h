/* sum_tree — the order in which the contributions of ranks are added: one fixed binary tree. Pure
 * arithmetic. Must not know transports or buffers.
 *
 * The sum of n neighbours is sum(left half) + sum(right half); the left half is the greatest power
 * of two below n. Ranks are added inside each node first, then the sums of the nodes. So
 *   - what a node's workers add among themselves is a subtree;
 *   - a power of two of ranks is a perfect tree;
 *   - the sum of an element does not depend on its place in the buffer. */
#ifndef CONVOY_COMM_SUM_TREE_H
#define CONVOY_COMM_SUM_TREE_H

/* sum_tree_shape — nodes and workers per node that `ranks` form among themselves (n, ascending;
 * rank = node · locals + local). Unequal numbers of workers on the nodes count as n nodes of one
 * worker. */
void sum_tree_shape(const int *ranks, int n, int locals, int *nodes_out, int *locals_out);

/* sum_tree_left — how many of n ≥ 2 neighbours form the left half. */
int sum_tree_left(int n);

/* sum_tree_plan — the n-1 additions that sum n slots: slot[to] += slot[from], in this order. The
 * sum ends in slot 0. */
struct sum_tree_step {
    int to, from;
};
void sum_tree_plan(int n, struct sum_tree_step *out);

/* sum_tree_plan_nodes — the same for nodes × locals ranks: nodes·locals - 1 steps, each node's own
 * first. The rule that sum_run follows; called for tests. */
void sum_tree_plan_nodes(int nodes, int locals, struct sum_tree_step *out);

#endif
