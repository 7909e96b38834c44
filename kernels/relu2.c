/* relu2 — the plain truth of the squared ReLU and its gradient. */
#include "kernels/relu2.h"

#include "kernels/cpu.h"

/* Uses a negation, so that a NaN stays a NaN. */
static double relu2_positive(double x) { return !(x <= 0) ? x : 0; }

void relu2_fwd_plain(const struct cpu *cpu, const struct relu2_fwd *a)
{
    (void)cpu;
    const float *x = a->x.data;
    for (int64_t i = 0; i < a->n; i++) {
        double r = relu2_positive(x[i]);
        ((float *)a->y.data)[i] = (float)(r * r);
    }
}

void relu2_bwd_plain(const struct cpu *cpu, const struct relu2_bwd *a)
{
    (void)cpu;
    const float *dy = a->dy.data, *x = a->x.data;
    for (int64_t i = 0; i < a->n; i++)
        ((float *)a->dx.data)[i] = (float)(dy[i] * 2 * relu2_positive(x[i]));
}
