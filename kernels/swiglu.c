/* swiglu — the plain truth of the gated activation and its gradient, in double. */
#include "kernels/swiglu.h"

#include <math.h>

#include "kernels/cpu.h"

static double swiglu_sigmoid(double g) { return 1 / (1 + exp(-g)); }

void swiglu_fwd_plain(const struct cpu *cpu, const struct swiglu_fwd *a)
{
    (void)cpu;
    float *y = a->y.data;
    const float *g = a->gu.data, *u = g + a->f;
    for (int64_t n = 0; n < a->n; n++, y += a->f, g += 2 * a->f, u += 2 * a->f)
        for (int64_t i = 0; i < a->f; i++)
            y[i] = (float)(g[i] * swiglu_sigmoid(g[i]) * u[i]);
}

void swiglu_bwd_plain(const struct cpu *cpu, const struct swiglu_bwd *a)
{
    (void)cpu;
    for (int64_t n = 0; n < a->n; n++) {
        float *dg = (float *)a->dgu.data + n * 2 * a->f, *du = dg + a->f;
        const float *g = (const float *)a->gu.data + n * 2 * a->f, *u = g + a->f;
        const float *dy = (const float *)a->dy.data + n * a->f;
        for (int64_t i = 0; i < a->f; i++) {
            double s = swiglu_sigmoid(g[i]);
            dg[i] = (float)((double)dy[i] * u[i] * s * (1 + g[i] * (1 - s)));
            du[i] = (float)(dy[i] * g[i] * s);
        }
    }
}
