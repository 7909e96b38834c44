/* snapshot — between a step's memory and a checkpoint folder: finding where to go on, reading it,
 * saving.
 *
 * A checkpoint carries the model's dimensions (must agree), the settings that shape the sequence of
 * losses (told when they differ) and where in the samples the run was. Life: open (lock), find or
 * set aside, attach the step's memory, save, close. Must not know the board, processes, or when to
 * save. */
#ifndef CONVOY_TRAIN_SNAPSHOT_H
#define CONVOY_TRAIN_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/ckpt.h"
#include "model/model.h"
#include "train/load.h"
#include "train/step.h"

#define SNAPSHOT_PARTS_MAX 3

struct snapshot_config {
    const struct model_dims *dims;
    const char *dir;           /* CHECKPOINT_DIR */
    int keep;                  /* CHECKPOINT_KEEP */
    const char *settings_json; /* see agree.h */
    const char *version;
    uint64_t seed, data_fingerprint;
    struct safetensors_beat beat;
    /* the run's plan: a checkpoint of so many is not read again, and so is verified when it is
     * found */
    int64_t steps;
    /* several ranks hold the step's state, or memory that is not the host's: it is given values
     * with step_write */
    bool is_spread;
};

/* Where a run stands. */
struct snapshot_place {
    int64_t step;    /* updates done */
    int64_t samples; /* number of the next sample */
    int64_t tokens;  /* seen */
    struct step_scale scale;
};

/* snapshot_target — where one part of a step's state is loaded to; put stays the caller's as long
 * as the target. */
struct snapshot_put {
    struct step *step;
    int part;
};
struct load_target snapshot_target(struct snapshot_put *put, bool is_spread);

struct snapshot; /* holds the folder's lock */
enum status snapshot_open(const struct snapshot_config *config, struct snapshot **out);
void snapshot_close(struct snapshot *snapshot); /* accepts NULL */
/* snapshot_find — the newest checkpoint that looks valid, kept open for snapshot_attach. *found_out
 * false: there is none.
 * Fails with ST_BAD_DATA when there are checkpoints but none is valid, with ST_BAD_SETTING when
 *   model or optimiser do not agree, with both; other differences are warned about. path:
 *   FILE_PATH_MAX. */
enum status snapshot_find(struct snapshot *snapshot, struct snapshot_place *place, bool *found_out,
                          char *path, size_t path_cap);
/* snapshot_set_aside — RESUME=never: checkpoints of an earlier run move to DIR/before-<number>/, so
 * that two runs never mix. */
enum status snapshot_set_aside(struct snapshot *snapshot);
/* snapshot_attach — what to save from now on; reads what snapshot_find found into it first, and
 * verifies it on the way: if it is damaged, the one before, and place and path change. The step is
 * borrowed until close. */
enum status snapshot_attach(struct snapshot *snapshot, struct step *step,
                            struct snapshot_place *place, char *path, size_t path_cap);
/* snapshot_save — the step's memory, or what was copied from it: copy holds its parts one behind
 * the other, each step_table's total_elems long; NULL: the step itself. beat NULL: the config's.
 * Any thread may call it, one at a time. */
enum status snapshot_save(struct snapshot *snapshot, const struct snapshot_place *place,
                          const float *copy, const struct safetensors_beat *beat, char *path,
                          size_t path_cap);

#endif
