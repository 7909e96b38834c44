/* step_sentinel — checks by checksums that all ranks with the same parameters and moments have the
 * same bits of them (SENTINEL_EVERY). It also exchanges checksums of all ranks for other
 * comparisons. It must not know how a difference is handled. */
#ifndef CONVOY_TRAIN_STEP_REPLICAS_H
#define CONVOY_TRAIN_STEP_REPLICAS_H

#include "train/step/core.h"

/* The result of a comparison; the same on all ranks. */
struct step_sentinel {
    bool is_same;
    int rank;       /* rank that differs from a majority; -1: there is no majority */
    int array;      /* 0 parameters, 1 and 2 moments */
    int first;      /* one of the ranks that differ among themselves */
    int replicas_n; /* number of these ranks */
};
/* step_sentinel_compares — returns true if there is anything to compare: several replicas of whole
 * parameters, with config.sentinel_every and without LOCAL_STEPS. */
bool step_sentinel_compares(const struct step *step);
/* step_sentinel — compares the replicas. Collective. */
enum status step_sentinel(struct step *step, struct step_sentinel *out);
/* Parameters in the memory of this rank's device for which a change is found and attributed to the
 * rank: by a vote, or by the next update. */
struct step_replica {
    float *parameters;
    int64_t elems;
};
/* step_sentinel_replica — finds such parameters. Returns false if this rank has none. */
bool step_sentinel_replica(const struct step *step, struct step_replica *out);

/* step_sentinel_exchange — exchanges n checksums of each rank; all: rank after rank. Collective,
 * over the world. */
enum status step_sentinel_exchange(struct step_core *s, const uint64_t *own, int n, uint64_t *all);
/* step_sentinel_exchange_some — exchanges checksums of some ranks only. Each of these has its own
 * of the slots_n slots. own NULL: this rank has none. all: slot after slot. */
enum status step_sentinel_exchange_some(struct step_core *s, const uint64_t *own, int n, int slot,
                                        int slots_n, uint64_t *all);

#endif
