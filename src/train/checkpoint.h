/* checkpoint — between a step's memory and a checkpoint folder: finding where to go on, reading it,
 * saving.
 *
 * A checkpoint carries the model's dimensions (must agree), the settings that shape the sequence of
 * losses (told when they differ) and where in the samples the run was. Life: open (lock), find or
 * set aside, attach the step's memory, save, close. Must not know the board, processes, or when to
 * save. */
#ifndef CONVOY_TRAIN_CHECKPOINT_H
#define CONVOY_TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/ckpt.h"
#include "model/model.h"
#include "train/load.h"
#include "train/step.h"

#define CHECKPOINT_PARTS_MAX 3

struct checkpoint_config {
    const struct model_dims *dims;
    const char *dir;           /* CHECKPOINT_DIR */
    int keep;                  /* CHECKPOINT_KEEP */
    const char *settings_json; /* see config_diff.h */
    const char *version;
    uint64_t seed, data_fingerprint;
    struct safetensors_heartbeat heartbeat;
    /* the run's plan: a checkpoint of so many is not read again, and so is verified when it is
     * found */
    int64_t steps;
    /* several ranks hold the step's state, or memory that is not the host's: it is given values
     * with step_write */
    bool needs_transfer;
};

/* Where a run stands. */
struct checkpoint_progress {
    int64_t step;    /* updates done */
    int64_t samples; /* number of the next sample */
    int64_t tokens;  /* seen */
    struct step_loss_scale scale;
};

/* checkpoint_target — where one part of a step's state is loaded to; put stays the caller's as long
 * as the target. */
struct checkpoint_put {
    struct step *step;
    int part;
};
struct load_target checkpoint_target(struct checkpoint_put *put, bool needs_transfer);

struct checkpoint; /* holds the folder's lock */
enum status checkpoint_open(const struct checkpoint_config *config, struct checkpoint **out);
void checkpoint_close(struct checkpoint *checkpoint); /* accepts NULL */
/* checkpoint_find — the newest checkpoint that looks valid, kept open for checkpoint_attach.
 * *found_out false: there is none.
 * Fails with ST_BAD_DATA when there are checkpoints but none is valid, with ST_BAD_SETTING when
 *   model or optimiser do not agree, with both; other differences are warned about. path:
 *   FILE_PATH_MAX. */
enum status checkpoint_find(struct checkpoint *checkpoint, struct checkpoint_progress *progress,
                            bool *found_out, char *path, size_t path_cap);
/* checkpoint_set_aside — RESUME=never: checkpoints of an earlier run move to DIR/before-<number>/,
 * so that two runs never mix. */
enum status checkpoint_set_aside(struct checkpoint *checkpoint);
/* checkpoint_attach — what to save from now on; reads what checkpoint_find found into it first, and
 * verifies it on the way: if it is damaged, the one before, and progress and path change. The step
 * is borrowed until close. */
enum status checkpoint_attach(struct checkpoint *checkpoint, struct step *step,
                              struct checkpoint_progress *progress, char *path, size_t path_cap);
/* checkpoint_save — the step's memory, or what was copied from it: copy holds its parts one behind
 * the other, each step_table's total_elems long; NULL: the step itself. heartbeat NULL: the
 * config's. Any thread may call it, one at a time. */
enum status checkpoint_save(struct checkpoint *checkpoint,
                            const struct checkpoint_progress *progress, const float *copy,
                            const struct safetensors_heartbeat *heartbeat, char *path,
                            size_t path_cap);

#endif
