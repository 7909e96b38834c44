/* lr_schedule — see lr_schedule.h. */
#include "train/step/lr_schedule.h"

#include <math.h>

#include "base/assert.h"

static double between(double from, double to, double r) { return from + r * (to - from); }

double lr_schedule_at(const struct lr_schedule_config *config, double s)
{
    double lr = config->lr, lr_min = config->lr_min;
    int64_t all = config->steps;
    double w = (double)config->warmup_steps, steps = (double)all;
    ASSERTF(s >= 0 && w >= 0, "s %g warmup %g", s, w);
    if (s < w)
        return lr * (s + 1 < w ? s + 1 : w) / w;
    double r = s < steps ? (s - w) / (steps - w) : 1;
    double fall = (double)(all - (config->decay_steps > 0 ? config->decay_steps : all / 5));
    fall = fall > w ? fall : w; /* wsd: where it begins to fall */
    switch (config->kind) {
    case LR_SCHEDULE_KIND_CONSTANT:
        return lr;
    case LR_SCHEDULE_KIND_LINEAR:
        return between(lr, lr_min, r);
    case LR_SCHEDULE_KIND_WSD:
        if (s < fall)
            return lr;
        return s < steps ? between(lr, lr_min, (s - fall) / (steps - fall)) : lr_min;
    case LR_SCHEDULE_KIND_COSINE:
        break;
    }
    return lr_min + 0.5 * (1 + cos(3.14159265358979323846 * r)) * (lr - lr_min);
}

double lr_schedule_step(const struct lr_schedule_unit *unit, int64_t step, int64_t samples)
{
    if (unit->samples == 0)
        return (double)step;
    return (double)(samples + unit->ahead) / (double)unit->samples;
}

int64_t lr_schedule_steps(const struct lr_schedule_unit *unit, int64_t steps, int64_t samples)
{
    if (unit->samples == 0)
        return steps;
    return (int64_t)(((__int128)samples + unit->ahead) / unit->samples);
}
