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

/* Computes the scores of one query in p (-inf if hidden), then probabilities. Returns logΣexp, -inf
 * if no key is visible. */
static double attention_softmax(double *p, const float *q, const float *k, int64_t stride,
                                const uint8_t *mask, int64_t first, int64_t i, int64_t d)
{
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= i; j++) {
        bool is_hidden = j < first || (mask && !mask[j]);
        p[j] = is_hidden ? -INFINITY : attention_dot(q, k + j * stride, d) / sqrt((double)d);
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

/* Returns the first key that the query at position i of sample b may see. */
static int64_t attention_first_key(struct tensor first_key, int64_t b, int64_t t, int64_t i)
{
    return first_key.data ? ((const int32_t *)first_key.data)[b * t + i] : 0;
}

/* Positions of the rows of query head bh % H of sample bh / H. */
struct attention_view {
    int64_t q, k, v;            /* elements before the head's first row; k, v: in kv, if present */
    int64_t q_stride, k_stride; /* from row to row */
    int64_t rows;               /* queries of a sample */
    int64_t out, out_stride, lse;
};

/* Computes the positions of a head. shape: T, H, K, D. */
static struct attention_view attention_view(enum attention_layout layout, bool has_kv, int64_t bh,
                                            const int64_t shape[4],
                                            const struct attention_runs *own)
{
    int64_t h = shape[1], hk = shape[2], d = shape[3], b = bh / h, head = bh % h / (h / hk);
    struct attention_row row = attention_row_of(layout, h, hk, d),
                         key = has_kv ? attention_kv_row_of(layout, hk, d) : row;
    struct attention_view x = {.rows = attention_rows(own, shape[0]), .out_stride = h * d};
    x.q_stride = row.row, x.k_stride = key.row;
    x.q = b * x.rows * row.row + bh % h * row.head;
    x.k = b * shape[0] * key.row + key.k + head * key.head;
    x.v = x.k - key.k + key.v;
    x.out = b * x.rows * h * d + bh % h * d;
    x.lse = bh * x.rows;
    return x;
}
#define ATTENTION_VIEW(a, bh)                                                                    \
    attention_view((a)->layout, (a)->kv.data, bh, (int64_t[4]){(a)->t, (a)->h, (a)->hk, (a)->d}, \
                   &(a)->own)

void attention_fwd_plain(const struct cpu *cpu, const struct attention_fwd *a)
{
    const float *qkv = a->qkv.data, *kv = a->kv.data ? a->kv.data : qkv;
    double *p = (double *)(void *)cpu->shared;
    ASSERTF((size_t)a->t * sizeof *p <= CPU_SHARED_BYTES, "%lld tokens", (long long)a->t);
    for (int64_t bh = 0; bh < a->b * a->h; bh++) {
        struct attention_view x = ATTENTION_VIEW(a, bh);
        const uint8_t *mask =
            a->mask.data ? (const uint8_t *)a->mask.data + bh / a->h * a->t : NULL;
        float *out = (float *)a->out.data + x.out, *lse = (float *)a->lse.data + x.lse;
        int64_t drop_head = attention_drop_head(bh, a->h, a->head_first, a->heads_whole);
        for (int64_t row = 0; row < x.rows; row++) {
            int64_t i = attention_position(&a->own, row);
            int64_t first = attention_first_key(a->first_key, bh / a->h, a->t, i);
            lse[row] = (float)attention_softmax(p, qkv + x.q + row * x.q_stride, kv + x.k,
                                                x.k_stride, mask, first, i, a->d);
            for (int64_t j = 0; j <= i; j++)
                p[j] *= dropout_factor(&a->dropout, (drop_head * a->t + i) * a->t + j);
            attention_values(out + row * x.out_stride, p, kv + x.v, x.k_stride, i + 1, a->d);
        }
    }
}

void attention_decode_plain(const struct cpu *cpu, const struct attention_decode *a)
{
    static const struct attention_runs all;
    const float *qkv = a->qkv.data;
    int64_t last = a->t - 1;
    double *p = (double *)(void *)cpu->shared;
    ASSERTF((size_t)a->t * sizeof *p <= CPU_SHARED_BYTES, "%lld tokens", (long long)a->t);
    for (int64_t bh = 0; bh < a->b * a->h; bh++) {
        struct attention_view x =
            attention_view(a->layout, false, bh, (int64_t[4]){a->t, a->h, a->hk, a->d}, &all);
        attention_softmax(p, qkv + x.q + last * x.q_stride, qkv + x.k, x.k_stride, NULL, 0, last,
                          a->d);
        attention_values((float *)a->out.data + bh * a->d, p, qkv + x.v, x.k_stride, a->t, a->d);
    }
}

/* One head's rows: their addresses, and the sums kept for its keys. */
struct attention_head {
    const float *q, *k, *v, *dout, *out, *lse;
    float *dq, *dk, *dv;
    const uint8_t *mask;
    double *dk_sum, *dv_sum; /* T·D each */
    int64_t b, drop_head;
    struct attention_view at;
};

/* One query, row `row`, of the backward pass:
 *   p = exp(s - lse);  dv_j += drop(p)_j dout;  ds_j = p_j (drop_j dout·v_j - dout·out)
 *   dq = Σ ds_j k_j/√D;  dk_j += ds_j q/√D */
static void attention_bwd_query(const struct attention_bwd *a, const struct attention_head *x,
                                int64_t row)
{
    const struct attention_view *at = &x->at;
    const float *q = x->q + row * at->q_stride, *dout = x->dout + row * at->out_stride;
    float *dq = x->dq + row * at->q_stride;
    double root = sqrt((double)a->d),
           delta = attention_dot(dout, x->out + row * at->out_stride, a->d);
    double *dq_sum = x->dv_sum + a->t * a->d;
    int64_t i = attention_position(&a->own, row);
    for (int64_t e = 0; e < a->d; e++)
        dq_sum[e] = 0;
    for (int64_t j = attention_first_key(a->first_key, x->b, a->t, i); j <= i; j++) {
        if ((x->mask && !x->mask[j]) || x->lse[row] == -INFINITY)
            continue;
        const float *k = x->k + j * at->k_stride;
        double p = exp(attention_dot(q, k, a->d) / root - x->lse[row]);
        double keep = dropout_factor(&a->dropout, (x->drop_head * a->t + i) * a->t + j);
        double ds = p * (keep * attention_dot(dout, x->v + j * at->k_stride, a->d) - delta) / root;
        for (int64_t e = 0; e < a->d; e++) {
            x->dv_sum[j * a->d + e] += keep * p * dout[e];
            x->dk_sum[j * a->d + e] += ds * q[e];
            dq_sum[e] += ds * k[e];
        }
    }
    for (int64_t e = 0; e < a->d; e++)
        dq[e] = (float)dq_sum[e];
}

static struct attention_head attention_head_of(const struct cpu *cpu, const struct attention_bwd *a,
                                               int64_t bh)
{
    struct attention_view at = ATTENTION_VIEW(a, bh);
    const float *qkv = a->qkv.data, *kv = a->kv.data ? a->kv.data : qkv;
    float *dqkv = a->dqkv.data, *dkv = a->kv.data ? a->dkv.data : dqkv;
    struct attention_head x = {.b = bh / a->h,
                               .drop_head =
                                   attention_drop_head(bh, a->h, a->head_first, a->heads_whole),
                               .at = at};
    x.q = qkv + at.q, x.k = kv + at.k, x.v = kv + at.v;
    x.dq = dqkv + at.q, x.dk = dkv + at.k, x.dv = dkv + at.v;
    x.dout = (const float *)a->dout.data + at.out, x.out = (const float *)a->out.data + at.out;
    x.lse = (const float *)a->lse.data + at.lse;
    x.mask = a->mask.data ? (const uint8_t *)a->mask.data + bh / a->h * a->t : NULL;
    x.dk_sum = (double *)(void *)cpu->shared, x.dv_sum = x.dk_sum + a->t * a->d;
    return x;
}

/* The query heads of one key head are adjacent, so its sums are complete after the last one. */
void attention_bwd_plain(const struct cpu *cpu, const struct attention_bwd *a)
{
    int64_t group = a->h / a->hk, elems = a->t * a->d;
    ASSERTF((size_t)(2 * elems + a->d) * sizeof(double) <= CPU_SHARED_BYTES,
            "%lld tokens, head width %lld", (long long)a->t, (long long)a->d);
    for (int64_t bh = 0; bh < a->b * a->h; bh++) {
        struct attention_head x = attention_head_of(cpu, a, bh);
        for (int64_t i = 0; bh % group == 0 && i < 2 * elems; i++)
            x.dk_sum[i] = 0;
        for (int64_t row = 0; row < x.at.rows; row++)
            attention_bwd_query(a, &x, row);
        for (int64_t i = 0; bh % group == group - 1 && i < elems; i++) {
            x.dk[i / a->d * x.at.k_stride + i % a->d] = (float)x.dk_sum[i];
            x.dv[i / a->d * x.at.k_stride + i % a->d] = (float)x.dv_sum[i];
        }
    }
}
