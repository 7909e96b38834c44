/* step_shards — EXACT=layout: a step has virtual shards, whose gradients and losses are functions
 * only of their samples (mesh/store/shard_tree.h). Ranks along the data axis share the shards. A
 * feature (step/feature.h): it decides where passes write gradients, and adds those of a shard when
 * its last micro-batch is done. */
#ifndef CONVOY_TRAIN_STEP_SHARDS_H
#define CONVOY_TRAIN_STEP_SHARDS_H

#include "train/step/feature.h"

/* step_shards_balance — with config.balances, after each step, of which *r is the result: every
 *   STEP_BALANCE_STEPS steps the ranks exchange how long a shard takes on each, and deal the
 *   shards so that all end at about the same time. No bit of a result depends on it. Collective.
 * step_shards_deal — how many shards a data rank has now; outside step_shards.c for tests. */
#define STEP_BALANCE_STEPS 10
enum status step_shards_balance(struct step *step, const struct step_result *r);
int step_shards_deal(const struct step *step, int data_rank);

/* BALANCE=auto: how many virtual shards of a step each rank computes, by how long one needs. Pure
 * arithmetic. */
/* A deal: rank r has shards [begin[r], begin[r + 1]), at least one (mesh/store/shard_tree.h). */
struct balance {
    const double *ms; /* of a shard, of each rank; positive */
    int shards, ranks;
    const int *begin;                           /* the deal now: ranks + 1 */
    bool (*takes)(void *arg, const int *begin); /* whether there is memory for a deal */
    void *arg;
};

/* step_shards_balance_deal — true: a deal, in begin (ranks + 1), whose slowest rank ends at least a
 * twentieth earlier than now. Runs begin at multiples of a power of two where that costs little,
 * because unaligned ones are sent in more pieces. The same on all ranks that have the same numbers.
 * Outside step_shards.c for tests. */
#define BALANCE_GAIN 0.95
bool step_shards_balance_deal(const struct balance *b, int *begin);

#endif
