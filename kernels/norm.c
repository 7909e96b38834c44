/* norm — the plain truth of LayerNorm: one row after the other, sums in double. Must not know
 * threads or vectors. */
#include "kernels/norm.h"

#include <math.h>

#include "kernels/cpu.h"

void norm_fwd_plain(const struct cpu *cpu, const struct norm_fwd *a)
{
    (void)cpu;
    float *y = a->y.data, *mean = a->mean.data, *rstd = a->rstd.data;
    const float *x = a->x.data, *w = a->w.data, *b = a->b.data;
    for (int64_t n = 0; n < a->n; n++, x += a->c, y += a->c) {
        double m = 0, var = 0;
        for (int64_t c = 0; c < a->c; c++)
            m += x[c];
        m /= (double)a->c;
        for (int64_t c = 0; c < a->c; c++)
            var += (x[c] - m) * (x[c] - m);
        double r = 1 / sqrt(var / (double)a->c + a->eps);
        for (int64_t c = 0; c < a->c; c++)
            y[c] = (float)((x[c] - m) * r * w[c] + (b ? b[c] : 0));
        if (mean)
            mean[n] = (float)m;
        if (rstd)
            rstd[n] = (float)r;
    }
}

/* dw and db: a column's sum over all rows. */
static void norm_bwd_params(const struct norm_bwd *a)
{
    float *dw = a->dw.data, *db = a->db.data;
    const float *dy = a->dy.data, *x = a->x.data, *mean = a->mean.data, *rstd = a->rstd.data;
    for (int64_t c = 0; c < a->c; c++) {
        double w_sum = 0, b_sum = 0;
        for (int64_t n = 0; n < a->n; n++) {
            double g = dy[n * a->c + c];
            w_sum += g * (x[n * a->c + c] - (double)mean[n]) * rstd[n];
            b_sum += g;
        }
        dw[c] = (float)(w_sum + (a->accumulate ? dw[c] : 0));
        if (db)
            db[c] = (float)(b_sum + (a->accumulate ? db[c] : 0));
    }
}

/* The parameters' gradients come first, because dx may be written over dy. */
void norm_bwd_plain(const struct cpu *cpu, const struct norm_bwd *a)
{
    (void)cpu;
    norm_bwd_params(a);
    float *dx = a->dx.data;
    const float *dy = a->dy.data, *x = a->x.data, *w = a->w.data, *residual = a->dresidual.data;
    const float *mean = a->mean.data, *rstd = a->rstd.data;
    for (int64_t n = 0; n < a->n; n++) {
        int64_t row = n * a->c;
        double m = mean[n], r = rstd[n], g_mean = 0, gx_mean = 0;
        for (int64_t c = 0; c < a->c; c++) {
            double g = (double)dy[row + c] * w[c];
            g_mean += g / (double)a->c;
            gx_mean += g * (x[row + c] - m) * r / (double)a->c;
        }
        for (int64_t c = 0; c < a->c; c++) {
            double g = (double)dy[row + c] * w[c];
            double d = r * (g - g_mean - (x[row + c] - m) * r * gx_mean);
            dx[row + c] = (float)(d + (residual ? residual[row + c] : 0));
        }
    }
}
