/* reduce — the plain truth of whole-tensor sums: one double, front to back. */
#include "kernels/reduce.h"

#include "kernels/cpu.h"

void sum_plain(const struct cpu *cpu, const struct sum *a)
{
    (void)cpu;
    const float *x = a->x.data;
    double *out = a->out.data, total = 0;
    for (int64_t i = 0; i < a->n; i++)
        total += x[i];
    *out = a->accumulate ? *out + total : total;
}

void sumsq_plain(const struct cpu *cpu, const struct sumsq *a)
{
    (void)cpu;
    const float *x = a->x.data;
    double *out = a->out.data, total = 0;
    for (int64_t i = 0; i < a->n; i++)
        total += (double)x[i] * x[i];
    *out = a->accumulate ? *out + total : total;
}
