/* gelu — the plain truth of both kinds of GELU (Hendrycks, Gimpel 2016), in double. */
#include "kernels/gelu.h"

#include <math.h>

#include "kernels/cpu.h"

static const double gelu_root = 0.79788456080286535588; /* √(2/π) */
static const double gelu_cubic = 0.044715;

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(gelu_root * (x + gelu_cubic * x * x * x)));
}

/* With t = tanh(u(x)): gelu' = ½(1+t) + ½x(1-t²)u'. */
static double gelu_tanh_grad(double x)
{
    double t = tanh(gelu_root * (x + gelu_cubic * x * x * x));
    double du = gelu_root * (1 + 3 * gelu_cubic * x * x);
    double slope = 0.5 * x * (1 - t * t);
    /* far from 0 the bell is 0, but x² may be infinite: 0·∞ must stay 0 */
    return 0.5 * (1 + t) + (slope == 0 ? 0 : slope * du);
}

/* Φ(x); erfc keeps its digits where erf is near -1. */
static double gelu_normal(double x) { return 0.5 * erfc(-M_SQRT1_2 * x); }

/* Φ(x) + x·φ(x), with the density φ = Φ' */
static double gelu_erf_grad(double x)
{
    return gelu_normal(x) + x * exp(-0.5 * x * x) * (0.5 * M_2_SQRTPI * M_SQRT1_2);
}

void gelu_fwd_plain(const struct cpu *cpu, const struct gelu_fwd *a)
{
    (void)cpu;
    float *y = a->y.data;
    const float *x = a->x.data;
    for (int64_t i = 0; i < a->n; i++)
        y[i] = (float)(a->kind == GELU_KIND_ERF ? x[i] * gelu_normal(x[i]) : gelu_tanh(x[i]));
}

void gelu_bwd_plain(const struct cpu *cpu, const struct gelu_bwd *a)
{
    (void)cpu;
    float *dx = a->dx.data;
    const float *dy = a->dy.data, *x = a->x.data;
    for (int64_t i = 0; i < a->n; i++)
        dx[i] = (float)(dy[i] *
                        (a->kind == GELU_KIND_ERF ? gelu_erf_grad(x[i]) : gelu_tanh_grad(x[i])));
}
