/* schedule — see lr_schedule.h. */
#include "train/step/lr_schedule.h"

#include <math.h>

#include "base/assert.h"

static double interpolate_lr(double from, double to, double r) { return from + r * (to - from); }

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
        return interpolate_lr(lr, lr_min, r);
    case LR_SCHEDULE_KIND_WSD:
        if (s < fall)
            return lr;
        return s < steps ? interpolate_lr(lr, lr_min, (s - fall) / (steps - fall)) : lr_min;
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

/* ---- sizes that grow ---- */

int64_t step_warmup_at(const struct warmup *warmup, int64_t to, int64_t unit, int64_t s)
{
    if (s >= warmup->steps)
        return to;
    ASSERTF(s >= 0 && unit > 0 && warmup->from > 0 && warmup->from <= to,
            "step %lld unit %lld from %lld to %lld", (long long)s, (long long)unit,
            (long long)warmup->from, (long long)to);
    const __int128 units = (to - warmup->from) / unit;
    return warmup->from + unit * (int64_t)(units * s / warmup->steps);
}

int64_t step_samples_at(const struct step_config *c, int64_t step_i)
{
    return step_warmup_at(&c->batch_warmup, c->global_samples, c->batch_warmup.from, step_i);
}

int64_t step_samples_before(const struct step_config *c, int64_t steps)
{
    const int64_t rising = steps < c->batch_warmup.steps ? steps : c->batch_warmup.steps;
    __int128 samples = (__int128)(steps - rising) * c->global_samples;
    for (int64_t i = 0; i < rising; i++)
        samples += step_samples_at(c, i);
    return samples < INT64_MAX / 2 ? (int64_t)samples : INT64_MAX / 2;
}

int64_t step_count(const struct step_config *c, int64_t step_i, int64_t *samples)
{
    int64_t i = step_i;
    for (; i < c->batch_warmup.steps && *samples >= step_samples_at(c, i); i++)
        *samples -= step_samples_at(c, i);
    if (i < c->batch_warmup.steps)
        return i - step_i;
    const int64_t whole = *samples / c->global_samples;
    *samples %= c->global_samples;
    return i - step_i + whole;
}

bool step_has_first_key(const struct step_config *c)
{
    return c->masks_documents || c->window_warmup.steps > 0;
}

bool step_has_positions(const struct step_config *c)
{
    return c->restarts_positions && c->dims.features.position == MODEL_POSITION_LEARNED;
}

void step_set_reach(const struct step_config *c, struct batch *batch, int64_t step_i)
{
    batch_set_positions(batch);
    const struct warmup *window = &c->window_warmup;
    if (step_i < window->steps)
        batch_set_window(batch, step_warmup_at(window, c->seq_tokens, 1, step_i));
}
