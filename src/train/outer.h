/* outer — the outer update of LOCAL_STEPS: Nesterov momentum on what replicas have changed since
 * the last one (DiLoCo, Douillard et al. 2023, algorithm 1). Pure arithmetic on host memory. It
 * must not know ranks, devices or steps.
 *
 * With x the outer parameters, and y the parameters of a replica after its own steps:
 *   d = mean over the replicas of (x - y)     the outer gradient
 *   v = momentum · v + d
 *   x = x - lr · (d + momentum · v)
 * The same as torch.optim.SGD(nesterov=True, dampening=0). With lr 1 and momentum 0, x becomes the
 * mean of the y, within rounding. */
#ifndef CONVOY_TRAIN_OUTER_H
#define CONVOY_TRAIN_OUTER_H

#include <stdint.h>

struct outer_rule {
    double lr, momentum; /* lr above 0; momentum in [0, 1) */
};

/* All of `elems` elements, f32:
 * outer_gradient — y becomes x - y.
 * outer_round — Rounds d to bf16, as it travels; outer_widen is the way back.
 * outer_mean — a sum over so many replicas becomes d.
 * outer_update — updates x and v. */
void outer_gradient(const float *x, float *y, int64_t elems);
void outer_round(const float *d, uint16_t *half, int64_t elems);
void outer_widen(const uint16_t *half, float *d, int64_t elems);
void outer_mean(int replicas, float *sum, int64_t elems);
void outer_update(const struct outer_rule *rule, float *x, float *v, const float *d, int64_t elems);

#endif
