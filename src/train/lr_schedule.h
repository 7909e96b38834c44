/* lr_schedule — the learning-lr_schedule schedules of contract §3. Pure. s counts from 0. */
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
    int64_t steps; /* planned */
};

/* lr_schedule_at — s < W: lr·(s+1)/W; after that with r = (s-W)/(steps-W): cosine min + ½(1+cos
 * πr)(lr-min); linear lr + r(min-lr); wsd: lr until the last fifth of the steps, then linear to
 * min; constant lr. s ≥ steps stays at the end's value. */
double lr_schedule_at(const struct lr_schedule_config *config, int64_t s);

#endif
