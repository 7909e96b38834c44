/* adamw — the plain truth of both optimisers: the formulas as printed, in double, stored as float.
 * */
#include "kernels/adamw.h"

#include <math.h>
#include <string.h>

#include "kernels/cast.h"
#include "kernels/cpu.h"
#include "kernels/grad_scale.h" /* grad_scale_get */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* add_bits — adds the bits of element i to the sums; m, v NULL: no such array. */
static void add_bits(uint32_t sum[3], const float *p, const float *m, const float *v, int64_t i)
{
    sum[0] += bits_of(p[i]);
    sum[1] += m ? bits_of(m[i]) : 0;
    sum[2] += v ? bits_of(v[i]) : 0;
}

void adamw_plain(const struct cpu *cpu, const struct adamw *a)
{
    double scale = grad_scale_get(a->grad_scale.data);
    if (isnan(scale))
        return;
    float *p = a->p.data, *m = a->m.data, *v = a->v.data;
    const float *grad = a->g.data;
    double m_fix = 1 - pow(a->beta1, (double)a->step), v_fix = 1 - pow(a->beta2, (double)a->step);
    if (a->sums)
        a->sums->updates++;
    for (int64_t s = 0; s < a->spans_n; s++) {
        const struct optim_span *span = &a->spans[s];
        for (int64_t i = span->offset; i < span->offset + span->elems; i++) {
            double g = grad[i] * scale;
            if (a->sums)
                add_bits(a->sums->read, p, m, v, i);
            double m_new = a->beta1 * m[i] + (1 - a->beta1) * g;
            double v_new = a->beta2 * v[i] + (1 - a->beta2) * g * g;
            double p_new = p[i] * (1 - a->lr * span->weight_decay);
            p_new -= a->lr * (m_new / m_fix) / (sqrt(v_new / v_fix) + a->eps);
            m[i] = (float)m_new;
            v[i] = (float)v_new;
            p[i] = (float)p_new;
            if (a->sums)
                add_bits(a->sums->written, p, m, v, i);
        }
        if (a->copy.data)
            cast_plain(cpu, &(struct cast){tensor_at(a->copy, span->offset),
                                           tensor_at(a->p, span->offset), span->elems});
    }
}

void sgd_plain(const struct cpu *cpu, const struct sgd *a)
{
    (void)cpu;
    double scale = grad_scale_get(a->grad_scale.data);
    if (isnan(scale))
        return;
    float *p = a->p.data, *m = a->momentum != 0 ? a->m.data : NULL;
    const float *grad = a->g.data;
    if (a->sums)
        a->sums->updates++;
    for (int64_t s = 0; s < a->spans_n; s++) {
        const struct optim_span *span = &a->spans[s];
        for (int64_t i = span->offset; i < span->offset + span->elems; i++) {
            double step = grad[i] * scale + span->weight_decay * (double)p[i];
            if (a->sums)
                add_bits(a->sums->read, p, m, NULL, i);
            if (m) {
                step += a->step > 1 ? a->momentum * m[i] : 0;
                m[i] = (float)step;
            }
            p[i] = (float)(p[i] - a->lr * step);
            if (a->sums)
                add_bits(a->sums->written, p, m, NULL, i);
        }
    }
}
