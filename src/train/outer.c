/* outer — see outer.h. */
#include "train/outer.h"

#include "kernels/bf16.h"

void outer_gradient(const float *x, float *y, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        y[i] = x[i] - y[i];
}

void outer_round(const float *d, uint16_t *half, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        half[i] = bf16_from_float(d[i]);
}

void outer_widen(const uint16_t *half, float *d, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        d[i] = bf16_to_float(half[i]);
}

void outer_mean(int replicas, float *sum, int64_t elems)
{
    const float share = 1 / (float)replicas;
    for (int64_t i = 0; i < elems; i++)
        sum[i] *= share;
}

void outer_update(const struct outer_rule *rule, float *x, float *v, const float *d, int64_t elems)
{
    const float lr = (float)rule->lr, momentum = (float)rule->momentum;
    for (int64_t i = 0; i < elems; i++) {
        v[i] = momentum * v[i] + d[i];
        x[i] -= lr * (d[i] + momentum * v[i]);
    }
}
