/* gelu — the plain truth of the tanh form of GELU (Hendrycks, Gimpel 2016), in double. */
#include "kernels/gelu.h"

#include <math.h>

#include "kernels/cpu.h"

static const double gelu_root = 0.79788456080286535588; /* √(2/π) */
static const double gelu_cubic = 0.044715;

void gelu_fwd_plain(const struct cpu *cpu, const struct gelu_fwd *a)
{
    (void)cpu;
    float *y = a->y.data;
    const float *in = a->x.data;
    for (int64_t i = 0; i < a->n; i++) {
        double x = in[i];
        y[i] = (float)(0.5 * x * (1 + tanh(gelu_root * (x + gelu_cubic * x * x * x))));
    }
}

/* With t = tanh(u(x)): gelu' = ½(1+t) + ½x(1-t²)u'. */
void gelu_bwd_plain(const struct cpu *cpu, const struct gelu_bwd *a)
{
    (void)cpu;
    float *dx = a->dx.data;
    const float *dy = a->dy.data, *in = a->x.data;
    for (int64_t i = 0; i < a->n; i++) {
        double x = in[i];
        double t = tanh(gelu_root * (x + gelu_cubic * x * x * x));
        double du = gelu_root * (1 + 3 * gelu_cubic * x * x);
        double slope = 0.5 * x * (1 - t * t);
        /* far from 0 the bell is 0, but x² may be infinite: 0·∞ must stay 0 */
        dx[i] = (float)(dy[i] * (0.5 * (1 + t) + (slope == 0 ? 0 : slope * du)));
    }
}
