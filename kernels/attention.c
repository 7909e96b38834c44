/* attention — the plain truth of causal attention, one query after the other, in double.
 *
 * A query's row of probabilities (T doubles) and a head's dk, dv (2·T·D doubles) lie in cpu->shared
 * (head width 64: up to 32512 tokens). Must not know tiles, threads or vectors. */
#include "kernels/attention.h"

#include <math.h>

#include "base/assert.h"
#include "kernels/cpu.h"
#include "kernels/dropout.h"

static double attention_dot(const float *a, const float *b, int64_t d)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* One query: scores into p (-inf where hidden), then probabilities. Returns logΣexp, -inf when no
 * key is seen. */
static double attention_softmax(double *p, const float *q, const float *k, int64_t stride,
                                const uint8_t *mask, int64_t i, int64_t d)
{
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= i; j++) {
        p[j] = mask && !mask[j] ? -INFINITY : attention_dot(q, k + j * stride, d) / sqrt((double)d);
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = 0; j <= i; j++)
        sum += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - max);
    for (int64_t j = 0; j <= i; j++)
        p[j] = sum == 0 ? 0 : p[j] / sum;
    return sum == 0 ? -INFINITY : max + log(sum);
}

/* out = Σ_j p_j v_j over n keys. */
static void attention_values(float *out, const double *p, const float *v, int64_t stride, int64_t n,
                             int64_t d)
{
    for (int64_t e = 0; e < d; e++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += p[j] == 0 ? 0 : p[j] * v[j * stride + e];
        out[e] = (float)sum;
    }
}

void attention_fwd_plain(const struct cpu *cpu, const struct attention_fwd *a)
{
    int64_t c = a->h * a->d, stride = 3 * c;
    double *p = (double *)(void *)cpu->shared;
    ASSERTF((size_t)a->t * sizeof *p <= CPU_SHARED_BYTES, "%lld tokens", (long long)a->t);
    for (int64_t bh = 0; bh < a->b * a->h; bh++) {
        int64_t b = bh / a->h, h = bh % a->h;
        const float *q = (const float *)a->qkv.data + b * a->t * stride + h * a->d, *k = q + c,
                    *v = k + c;
        const uint8_t *mask = a->mask.data ? (const uint8_t *)a->mask.data + b * a->t : NULL;
        float *out = (float *)a->out.data + b * a->t * c + h * a->d,
              *lse = (float *)a->lse.data + bh * a->t;
        for (int64_t i = 0; i < a->t; i++) {
            lse[i] = (float)attention_softmax(p, q + i * stride, k, stride, mask, i, a->d);
            for (int64_t j = 0; j <= i; j++)
                p[j] *= dropout_factor(&a->dropout, (bh * a->t + i) * a->t + j);
            attention_values(out + i * c, p, v, stride, i + 1, a->d);
        }
    }
}

void attention_decode_plain(const struct cpu *cpu, const struct attention_decode *a)
{
    int64_t c = a->h * a->d, stride = 3 * c, last = a->t - 1;
    double *p = (double *)(void *)cpu->shared;
    ASSERTF((size_t)a->t * sizeof *p <= CPU_SHARED_BYTES, "%lld tokens", (long long)a->t);
    for (int64_t bh = 0; bh < a->b * a->h; bh++) {
        const float *q = (const float *)a->qkv.data + bh / a->h * a->t * stride + bh % a->h * a->d,
                    *k = q + c;
        attention_softmax(p, q + last * stride, k, stride, NULL, last, a->d);
        attention_values((float *)a->out.data + bh * a->d, p, k + c, stride, a->t, a->d);
    }
}

/* One head's rows: where they lie, and the sums kept for its keys. */
struct attention_head {
    const float *q, *k, *v, *dout, *out, *lse;
    float *dq, *dk, *dv;
    const uint8_t *mask;
    double *dk_sum, *dv_sum; /* T·D each */
    int64_t bh;
};

/* One query of the backward pass:
 *   p = exp(s - lse);  dv_j += drop(p)_j dout;  ds_j = p_j (drop_j dout·v_j - dout·out)
 *   dq = Σ ds_j k_j/√D;  dk_j += ds_j q/√D */
static void attention_bwd_query(const struct attention_bwd *a, const struct attention_head *x,
                                int64_t i)
{
    int64_t c = a->h * a->d, stride = 3 * c;
    const float *q = x->q + i * stride, *dout = x->dout + i * c;
    float *dq = x->dq + i * stride;
    double root = sqrt((double)a->d), delta = attention_dot(dout, x->out + i * c, a->d);
    double *dq_sum = x->dv_sum + a->t * a->d;
    for (int64_t e = 0; e < a->d; e++)
        dq_sum[e] = 0;
    for (int64_t j = 0; j <= i; j++) {
        if ((x->mask && !x->mask[j]) || x->lse[i] == -INFINITY)
            continue;
        const float *k = x->k + j * stride;
        double p = exp(attention_dot(q, k, a->d) / root - x->lse[i]);
        double keep = dropout_factor(&a->dropout, (x->bh * a->t + i) * a->t + j);
        double ds = p * (keep * attention_dot(dout, x->v + j * stride, a->d) - delta) / root;
        for (int64_t e = 0; e < a->d; e++) {
            x->dv_sum[j * a->d + e] += keep * p * dout[e];
            x->dk_sum[j * a->d + e] += ds * q[e];
            dq_sum[e] += ds * k[e];
        }
    }
    for (int64_t e = 0; e < a->d; e++)
        dq[e] = (float)dq_sum[e];
}

void attention_bwd_plain(const struct cpu *cpu, const struct attention_bwd *a)
{
    int64_t c = a->h * a->d, stride = 3 * c, elems = a->t * a->d;
    ASSERTF((size_t)(2 * elems + a->d) * sizeof(double) <= CPU_SHARED_BYTES,
            "%lld tokens, head width %lld", (long long)a->t, (long long)a->d);
    for (int64_t bh = 0; bh < a->b * a->h; bh++) {
        int64_t b = bh / a->h, h = bh % a->h, at = b * a->t * stride + h * a->d,
                out_at = b * a->t * c + h * a->d;
        struct attention_head x = {.bh = bh};
        x.q = (const float *)a->qkv.data + at, x.k = x.q + c, x.v = x.k + c;
        x.dq = (float *)a->dqkv.data + at, x.dk = x.dq + c, x.dv = x.dk + c;
        x.dout = (const float *)a->dout.data + out_at, x.out = (const float *)a->out.data + out_at;
        x.lse = (const float *)a->lse.data + bh * a->t;
        x.mask = a->mask.data ? (const uint8_t *)a->mask.data + b * a->t : NULL;
        x.dk_sum = (double *)(void *)cpu->shared, x.dv_sum = x.dk_sum + elems;
        for (int64_t i = 0; i < 2 * elems; i++)
            x.dk_sum[i] = 0;
        for (int64_t i = 0; i < a->t; i++)
            attention_bwd_query(a, &x, i);
        for (int64_t i = 0; i < elems; i++) {
            x.dk[i / a->d * stride + i % a->d] = (float)x.dk_sum[i];
            x.dv[i / a->d * stride + i % a->d] = (float)x.dv_sum[i];
        }
    }
}
