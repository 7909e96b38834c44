/* step_update_sums — finds changes between two updates in the state that this rank updates
 * (step.h). If ranks hold shards, there is no copy of this state, so no comparison of ranks can
 * find such a change.
 *
 * An update computes sums of the bits that it reads and writes (kernels/adamw.h), in the device's
 * memory. They are read at the head of the next step, so on a GPU the host waits there until the
 * last update is done. The sums of the written bits of each bucket are kept until its next update.
 * Any other write to the state invalidates them (store_params_writes). Frozen parameters, which no
 * update reads, have a checksum that step_update_sums_verify compares. It must not know how a
 * difference is handled. */
#ifndef CONVOY_TRAIN_STEP_UPDATE_SUMS_H
#define CONVOY_TRAIN_STEP_UPDATE_SUMS_H

#include "train/feature/step_checksums.h"
#include "train/step/feature.h"

struct step_changed {
    int ranks_n;   /* number of ranks whose memory changed; 0: none was found */
    int rank;      /* the rank, if it is only one; else -1 */
    int64_t steps; /* the state after this number of steps, and all later states, may be wrong */
};

/* The sums of a bucket's last update. */
struct step_update_kept {
    uint32_t written[STEP_ARRAYS_MAX];
    int64_t writes; /* store_params_writes after the update */
    int64_t steps;  /* steps done with this update */
    bool is_known;
    bool is_pending;                 /* another update has begun; its sums are not compared yet */
    int64_t next_writes, next_steps; /* the same numbers of that update */
};

struct step_update_sums {
    struct step_core *s;
    struct step_update_kept *kept; /* sums of each bucket */
    bool is_pending;               /* a bucket is */
    struct step_checksum frozen;   /* checksum of this rank's frozen parameters; 0: none */
    int64_t frozen_steps;          /* steps done when it was last verified */
    /* the first difference on this rank */
    bool is_found;
    int array, bucket;          /* array STEP_ARRAYS_MAX: the frozen parameters */
    int64_t steps;              /* as in step_changed */
    struct step_changed agreed; /* result of all ranks */
};

/* The feature, with config.sentinel_every. All ranks get a difference at the head of the next step,
 * which fails: with ST_FAULT on the rank whose memory changed, with ST_PEER on others. */

/* step_update_sums_of — returns a step's sums, or NULL without config.sentinel_every. */
struct step_update_sums *step_update_sums_of(const struct step *step);
/* step_update_sums_keep — local: computes the sums of a state that was loaded, after `steps` steps.
 * The next update must read the same bits. Call it before the first step. */
enum status step_update_sums_keep(struct step *step, int64_t steps);
/* step_update_sums_verify — checks the state and the frozen parameters between two steps by a pass
 * over them. Call it before the state is saved, or after a step that failed before its update.
 * Collective. */
enum status step_update_sums_verify(struct step *step);
/* step_update_sums_verify_own — local: checks only this rank's state, after another failure. */
enum status step_update_sums_verify_own(struct step *step);
/* step_update_sums_submit — begins checksums of the arrays of every bucket, STEP_ARRAYS_MAX for
 * each, and of the frozen parameters. */
enum status step_update_sums_submit(struct step_core *s);
/* step_update_sums_changed — local: returns the change that such a failure reports. */
struct step_changed step_update_sums_changed(const struct step *step);

#endif
