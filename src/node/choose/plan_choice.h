/* plan_choice — RECOMPUTE=auto and SHARD=auto: the fastest way to train that fits into memory.
 *
 * A way is one value of each; RECOMPUTE has one for each number of layers, so that no more is
 * computed again than memory asks for. Ways stand in the order of their speed, the fastest
 * first. On a CPU RECOMPUTE=light stands first, and `none` is not taken: to write and read what
 * it keeps took as long as to compute it again (bench_step). Where SHARD is open, the ranks
 * decide together and take the same way. Where RECOMPUTE alone is, each rank decides for itself:
 * what it keeps is its own, and a call of all ranks at the beginning of a generation would only
 * be one more that a lost rank can break. It is decided anew for each generation, from the
 * memory that is free then. Must not know how memory is measured (memory_check.h). */
#ifndef CONVOY_NODE_PLAN_CHOICE_H
#define CONVOY_NODE_PLAN_CHOICE_H

#include "comm/core/comm.h"
#include "conf/conf.h"
#include "train/trainer/memory_plan.h"

struct plan_way {
    struct model_recomputed recompute;
    enum layout_shard shard;
};

/* The ways that a config leaves open. RECOMPUTE goes up from none (on a CPU from light) layer by
 * layer, in `points` steps from one word to the next; for each, every SHARD. */
struct plan_ways {
    int n;
    struct model_recomputed asked; /* way AUTO: open */
    int64_t layers, points, first;
    enum layout_shard shard[LAYOUT_SHARD_AUTO];
    int shards_n;
    bool is_falling; /* with one SHARD, no way needs more than the one before */
};

/* plan_choice_ways — at least one; the last needs least memory.
 * plan_choice_way  — number i of them.
 * plan_choice_set  — makes one of them the config's. */
void plan_choice_ways(const struct step_config *config, const struct memory_plan_place *place,
                      struct plan_ways *out);
struct plan_way plan_choice_way(const struct plan_ways *ways, int i);
void plan_choice_set(struct step_config *config, struct plan_way way);

/* plan_choice_vote — votes[i] is set to 1 for each way that fits, and has to be 0 before. fits is
 * asked about few ways where they are falling, else about each; its failure ends the vote.
 * plan_choice_first — the first way with the votes of all ranks, else the last. */
typedef enum status plan_choice_fits_fn(void *arg, int way, bool *out);
enum status plan_choice_vote(const struct plan_ways *ways, plan_choice_fits_fn *fits, void *arg,
                             float *votes);
int plan_choice_first(const float *votes, int ways_n, int ranks);

/* What this rank has free. */
struct plan_offer {
    int64_t free_bytes;   /* -1: unknown, and everything counts as fitting */
    int64_t margin_bytes; /* of it, what every way but the last has to leave free */
    bool has_failed;      /* its votes do not count */
};

/* What the ranks decided. */
struct plan_decision {
    int way;            /* its number */
    int64_t free_bytes; /* of the rank that has least; -1: unknown on all */
    int rank;           /* that one */
};

/* plan_choice_decide — collective: the first way that all ranks voted for, else the last. comm
 * NULL: one rank. votes: of this rank, one for each way, then room for as many as there are ranks;
 * undefined afterwards. ST_PEER: a rank has failed; the message names it. Called here, and for
 * tests. */
enum status plan_choice_decide(struct comm *comm, const struct plan_offer *offer, float *votes,
                               int ways_n, struct plan_decision *out);

/* plan_choice_make — collective where SHARD is open: sets the config's recompute and shard where
 * they are AUTO, and logs on rank 0 what was taken and why. A rank that decided for itself and
 * could not take the first way logs it too. last: the way of the generation before, to log
 * that it changes, as a warning where that is a word and not only a number of layers; recompute
 * AUTO: there was none. A rank that fails before its vote sends that to the others, which end with
 * ST_PEER and its number. */
enum status plan_choice_make(const struct conf *conf, struct comm *comm, const struct dev *dev,
                             struct trainer_config *config, struct plan_way *last);

#endif
