/* step_balance — BALANCE=auto: data ranks of unequal speed share a step, so that all end at about
 * the same time. A step has units of work: the virtual shards of EXACT=layout, else micro-batches.
 * Each rank computes a run of them (a deal). A feature (step/feature.h): it measures the passes of
 * each step, exchanges the times every STEP_BALANCE_STEPS steps during the first passes of a step,
 * and changes the deal at its end. With virtual shards no bit of a result depends on the deal, else
 * only the order of additions. */
#ifndef CONVOY_TRAIN_STEP_BALANCE_H
#define CONVOY_TRAIN_STEP_BALANCE_H

#include "train/step/feature.h"

/* Steps between two deals. The first STEP_BALANCE_WARM of them are not measured: the first step
 * still has the old deal, and a GPU captures the work of a new one in the next two. */
#define STEP_BALANCE_STEPS 10
#define STEP_BALANCE_WARM 3

/* step_balance_deal — outside step_balance.c for tests: returns the number of units that a data
 * rank has now. */
int step_balance_deal(const struct step *step, int data_rank);
/* step_balance_measured — for tests: replaces the time that the passes of the last step needed on
 * this rank. */
void step_balance_measured(struct step *step, double ms);

/* The choice of a deal from the time that one unit needs on each rank: pure arithmetic. Rank r has
 * units [begin[r], begin[r + 1]), at least one. */
struct balance {
    const double *ms; /* milliseconds of a unit on each rank; positive */
    int units, ranks;
    int most; /* the largest number of units for which a rank has memory */
    /* every pass all-gathers parameters, so all ranks with a pass left wait for the slowest */
    bool is_lockstep;
    bool is_tree;     /* unaligned runs are sent in more partial sums (mesh/store/shard_tree.h) */
    const int *begin; /* the deal now: ranks + 1 */
    bool (*fits)(void *arg, const int *begin); /* returns true if there is memory for a deal */
    void *arg;
};

/* The most time of a new deal, as a share of the time of the deal now. */
#define BALANCE_GAIN 0.95
/* step_balance_choose — outside step_balance.c for tests: writes a deal to begin (ranks + 1) whose
 * passes need at most BALANCE_GAIN of the time of the deal now. Returns false if there is none.
 * With is_tree, runs begin at multiples of a power of two if that costs little. The result is the
 * same on all ranks that have the same numbers. */
bool step_balance_choose(const struct balance *b, int *begin);

#endif
