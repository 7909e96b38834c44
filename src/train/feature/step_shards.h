/* step_shards — EXACT=layout: a step has virtual shards, whose gradients and losses are functions
 * only of their samples (mesh/store/shard_tree.h). Ranks along the data axis share the shards. A
 * feature (step/feature.h): it decides where passes write gradients, and adds a shard's gradients
 * after its last micro-batch. */
#ifndef CONVOY_TRAIN_STEP_SHARDS_H
#define CONVOY_TRAIN_STEP_SHARDS_H

#include "train/step/feature.h"

/* Steps between two deals of the shards. */
#define STEP_BALANCE_STEPS 10
/* step_shards_balance — exchanges, every STEP_BALANCE_STEPS steps, the time that each rank needs
 * for a shard, and deals the shards again so that all ranks end at about the same time. With
 * config.balances, call it after each step with the step's result. The deal changes no bit of a
 * result. Collective. */
enum status step_shards_balance(struct step *step, const struct step_result *r);
/* step_shards_deal — outside step_shards.c for tests: returns the number of shards that a data rank
 * has now. */
int step_shards_deal(const struct step *step, int data_rank);

/* BALANCE=auto: the number of virtual shards of a step that each rank computes, from the time that
 * one shard needs there. Pure arithmetic. */
/* A deal: rank r has shards [begin[r], begin[r + 1]), at least one (mesh/store/shard_tree.h). */
struct balance {
    const double *ms; /* milliseconds of a shard on each rank; positive */
    int shards, ranks;
    const int *begin;                          /* the deal now: ranks + 1 */
    bool (*fits)(void *arg, const int *begin); /* returns true if there is memory for a deal */
    void *arg;
};

/* The most time of a new deal, as a share of the time of the deal now. */
#define BALANCE_GAIN 0.95
/* step_shards_balance_deal — outside step_shards.c for tests: writes a deal to begin (ranks + 1)
 * whose slowest rank needs at most BALANCE_GAIN of its time now. Returns false if there is none.
 * Runs begin at multiples of a power of two if that costs little, because unaligned ones are sent
 * in more partials. The result is the same on all ranks that have the same numbers. */
bool step_shards_balance_deal(const struct balance *b, int *begin);

#endif
