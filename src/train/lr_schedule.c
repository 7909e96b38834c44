/* lr_schedule — see lr_schedule.h. */
#include "train/lr_schedule.h"

#include <math.h>

#include "base/assert.h"

static double between(double from, double to, double r) { return from + r * (to - from); }

double lr_schedule_at(const struct lr_schedule_config *config, int64_t s)
{
    double lr = config->lr, lr_min = config->lr_min;
    int64_t w = config->warmup_steps, steps = config->steps;
    ASSERTF(s >= 0 && w >= 0, "s %lld warmup %lld", (long long)s, (long long)w);
    if (s < w)
        return lr * (double)(s + 1) / (double)w;
    double r = s < steps ? (double)(s - w) / (double)(steps - w) : 1;
    int64_t fall = steps - (config->decay_steps > 0 ? config->decay_steps : steps / 5);
    fall = fall > w ? fall : w; /* wsd: where it begins to fall */
    switch (config->kind) {
    case LR_SCHEDULE_KIND_CONSTANT:
        return lr;
    case LR_SCHEDULE_KIND_LINEAR:
        return between(lr, lr_min, r);
    case LR_SCHEDULE_KIND_WSD:
        if (s < fall)
            return lr;
        return s < steps ? between(lr, lr_min, (double)(s - fall) / (double)(steps - fall))
                         : lr_min;
    case LR_SCHEDULE_KIND_COSINE:
        break;
    }
    return lr_min + 0.5 * (1 + cos(3.14159265358979323846 * r)) * (lr - lr_min);
}
