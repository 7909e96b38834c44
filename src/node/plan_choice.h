/* plan_choice — RECOMPUTE=auto and SHARD=auto: the fastest way to train that fits into memory.
 *
 * A way is one value of each. Ways stand in the order of their speed, the fastest first. On a CPU
 * RECOMPUTE=light stands first, and `none` is not taken: to write and read what it keeps took as
 * long as to compute it again (bench_step). Where SHARD is open, the ranks decide together and take
 * the same way. Where RECOMPUTE alone is, each rank decides for itself: what it keeps is its own,
 * and a call of all ranks at the beginning of a generation would only be one more that a lost rank
 * can break. It is decided anew for each generation, from the memory that is free then. Must not
 * know how memory is measured (memory_check.h). */
#ifndef CONVOY_NODE_PLAN_CHOICE_H
#define CONVOY_NODE_PLAN_CHOICE_H

#include "comm/core/comm.h"
#include "conf/conf.h"
#include "train/memory_plan.h"

struct plan_way {
    enum model_recompute recompute;
    enum layout_shard shard;
};
#define PLAN_WAYS_MAX 32

/* plan_choice_ways — the ways that a config leaves open, at least one; the last needs least memory.
 * plan_choice_set — makes one of them the config's. */
int plan_choice_ways(const struct step_config *config, const struct memory_plan_place *place,
                     struct plan_way out[PLAN_WAYS_MAX]);
void plan_choice_set(struct step_config *config, struct plan_way way);

/* What this rank has free, and what it would need for each way. */
struct plan_offer {
    int64_t free_bytes;   /* -1: unknown, and everything counts as fitting */
    int64_t margin_bytes; /* of it, what every way but the last has to leave free */
    int64_t need_bytes[PLAN_WAYS_MAX];
};

/* What the ranks decided. */
struct plan_decision {
    int way;            /* its number */
    int64_t free_bytes; /* of the rank that has least; -1: unknown on all */
    int rank;           /* that one */
};

/* plan_choice_decide — collective: the first way that fits on every rank, else the last. comm NULL:
 * one rank. Called here, and for tests. */
enum status plan_choice_decide(struct comm *comm, const struct plan_offer *offer, int ways_n,
                               struct plan_decision *out);

/* plan_choice_make — collective where SHARD is open: sets the config's recompute and shard where
 * they are AUTO, and logs on rank 0 what was taken and why. A rank that decided for itself and
 * could not take the first way logs it too. last: the way of the generation before, for a warning
 * when it changes; recompute AUTO: there was none. */
enum status plan_choice_make(const struct conf *conf, struct comm *comm, const struct dev *dev,
                             struct trainer_config *config, struct plan_way *last);

#endif
