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

/* lr_schedule_at — the learning rate of step s, counted from 0. While s < W = warmup_steps:
 * lr·(s+1)/W. After that, with r = (s-W)/(steps-W):
 *   cosine    lr_min + ½(1 + cos πr)(lr - lr_min)
 *   linear    lr + r(lr_min - lr)
 *   wsd       lr until the last decay_steps of those behind W, then linearly to lr_min
 *   constant  lr
 * For s ≥ steps it keeps the value of the end. */
double lr_schedule_at(const struct lr_schedule_config *config, int64_t s);

#endif
