/* lr_schedule — the learning rate of each step. Pure. */
#ifndef CONVOY_TRAIN_LR_SCHEDULE_H
#define CONVOY_TRAIN_LR_SCHEDULE_H

#include <stdint.h>

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
    int64_t steps;       /* of the whole run */
    int64_t decay_steps; /* wsd: of the fall; 0: a fifth of the steps */
};

/* lr_schedule_at — the learning rate at step s, counted from 0 and between two steps if a step of
 * the run is no whole step of the schedule. While s < W = warmup_steps: lr·(s+1)/W, at most lr.
 * After that, with r = (s-W)/(steps-W):
 *   cosine    lr_min + ½(1 + cos πr)(lr - lr_min)
 *   linear    lr + r(lr_min - lr)
 *   wsd       lr until the last decay_steps of those behind W, then linearly to lr_min
 *   constant  lr
 * For s ≥ steps it keeps the value of the end. */
double lr_schedule_at(const struct lr_schedule_config *config, double s);

/* The steps of a schedule whose run changed GLOBAL_BATCH. They keep the samples that a step had
 * when the run began, so the learning rate after some samples does not depend on the batches. */
struct lr_schedule_unit {
    int64_t samples; /* samples of a step of the schedule; 0: its steps are the run's */
    int64_t ahead;   /* samples to add to the run's, because smaller steps counted as whole ones */
};

/* Returns where the schedule is when the run has done `step` steps with `samples` samples. */
double lr_schedule_step(const struct lr_schedule_unit *unit, int64_t step, int64_t samples);
/* Returns the steps of the schedule of a run of `steps` steps and `samples` samples. */
int64_t lr_schedule_steps(const struct lr_schedule_unit *unit, int64_t steps, int64_t samples);

#endif
