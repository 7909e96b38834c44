/* pace — the speed of the last steps, and the time left at that speed. Pure. It must not know
 * clocks. */
#ifndef CONVOY_TRAIN_PACE_H
#define CONVOY_TRAIN_PACE_H

#include <stdint.h>

/* steps in the mean: few enough to follow a change, enough to be steady */
#define PACE_KEPT 20

struct pace {
    double ms[PACE_KEPT]; /* ring buffer */
    int64_t n;            /* number of steps added */
};

void pace_add(struct pace *pace, double step_ms);

/* pace_mean_ms — public for tests; NAN before the first step. */
double pace_mean_ms(const struct pace *pace);

/* step_amount: tokens or operations per step; NAN before the first step */
double pace_per_second(const struct pace *pace, double step_amount);
/* NAN before the first step */
double pace_eta_seconds(const struct pace *pace, int64_t steps_left);

#endif
