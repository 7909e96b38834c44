/* step_update_sums — whether what this rank updates changed by itself between two updates (step.h).
 * It has no copy anywhere else where ranks hold shards, so no comparison of ranks finds it.
 *
 * An update gives sums of the bits that it reads and writes (kernels/adamw.h). The written ones of
 * each bucket are kept until its next update. Whatever else writes to the state makes them unknown
 * (store_params_writes). It must not know what is done about a difference. */
#ifndef CONVOY_TRAIN_STEP_UPDATE_SUMS_H
#define CONVOY_TRAIN_STEP_UPDATE_SUMS_H

#include "train/step/inside.h"

/* Of a bucket's last update. */
struct step_update_kept {
    uint32_t written[STEP_PARTS_MAX];
    int64_t writes; /* store_params_writes then */
    int64_t steps;  /* done with this update */
    bool is_known;
};

struct step_update_sums {
    struct step_update_kept *kept; /* of each bucket */
    struct optim_sums now;         /* of the update under way */
    /* the first difference on this rank */
    bool is_found;
    int part, bucket;
    int64_t steps;              /* as step_changed */
    struct step_changed agreed; /* of all ranks */
};

/* _open: with config.checks_updates. _close: accepts a step without. */
void step_update_sums_open(struct step *s);
void step_update_sums_close(struct step *s);

/* In a bucket's update: _begin, then _of for each call of the optimiser (NULL: not wanted), then
 * _end, which compares. */
void step_update_sums_begin(struct step *s);
struct optim_sums *step_update_sums_of(const struct step *s);
void step_update_sums_end(struct step *s, int bucket);

/* What ranks add up at the head of a step, so that all of them end in the same place.
 * _tell: this rank's numbers. _heed: fails if the sums over all ranks have a difference. */
#define STEP_UPDATE_SUMS_TOLD 3
void step_update_sums_tell(const struct step *s, double *out);
enum status step_update_sums_heed(struct step *s, const double *sums);

#endif
