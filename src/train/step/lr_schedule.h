/* schedule — the quantities that depend on the number of a step: the learning rate, the samples of
 * a step, and the window of attention. Pure, except that the window is written to a batch. */
#ifndef CONVOY_TRAIN_SCHEDULE_H
#define CONVOY_TRAIN_SCHEDULE_H

#include "train/step/step.h"

enum lr_schedule_kind {
    LR_SCHEDULE_KIND_COSINE,
    LR_SCHEDULE_KIND_CONSTANT,
    LR_SCHEDULE_KIND_LINEAR,
    LR_SCHEDULE_KIND_WSD
};

struct lr_schedule_config {
    enum lr_schedule_kind kind;
    double lr, lr_min;
    int64_t warmup_steps;
    int64_t steps;       /* steps of the whole run */
    int64_t decay_steps; /* wsd: length of the decay; 0: a fifth of the steps */
};

/* lr_schedule_at — returns the learning rate at step s, counted from 0. s lies between two steps if
 * a step of the run is no whole step of the schedule. While s < W = warmup_steps: lr·(s+1)/W, at
 * most lr. After that, with r = (s-W)/(steps-W):
 *   cosine    lr_min + ½(1 + cos πr)(lr - lr_min)
 *   linear    lr + r(lr_min - lr)
 *   wsd       lr until the last decay_steps of the steps after W, then linearly to lr_min
 *   constant  lr
 * For s ≥ steps it keeps the value of the end. */
double lr_schedule_at(const struct lr_schedule_config *config, double s);

/* The steps of a schedule whose run changed GLOBAL_BATCH. They keep the samples that a step had
 * when the run began, so the learning rate after some samples does not depend on the batches. */
struct lr_schedule_unit {
    int64_t samples; /* samples of a step of the schedule; 0: its steps are the run's */
    int64_t ahead;   /* samples to add to the run's, because smaller steps counted as whole ones */
};

/* Returns the step of the schedule after `step` steps of the run with `samples` samples. */
double lr_schedule_step(const struct lr_schedule_unit *unit, int64_t step, int64_t samples);
/* Returns the steps of the schedule of a run of `steps` steps and `samples` samples. */
int64_t lr_schedule_steps(const struct lr_schedule_unit *unit, int64_t steps, int64_t samples);

/* step_warmup_at — outside lr_schedule.c for tests: returns the size of a warm-up in step s,
 * counted from 0. It is `from` in the first step, grows on a straight line, and is `to` from step
 * `steps` on. It is always `from` plus a multiple of `unit`, rounded down. from in [1, to]; unit ≥
 * 1. Pure. */
int64_t step_warmup_at(const struct warmup *warmup, int64_t to, int64_t unit, int64_t s);

/* step_samples_at — returns the samples of step step_i: global_samples, or fewer in the batch
 * warm-up. */
int64_t step_samples_at(const struct step_config *config, int64_t step_i);
/* Returns the samples of the first `steps` steps of a run, at most INT64_MAX / 2. */
int64_t step_samples_before(const struct step_config *config, int64_t steps);
/* Returns the whole steps in *samples from step step_i on. *samples becomes the samples that are
 * left, fewer than the next step. */
int64_t step_count(const struct step_config *config, int64_t step_i, int64_t *samples);
/* Sets the batch's positions from its first keys, then the window of attention in a step, in the
 * first keys. INT64_MAX: no window. */
void step_set_reach(const struct step_config *config, struct batch *batch, int64_t step_i);
/* step_has_first_key — returns true if attention reads feed_batch.first_key in training. */
bool step_has_first_key(const struct step_config *config);
/* step_has_positions — returns true if the embedding reads the batch's positions. */
bool step_has_positions(const struct step_config *config);

#endif
