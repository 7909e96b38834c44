/* normuon — the plain truth of the division by a neuron's root mean square, in double. */
#include "kernels/normuon.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/grad_scale.h"

/* neuron — n elements, `step` apart. */
static void neuron(const struct normuon *a, float *x, int64_t n, int64_t step, float *v)
{
    double squares = 0;
    for (int64_t j = 0; j < n; j++)
        squares += (double)x[j * step] * x[j * step];
    *v = (float)(a->beta2 * *v + (1 - a->beta2) * squares / (double)n);
    for (int64_t j = 0; j < n; j++)
        x[j * step] = (float)(x[j * step] / (sqrt((double)*v) + a->eps));
}

void normuon_plain(const struct cpu *cpu, const struct normuon *a)
{
    (void)cpu;
    float *x = a->x.data, *v = a->v.data;
    if (isnan(grad_scale_get(a->grad_scale.data)))
        return;
    for (int64_t i = 0; i < (a->is_by_column ? a->columns : a->rows); i++)
        if (a->is_by_column)
            neuron(a, x + i, a->rows, a->columns, v + i);
        else
            neuron(a, x + i * a->columns, a->columns, 1, v + i);
}
