/* now — what of an operation's arguments changes from step to step (struct cuda_now): the one place
 * that makes it of them, for launchers and for who replays them. For C and C++. Must not know
 * devices. */
#ifndef CONVOY_KERNELS_NOW_H
#define CONVOY_KERNELS_NOW_H

#include <math.h>
#include <string.h>

#include "kernels/cuda.h"

static inline struct cuda_now now_none(void)
{
    struct cuda_now now;
    memset(&now, 0, sizeof now);
    return now;
}

static inline struct cuda_now now_dropout(const struct dropout *d)
{
    struct cuda_now now = now_none();
    now.seed = d->seed, now.offset = d->offset;
    return now;
}

static inline struct cuda_now now_xent(const struct xent *a)
{
    struct cuda_now now = now_none();
    now.scale[0] = a->scale;
    return now;
}

static inline struct cuda_now now_qa_xent(const struct qa_xent *a)
{
    struct cuda_now now = now_none();
    now.scale[0] = a->scale_start, now.scale[1] = a->scale_end;
    return now;
}

static inline struct cuda_now now_judge(const struct judge *a)
{
    struct cuda_now now = now_none();
    now.scale[0] = (float)a->loss_scale; /* a power of two: nothing is lost */
    return now;
}

static inline struct cuda_now now_adamw(const struct adamw *a)
{
    struct cuda_now now = now_none();
    now.lr = (float)a->lr;
    now.m_fix = (float)(1 / (1 - pow(a->beta1, (double)a->step)));
    now.v_fix = (float)(1 / (1 - pow(a->beta2, (double)a->step)));
    return now;
}

static inline struct cuda_now now_sgd(const struct sgd *a)
{
    struct cuda_now now = now_none();
    now.lr = (float)a->lr;
    now.is_first = a->step <= 1;
    return now;
}

#endif
