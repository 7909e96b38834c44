/* step_update_sums — whether what this rank updates changed by itself between two updates (step.h).
 * It has no copy anywhere else where ranks hold shards, so no comparison of ranks finds it.
 *
 * An update gives sums of the bits that it reads and writes (kernels/adamw.h). The written ones of
 * each bucket are kept until its next update. Whatever else writes to the state makes them unknown
 * (store_params_writes). It must not know what is done about a difference. */
#ifndef CONVOY_TRAIN_STEP_UPDATE_SUMS_H
#define CONVOY_TRAIN_STEP_UPDATE_SUMS_H

#include "train/step/feature.h"

struct step_changed {
    int ranks_n;   /* whose memory changed; 0: none was found */
    int rank;      /* which, if it is one; else -1 */
    int64_t steps; /* the state after so many steps may be wrong, and that of all later ones */
};

/* Of a bucket's last update. */
struct step_update_kept {
    uint32_t written[STEP_PARTS_MAX];
    int64_t writes; /* store_params_writes then */
    int64_t steps;  /* done with this update */
    bool is_known;
};

struct step_update_sums {
    struct step_core *s;
    struct step_update_kept *kept; /* of each bucket */
    struct optim_sums now;         /* of the update under way */
    /* the first difference on this rank */
    bool is_found;
    int part, bucket;
    int64_t steps;              /* as step_changed */
    struct step_changed agreed; /* of all ranks */
};

/* The feature, with config.checks_updates; on CPUs. All ranks get a difference at the head of the
 * next step, which fails: with ST_FAULT on the rank whose memory changed, with ST_PEER on others.
 * step_update_sums_of   of a step; NULL: not wanted.
 * step_update_sums_keep     before the first step: the state of so many steps, as it was loaded, is
 *                           what the next update must read. Local.
 * step_update_sums_verify   the same between two steps, from a pass over the state: before it is
 *                           kept, or after a step that failed before its update. Collective.
 * step_update_sums_verify_own  the same, only of this rank, after another failure. Local.
 * step_update_sums_changed  local: what such a failure has found. */
struct step_update_sums *step_update_sums_of(const struct step *step);
void step_update_sums_keep(struct step *step, int64_t steps);
enum status step_update_sums_verify(struct step *step);
enum status step_update_sums_verify_own(struct step *step);
struct step_changed step_update_sums_changed(const struct step *step);

#endif
