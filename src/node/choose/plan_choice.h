/* plan_choice — RECOMPUTE=auto and SHARD=auto: chooses the fastest way to train that fits into
 * memory.
 *
 * A way is one value of RECOMPUTE and one of SHARD. RECOMPUTE has one value for each number of
 * layers, so that no more is computed again than memory requires. Ways are in the order of their
 * speed, the fastest first. On a CPU RECOMPUTE=light is first, and `none` is not used: to write and
 * read the activations that it keeps was as slow as to compute them again (bench_step).
 *
 * The ranks decide together and use the same way if SHARD is open or if TP, CP or PP divide the
 * model. Otherwise each rank chooses RECOMPUTE for itself, because its activations are its own: a
 * collective call at the beginning of a generation would only be one more call that a lost rank can
 * break. Each generation decides anew, from the memory that is free then. Must not know how memory
 * is measured (memory_check.h). */
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
 * layer, in `points` steps from one word to the next, and each of these values is combined with
 * every SHARD. */
struct plan_ways {
    int n;
    struct model_recomputed asked; /* way AUTO: RECOMPUTE is open */
    int64_t layers, points, first;
    enum layout_shard shard[LAYOUT_SHARD_AUTO];
    int shards_n;
    bool is_falling; /* with one SHARD, no way needs more memory than the way before */
};

/* plan_choice_ways — lists the ways, at least one. The last one needs the least memory. */
void plan_choice_ways(const struct step_config *config, const struct memory_plan_place *place,
                      struct plan_ways *out);
/* plan_choice_way — returns way number i. */
struct plan_way plan_choice_way(const struct plan_ways *ways, int i);
/* plan_choice_set — sets a way in the config. */
void plan_choice_set(struct step_config *config, struct plan_way way);

/* Sets *out to true if a way fits on this rank. */
typedef enum status plan_choice_fits_fn(void *arg, int way, bool *out);
/* plan_choice_vote — sets votes[i], which must be 0 before, to 1 for each way that fits. Calls
 * `fits` for few ways if is_falling, else for each. A failure of `fits` ends the vote. */
enum status plan_choice_vote(const struct plan_ways *ways, plan_choice_fits_fn *fits, void *arg,
                             float *votes);
/* plan_choice_first — returns the first way that has the votes of all ranks, else the last way. */
int plan_choice_first(const float *votes, int ways_n, int ranks);

/* The free memory of this rank. */
struct plan_offer {
    int64_t free_bytes;   /* bytes; -1: unknown, and every way counts as fitting */
    int64_t margin_bytes; /* bytes of free_bytes that every way but the last must leave free */
    bool has_failed;      /* this rank's votes do not count */
};

/* The decision of the ranks. */
struct plan_decision {
    int way;            /* number of the way */
    int64_t free_bytes; /* free bytes of the rank that has least; -1: unknown on all ranks */
    int rank;           /* the rank that has least free memory */
};

/* plan_choice_decide — chooses the first way for which all ranks voted, else the last. Collective.
 * comm NULL: one rank. votes: this rank's vote for each way, followed by one element per rank;
 * undefined afterwards. ST_PEER: a rank has failed; the message names it. Public for tests. */
enum status plan_choice_decide(struct comm *comm, const struct plan_offer *offer, float *votes,
                               int ways_n, struct plan_decision *out);

/* plan_choice_make — sets the config's recompute and shard if they are AUTO. Logs the choice and
 * its reason on rank 0, and on a rank that decided for itself and could not use the first way.
 * Collective if the ranks decide together (see above).
 *
 * last: the way of the previous generation; recompute AUTO: there was none. A change is logged, as
 * a warning if a word changed and not only a number of layers. A rank that fails before its vote
 * reports that to the others, which end with ST_PEER and its number. */
enum status plan_choice_make(const struct conf *conf, struct comm *comm, const struct dev *dev,
                             struct trainer_config *config, struct plan_way *last);

#endif
