/* step_replicas — whether all ranks that hold parameters and moments alike hold the same bits of
 * them, by checksums (SENTINEL_EVERY); and checksums of all ranks, for what else compares them. It
 * must not know what is done about a difference. */
#ifndef CONVOY_TRAIN_STEP_REPLICAS_H
#define CONVOY_TRAIN_STEP_REPLICAS_H

#include "train/step/core.h"

/* step_sentinel — compares. Collective; all ranks get the same answer. step_sentinel_compares —
 * whether there is anything to compare: several replicas of whole parameters in host memory,
 * without LOCAL_STEPS. */
struct step_sentinel {
    bool is_same;
    int rank;       /* that differs from more than half; -1: none, for there is no such majority */
    int part;       /* 0 parameters, 1 and 2 moments */
    int first;      /* one of the ranks that differ among themselves */
    int replicas_n; /* how many they are */
};
bool step_sentinel_compares(const struct step *step);
enum status step_sentinel(struct step *step, struct step_sentinel *out);
/* step_sentinel_replica — where parameters lie on this rank of which a change is found, and the
 * rank is named: by a vote, or by the next update. false: it has none. */
struct step_replica {
    const float *parameters;
    int64_t elems;
    int others_n; /* that hold the same */
};
bool step_sentinel_replica(const struct step *step, struct step_replica *out);

/* step_sentinel_exchange — n checksums of each rank; all: rank after rank. Collective, over the
 * world.
 * step_sentinel_exchange_some — of some ranks only, each of which has a slot of its own, of
 * slots_n; own NULL: this rank has none. all: slot after slot. */
enum status step_sentinel_exchange(struct step_core *s, const uint64_t *own, int n, uint64_t *all);
enum status step_sentinel_exchange_some(struct step_core *s, const uint64_t *own, int n, int slot,
                                        int slots_n, uint64_t *all);

#endif
