/* shard_tree — the order in which the gradients of virtual shards are added: one fixed binary tree.
 * Pure arithmetic. Must not know gradients, buffers or transports.
 *
 * A virtual shard is a fixed share of the global batch. The sum of n neighbouring shards is
 * sum(first half) + sum(second half); of an odd number the first half is the larger. Each rank
 * computes a run of neighbouring shards. It adds up what it can without other ranks: the largest
 * nodes of the tree that lie in its run, its pieces. The owner of an element adds the pieces of all
 * ranks along the rest of the tree. So the sum depends on the number of shards, not on that of
 * ranks.
 *
 * Which run a rank has is a deal: rank r computes shards [begin[r], begin[r + 1]), at least one;
 * begin[ranks] is the number of shards. With a power of two of ranks and equal runs each rank has
 * one piece. Others may have several: of 12 shards on 4 ranks, 3 for each, a rank adds two at
 * most.
 *
 * Context parallelism: `contexts` neighbouring ranks are a group with the same shards, and each has
 * other positions of their samples. There is one tree for each place in a group, and the sums of
 * these trees are added last, by halves as well. So ranks add up their own shards before they send,
 * and the sum depends on the shards and on `contexts` alone. `ranks` counts groups then: rank r has
 * run r / contexts. */
#ifndef CONVOY_MESH_SHARD_TREE_H
#define CONVOY_MESH_SHARD_TREE_H

#include <stdbool.h>

#include "base/status.h"
#include "comm/core/sum.h"

/* How a rank adds up its own shards in a few slots, each for a whole gradient. Shard i (of this
 * rank, from 0) goes to slot shard_slot[i]; then steps [add_first[i], add_first[i + 1]) follow:
 * slot[to] += slot[from]. At the end piece k lies in slot k. */
struct shard_tree {
    int shards_n; /* of this rank */
    int slots_n, pieces_n;
    int *shard_slot;
    int *add_first; /* shards_n + 1 */
    struct sum_tree_step *add;
    int adds_n;
};

/* shard_tree_deal — runs as equal as they can be; begin: ranks + 1 numbers. */
void shard_tree_deal(int shards, int ranks, int *begin);

/* shard_tree_init — the order of rank `rank` of `ranks`. */
void shard_tree_init(const int *begin, int ranks, int rank, struct shard_tree *out);
void shard_tree_free(struct shard_tree *t); /* may be called twice */
/* shard_tree_slots — slots_n of a rank. */
int shard_tree_slots(const int *begin, int ranks, int rank);

/* shard_tree_pieces — how many pieces all ranks have together, without contexts. count: each
 *   rank's, or NULL.
 * shard_tree_join — the steps that add the pieces of all ranks · contexts ranks, numbered rank
 *   after rank: shard_tree_pieces · contexts - 1 of them. The sum ends in piece 0. */
int shard_tree_pieces(const int *begin, int ranks, int *count);
void shard_tree_join(const int *begin, int ranks, int contexts, struct sum_tree_step *out);

/* shard_tree_is_of_ranks — each of the nodes × locals ranks has one piece, and adding them is what
 * their collectives do (sum_tree_plan_nodes). */
bool shard_tree_is_of_ranks(const int *begin, int contexts, int nodes, int locals);

#endif
