/* rate — the learning-rate schedules of contract §3. Pure. s counts from 0. */
#ifndef CONVOY_TRAIN_RATE_H
#define CONVOY_TRAIN_RATE_H

#include <stdint.h>

enum rate_schedule {
    RATE_SCHEDULE_COSINE,
    RATE_SCHEDULE_CONSTANT,
    RATE_SCHEDULE_LINEAR,
    RATE_SCHEDULE_WSD
};

struct rate_config {
    enum rate_schedule schedule;
    double lr, lr_min;
    int64_t warmup_steps;
    int64_t steps; /* planned */
};

/* rate_at — s < W: lr·(s+1)/W; after that with r = (s-W)/(steps-W): cosine min + ½(1+cos
 * πr)(lr-min); linear lr + r(min-lr); wsd: lr until the last fifth of the steps, then linear to
 * min; constant lr. s ≥ steps stays at the end's value. */
double rate_at(const struct rate_config *config, int64_t s);

#endif
