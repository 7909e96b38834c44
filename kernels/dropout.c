/* dropout — the plain truth: every element draws its own random word. */
#include "kernels/dropout.h"

#include "kernels/cpu.h"

void drop_plain(const struct cpu *cpu, const struct drop *a)
{
    (void)cpu;
    float *y = a->y.data;
    const float *x = a->x.data;
    for (int64_t i = 0; i < a->n; i++) {
        float factor = dropout_factor(&a->dropout, i);
        y[i] = factor == 0 ? 0 : x[i] * factor;
    }
}
