/* branch_add — the plain truth: one element after the other, in double. */
#include "kernels/branch_add.h"

#include "kernels/cpu.h"
#include "kernels/dropout.h"

void branch_add_plain(const struct cpu *cpu, const struct branch_add *a)
{
    (void)cpu;
    float *y = a->y.data;
    const float *x = a->x.data, *b = a->b.data, *residual = a->residual.data;
    for (int64_t i = 0; i < a->n * a->c; i++) {
        double factor = dropout_factor(&a->dropout, i), sum = x[i];
        if (b)
            sum += b[i % a->c];
        y[i] = (float)(factor == 0 ? residual[i] : residual[i] + factor * sum);
    }
}
