/* check_soak — stage 5 of `convoy check`: real training. A small model is trained on each device
 * alone, by the workers of each node together, and by all ranks; the same steps again and again
 * from the same state. Equal steps must give equal bits, and replicas must hold equal weights:
 * a difference is silent corruption, and the row names the rank, its device and what differed
 * first.
 *
 *   again on the same device   other bits: this device (or its node's memory)
 *   beside other replicas      other bits than most ranks with the same kind of device: this rank
 *   neither, but other bits    all ranks got the same wrong sum: no rank can be named
 *
 * Also: a checkpoint is written, its process killed, and it is restored; each sample of a step is
 * trained on once; rank 0's weights reach all ranks. Must not know processes and settings. */
#ifndef CONVOY_NODE_CHECK_SOAK_H
#define CONVOY_NODE_CHECK_SOAK_H

#include "check/check.h"
#include "model/model.h"

/* For tests: where this rank inverts a bit of a weight, as FAULT=flip does. */
enum check_soak_flip {
    CHECK_SOAK_FLIP_NONE,
    CHECK_SOAK_FLIP_ALONE,  /* once, in the second repetition of training alone */
    CHECK_SOAK_FLIP_ALWAYS, /* in every repetition of training alone: a broken unit of arithmetic */
    CHECK_SOAK_FLIP_GROUP,  /* once, in training with all ranks */
    CHECK_SOAK_FLIP_SAMPLES /* no bit: rank 0's samples in the first repetition */
};

struct check_soak_config {
    const struct check_config *check; /* comm, place, dev, depth, dir, progress */
    enum dtype dtype;                 /* of the compute copy: PRECISION */
    enum check_soak_flip flip;
};

/* check_soak_run — collective; rows of this rank. ms 0: as few steps as compare anything. Else so
 * many milliseconds of training. A progress callback that fails ends it. */
enum status check_soak_run(const struct check_soak_config *config, int64_t ms,
                           struct check_rows *rows);

/* check_soak_restart — for one rank; adds one row. A process that it forks trains a model on a CPU,
 * saves after two steps, trains a third, and kills itself while it saves again. This process finds
 * the checkpoint, restores it, compares all bits with what the other process had, and trains the
 * third step to the same weights. In a folder of its own below check->dir, which is removed.
 * SKIPPED without a folder. */
enum status check_soak_restart(const struct check_config *check, const struct model_dims *dims,
                               struct check_rows *rows);

#endif
