/* outer — see outer.h. */
#include "train/outer.h"

void outer_gradient(const float *x, float *y, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        y[i] = x[i] - y[i];
}

void outer_update(const struct outer_rule *rule, float *x, float *v, const float *sum,
                  int64_t elems)
{
    const float lr = (float)rule->lr, momentum = (float)rule->momentum,
                share = 1 / (float)rule->replicas;
    for (int64_t i = 0; i < elems; i++) {
        const float d = sum[i] * share;
        v[i] = momentum * v[i] + d;
        x[i] -= lr * (d + momentum * v[i]);
    }
}
