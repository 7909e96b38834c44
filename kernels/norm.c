/* norm — the plain truth of LayerNorm and RMSNorm: one row after the other, sums in double. Must
 * not know threads or vectors. */
#include "kernels/norm.h"

#include <math.h>

#include "kernels/cpu.h"

/* 1/√(mean(x²) + eps) */
static double rms_rstd(const float *x, int64_t c, float eps)
{
    double squares = 0;
    for (int64_t i = 0; i < c; i++)
        squares += (double)x[i] * x[i];
    return 1 / sqrt(squares / (double)c + eps);
}

static double rms_row(float *y, const float *x, const float *w, int64_t c, float eps)
{
    double r = rms_rstd(x, c, eps);
    for (int64_t i = 0; i < c; i++)
        y[i] = (float)(w[i] * (x[i] * r));
    return r;
}

static void rms_fwd(const struct norm_fwd *a)
{
    for (int64_t n = 0; n < a->n; n++) {
        double r = rms_row((float *)a->y.data + n * a->c, (const float *)a->x.data + n * a->c,
                           a->w.data, a->c, a->eps);
        if (a->rstd.data)
            ((float *)a->rstd.data)[n] = (float)r;
    }
}

static void layer_fwd(const struct norm_fwd *a)
{
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

void norm_fwd_plain(const struct cpu *cpu, const struct norm_fwd *a)
{
    (void)cpu;
    if (a->kind == NORM_KIND_RMS)
        rms_fwd(a);
    else
        layer_fwd(a);
}

/* Returns a row's mean; 0 for RMSNorm. */
static double norm_mean(const struct norm_bwd *a, int64_t n)
{
    return a->kind == NORM_KIND_RMS ? 0 : ((const float *)a->mean.data)[n];
}

/* Computes dw and db: a column's sum over all rows. */
static void norm_bwd_params(const struct norm_bwd *a)
{
    float *dw = a->dw.data, *db = a->db.data;
    const float *dy = a->dy.data, *x = a->x.data, *rstd = a->rstd.data;
    for (int64_t c = 0; c < a->c; c++) {
        double w_sum = 0, b_sum = 0;
        for (int64_t n = 0; n < a->n; n++) {
            double g = dy[n * a->c + c];
            w_sum += g * (x[n * a->c + c] - norm_mean(a, n)) * rstd[n];
            b_sum += g;
        }
        dw[c] = (float)(w_sum + (a->accumulate ? dw[c] : 0));
        if (db)
            db[c] = (float)(b_sum + (a->accumulate ? db[c] : 0));
    }
}

static void norm_bwd_row(const struct norm_bwd *a, int64_t n)
{
    float *dx = (float *)a->dx.data + n * a->c;
    const float *dy = (const float *)a->dy.data + n * a->c, *w = a->w.data;
    const float *x = (const float *)a->x.data + n * a->c;
    const float *residual = a->dresidual.data ? (const float *)a->dresidual.data + n * a->c : NULL;
    double m = norm_mean(a, n), r = ((const float *)a->rstd.data)[n], g_mean = 0, gx_mean = 0;
    for (int64_t c = 0; c < a->c; c++) {
        double g = (double)dy[c] * w[c];
        g_mean += a->kind == NORM_KIND_RMS ? 0 : g / (double)a->c;
        gx_mean += g * (x[c] - m) * r / (double)a->c;
    }
    for (int64_t c = 0; c < a->c; c++) {
        double g = (double)dy[c] * w[c];
        double d = r * (g - g_mean - (x[c] - m) * r * gx_mean);
        dx[c] = (float)(d + (residual ? residual[c] : 0));
    }
}

/* Computes the parameters' gradients first, because dx may be written over dy. */
void norm_bwd_plain(const struct cpu *cpu, const struct norm_bwd *a)
{
    (void)cpu;
    norm_bwd_params(a);
    for (int64_t n = 0; n < a->n; n++)
        norm_bwd_row(a, n);
}

/* ---- each head of a row ---- */

void head_norm_fwd_plain(const struct cpu *cpu, const struct head_norm_fwd *a)
{
    (void)cpu;
    for (int64_t n = 0; n < a->n; n++)
        for (int64_t h = 0; h < a->heads; h++) {
            int64_t at = n * a->stride + h * a->d;
            rms_row((float *)a->y.data + at, (const float *)a->x.data + at, a->w.data, a->d,
                    a->eps);
        }
}

static double head_norm_dw(const struct head_norm_bwd *a, int64_t i)
{
    double sum = 0;
    for (int64_t n = 0; n < a->n; n++)
        for (int64_t h = 0; h < a->heads; h++) {
            int64_t at = n * a->stride + h * a->d;
            const float *dy = (const float *)a->dy.data + at, *x = (const float *)a->x.data + at;
            sum += dy[i] * (x[i] * rms_rstd(x, a->d, a->eps));
        }
    return sum;
}

static void head_norm_dx(const struct head_norm_bwd *a, int64_t at)
{
    float *dx = (float *)a->dx.data + at;
    const float *dy = (const float *)a->dy.data + at, *x = (const float *)a->x.data + at,
                *w = a->w.data;
    double r = rms_rstd(x, a->d, a->eps), gx_mean = 0;
    for (int64_t i = 0; i < a->d; i++)
        gx_mean += (double)dy[i] * w[i] * x[i] * r / (double)a->d;
    for (int64_t i = 0; i < a->d; i++)
        dx[i] = (float)(r * ((double)dy[i] * w[i] - x[i] * r * gx_mean));
}

void head_norm_bwd_plain(const struct cpu *cpu, const struct head_norm_bwd *a)
{
    (void)cpu;
    float *dw = a->dw.data;
    for (int64_t i = 0; i < a->d; i++)
        dw[i] = (float)(head_norm_dw(a, i) + (a->accumulate ? dw[i] : 0));
    for (int64_t n = 0; n < a->n; n++)
        for (int64_t h = 0; h < a->heads; h++)
            head_norm_dx(a, n * a->stride + h * a->d);
}
