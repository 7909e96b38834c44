/* step_scalars — makes an operation's struct step_scalars (cuda.h): the arguments that change from
 * step to step. Launchers and streams that replay recorded work (dev/cuda/graph.c) both use it, and
 * nothing else does, so both give the same bits. For C and C++. Must not know devices. */
#ifndef CONVOY_KERNELS_STEP_SCALARS_H
#define CONVOY_KERNELS_STEP_SCALARS_H

#include <math.h>
#include <string.h>

#include "kernels/cuda.h"

static inline struct step_scalars step_scalars_none(void)
{
    struct step_scalars scalars;
    memset(&scalars, 0, sizeof scalars);
    return scalars;
}

static inline struct step_scalars step_scalars_dropout(const struct dropout *d)
{
    struct step_scalars scalars = step_scalars_none();
    scalars.seed = d->seed, scalars.offset = d->offset;
    return scalars;
}

static inline struct step_scalars step_scalars_xent(const struct xent *a)
{
    struct step_scalars scalars = step_scalars_none();
    scalars.scale[0] = a->scale;
    return scalars;
}

static inline struct step_scalars step_scalars_xent_join(const struct xent_join *a)
{
    struct step_scalars scalars = step_scalars_none();
    scalars.scale[0] = a->scale;
    return scalars;
}

static inline struct step_scalars step_scalars_qa_xent(const struct qa_xent *a)
{
    struct step_scalars scalars = step_scalars_none();
    scalars.scale[0] = a->scale_start, scalars.scale[1] = a->scale_end;
    return scalars;
}

static inline struct step_scalars step_scalars_grad_scale(const struct grad_scale *a)
{
    struct step_scalars scalars = step_scalars_none();
    scalars.scale[0] = (float)a->loss_scale; /* a power of two: exact in float */
    return scalars;
}

static inline struct step_scalars step_scalars_adamw(const struct adamw *a)
{
    struct step_scalars scalars = step_scalars_none();
    scalars.lr = (float)a->lr;
    scalars.m_fix = (float)(1 / (1 - pow(a->beta1, (double)a->step)));
    scalars.v_fix = (float)(1 / (1 - pow(a->beta2, (double)a->step)));
    return scalars;
}

static inline struct step_scalars step_scalars_sgd(const struct sgd *a)
{
    struct step_scalars scalars = step_scalars_none();
    scalars.lr = (float)a->lr;
    scalars.is_first = a->step <= 1;
    return scalars;
}

#endif
