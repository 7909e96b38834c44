/* shard_tree — the order in which the gradients of virtual shards are added: one fixed binary tree.
 * Pure arithmetic. Must not know gradients, buffers or transports.
 *
 * A virtual shard is a fixed share of the global batch. The sum of n neighbouring shards is
 * sum(first half) + sum(second half); of an odd number the first half is the larger. Each rank
 * computes a run of neighbouring shards. It adds the shards that it can add without other ranks:
 * the largest nodes of the tree that lie in its run, its partial sums (partials). The owner of an
 * element adds the partials of all ranks along the rest of the tree. So the sum depends on the
 * number of shards, not on the number of ranks.
 *
 * A deal assigns a run to each rank: rank r computes shards [begin[r], begin[r + 1]), at least one;
 * begin[ranks] is the number of shards. If the number of ranks is a power of two and runs are
 * equal, each rank has one partial. Otherwise a rank may have several: with 12 shards on 4 ranks, 3
 * for each, a rank adds two at most.
 *
 * Context parallelism: `contexts` neighbouring ranks are a group with the same shards, and each has
 * other positions of their samples. There is one tree for each position in a group, and the sums of
 * these trees are added last, by halves as well. So ranks add up their own shards before they send,
 * and the sum depends only on the shards and on `contexts`. `ranks` then counts groups: rank r has
 * run r / contexts. */
#ifndef CONVOY_MESH_SHARD_TREE_H
#define CONVOY_MESH_SHARD_TREE_H

#include <stdbool.h>

#include "base/status.h"
#include "comm/core/sum.h"

/* The order in which a rank adds up its own shards in a few slots, each for a whole gradient. Shard
 * i (of this rank, from 0) goes to slot shard_slot[i]; then steps [add_first[i], add_first[i + 1])
 * follow: slot[to] += slot[from]. At the end partial k lies in slot k. */
struct shard_tree {
    int shards_n; /* shards of this rank */
    int slots_n, partials_n;
    int *shard_slot;
    int *add_first; /* shards_n + 1 numbers */
    struct sum_tree_step *add;
    int adds_n;
};

/* shard_tree_deal — divides the shards into runs as equal as possible. begin: ranks + 1 numbers. */
void shard_tree_deal(int shards, int ranks, int *begin);

/* shard_tree_init — computes the order of rank `rank` of `ranks`. */
void shard_tree_init(const int *begin, int ranks, int rank, struct shard_tree *out);
void shard_tree_free(struct shard_tree *t); /* may be called twice */
/* shard_tree_slots — returns slots_n of a rank. */
int shard_tree_slots(const int *begin, int ranks, int rank);

/* shard_tree_partials — returns the number of partials of all ranks together, without contexts.
 * count: the partials of each rank, or NULL. */
int shard_tree_partials(const int *begin, int ranks, int *count);
/* shard_tree_join — lists the steps that add the partials of all ranks · contexts ranks, numbered
 * rank after rank: shard_tree_partials · contexts - 1 steps. The sum ends in partial 0. */
void shard_tree_join(const int *begin, int ranks, int contexts, struct sum_tree_step *out);

/* shard_tree_is_of_ranks — returns true if each of the nodes × locals ranks has one partial, and
 * the ranks' collectives add them along the same tree (sum_tree_plan_nodes). */
bool shard_tree_is_of_ranks(const int *begin, int contexts, int nodes, int locals);

#endif
