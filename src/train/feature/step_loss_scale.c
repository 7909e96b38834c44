/* step_loss_scale — changes the loss scale of f16 (step.h). All ranks have the same loss and norm,
 * so all of them change it alike. A feature (step/feature.h): the step itself has only the
 * factor. */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/step/feature.h"

struct scaling {
    struct step_loss_scale *scale; /* the step's loss scale */
    struct step_loss_scale begun;  /* scale at the beginning of the step in progress */
};

static enum status begin(void *self, struct step_now *now)
{
    struct scaling *own = self;
    (void)now;
    own->begun = *own->scale;
    return ST_OK;
}

/* halve — Repeats the step with half the factor if the gradient is infinite but the loss finite: it
 * may only be too large for the dtype. */
static enum status halve(void *self, struct step_now *now)
{
    struct step_loss_scale *scale = ((struct scaling *)self)->scale;
    if (isfinite(now->r->grad_norm) || !isfinite(now->r->loss) || scale->factor <= 1)
        return ST_OK;
    *scale = (struct step_loss_scale){scale->factor / 2, 0};
    LOG_INFO("step %lld: gradients overflow; the step runs again with loss scale %g",
             (long long)now->step_i + 1, scale->factor);
    now->r->retries++;
    now->decision = STEP_DECISION_REPEAT;
    return ST_OK;
}

/* grow — Doubles the factor after many steps without an overflow. A step without an update leaves
 * it as it was. */
static enum status grow(void *self, struct step_now *now)
{
    struct scaling *own = self;
    struct step_loss_scale *scale = own->scale;
    const double factor = scale->factor;
    if (now->decision == STEP_DECISION_SKIP)
        *scale = own->begun;
    else if (factor != 0 && ++scale->steps >= STEP_LOSS_SCALE_GROWTH_STEPS)
        *scale = (struct step_loss_scale){factor < STEP_LOSS_SCALE_MAX ? 2 * factor : factor, 0};
    return ST_OK;
}

static const struct step_feature loss_scale = {
    .name = "loss scale",
    .phase = {[STEP_PHASE_BEGIN] = begin, [STEP_PHASE_REDUCE] = halve, [STEP_PHASE_END] = grow},
    .close = free};

enum status step_loss_scale_add(struct step_core *s)
{
    struct scaling *own = memory_new(1, sizeof *own);
    own->scale = step_loss_scale_of(s->step);
    own->scale->factor = s->config.store.dtype == DTYPE_F16 ? STEP_LOSS_SCALE_INIT : 0;
    step_feature_add(s, &loss_scale, own);
    return ST_OK;
}

struct step_loss_scale step_loss_scale(const struct step *step)
{
    return *((const struct scaling *)step_feature_find(step, &loss_scale))->scale;
}

void step_loss_scale_set(struct step *step, struct step_loss_scale scale)
{
    struct step_loss_scale *now = step_loss_scale_of(step);
    if (now->factor > 0 && scale.factor >= 1)
        *now = scale;
}
