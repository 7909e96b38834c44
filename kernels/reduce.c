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

static double sum_squares(const float *x, int64_t n)
{
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += (double)x[i] * x[i];
    return total;
}

void sumsq_plain(const struct cpu *cpu, const struct sumsq *a)
{
    (void)cpu;
    double *out = a->out.data;
    if (!a->by_block) {
        *out = (a->accumulate ? *out : 0) + sum_squares(a->x.data, a->n);
        return;
    }
    for (int64_t i = 0, each = REDUCE_BLOCK_ELEMS; i < a->n; i += each)
        out[i / each] =
            sum_squares((const float *)a->x.data + i, a->n - i < each ? a->n - i : each);
}
