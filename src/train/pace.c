/* pace — see pace.h. */
#include "train/pace.h"

#include <math.h>

void pace_add(struct pace *pace, double step_ms)
{
    pace->ms[pace->n % PACE_KEPT] = step_ms;
    pace->n++;
}

double pace_mean_ms(const struct pace *pace)
{
    int64_t n = pace->n < PACE_KEPT ? pace->n : PACE_KEPT;
    if (n == 0)
        return NAN;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += pace->ms[i];
    return sum / (double)n;
}

double pace_per_second(const struct pace *pace, double step_amount)
{
    double ms = pace_mean_ms(pace);
    return ms > 0 ? step_amount * 1000 / ms : NAN;
}

double pace_eta_seconds(const struct pace *pace, int64_t steps_left)
{
    return pace_mean_ms(pace) / 1000 * (double)steps_left;
}
