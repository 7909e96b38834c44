/* check_soak — stage 5 of `convoy check`: real training. A small model is trained first on each
 * device separately, then by the workers of each node together, then by all ranks, repeating the
 * same steps from the same state. Equal steps must give equal bits, and replicas must hold equal
 * weights. A difference is silent corruption, and the row names the rank, its device and the first
 * value that differed.
 *
 *   differs from the same device's first round   this device (or its node's memory) is wrong
 *   differs from other replicas                  this rank is wrong, if most ranks with its kind of
 *                                                device agree
 *   replicas agree, but rounds differ            all ranks got the same wrong sum: the rank is
 *                                                unknown
 *
 * The stage also checks that a checkpoint is restored after the process that wrote it was killed,
 * that each sample of a step is trained on once, and that rank 0's weights reach all ranks. Must
 * not know processes and settings. */
#ifndef CONVOY_NODE_CHECK_SOAK_H
#define CONVOY_NODE_CHECK_SOAK_H

#include "check/check.h"
#include "model/model.h"

/* For tests: the training in which this rank inverts a bit of a weight, as FAULT=flip does. */
enum check_soak_flip {
    CHECK_SOAK_FLIP_NONE,
    CHECK_SOAK_FLIP_ALONE, /* once, in the second repetition of the training of one rank */
    /* in every repetition of that training, like a broken arithmetic unit */
    CHECK_SOAK_FLIP_ALWAYS,
    CHECK_SOAK_FLIP_GROUP, /* once, in training with all ranks */
    /* once, in training with all ranks, in a gradient instead of a weight */
    CHECK_SOAK_FLIP_GRADIENT
};

struct check_soak_config {
    const struct check_config *check; /* comm, place, dev, depth, dir, progress */
    enum dtype dtype;                 /* type of the compute copy: PRECISION */
    enum check_soak_flip flip;
};

/* check_soak_run — runs the stage and adds the rows of this rank. Collective. ms: milliseconds of
 * training; 0: the smallest number of steps that can be compared. A progress callback that fails
 * ends it. */
enum status check_soak_run(const struct check_soak_config *config, int64_t ms,
                           struct check_rows *rows);

/* check_soak_restart — checks a restart on one rank; adds one row. A forked process trains a model
 * on a CPU, saves after two steps, trains a third one, and is killed while it saves again. Another
 * process resumes from that checkpoint: the restored state and the state after the third step must
 * have the bits of the first process. Uses a folder of its own below check->dir, which it removes.
 * SKIPPED without a folder. */
enum status check_soak_restart(const struct check_config *check, const struct model_dims *dims,
                               struct check_rows *rows);

#endif
