/* pace — how fast the last steps were, and what that means for the rest. Pure; must not know
 * clocks. */
#ifndef CONVOY_TRAIN_PACE_H
#define CONVOY_TRAIN_PACE_H

#include <stdint.h>

/* steps in the mean: short enough to follow a change, long enough to be calm */
#define PACE_KEPT 20

struct pace {
    double ms[PACE_KEPT]; /* ring */
    int64_t n;            /* added so far */
};

void pace_add(struct pace *pace, double step_ms);
double pace_mean_ms(const struct pace *pace); /* NAN before the first step */
/* tokens, operations …; NAN before the first step */
double pace_per_second(const struct pace *pace, double step_amount);
/* NAN before the first step */
double pace_eta_seconds(const struct pace *pace, int64_t steps_left);

#endif
