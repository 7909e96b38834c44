/* xent — the plain truth of cross-entropy, for rows of a vocabulary, whole or in shards, and for
 * the two ends of an answer span. */
#include "kernels/xent.h"

#include <math.h>

#include "kernels/cpu.h"

/* Returns log Σ exp of n numbers, `step` apart. The maximum is subtracted first, so that nothing
 * overflows. */
static double xent_log_sum_exp(const float *x, int64_t n, int64_t step)
{
    double max = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        max = x[i * step] > max ? x[i * step] : max;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i * step] - max);
    return max + log(sum);
}

/* xent_slope — returns the slope of a soft cap from its output. */
static double xent_slope(double logit, float cap)
{
    return cap > 0 ? 1 - logit / cap * (logit / cap) : 1;
}

/* xent_is_argmax — returns 1 if column `target` has the first of the largest of n logits. */
static float xent_is_argmax(const float *row, int64_t n, int64_t target)
{
    bool is_argmax = true;
    for (int64_t v = 0; v < n; v++)
        is_argmax = is_argmax && (v < target ? row[v] < row[target] : row[v] <= row[target]);
    return is_argmax ? 1 : 0;
}

void xent_plain(const struct cpu *cpu, const struct xent *a)
{
    (void)cpu;
    float *losses = a->losses.data, *hits = a->hits.data;
    const int32_t *targets = a->targets.data;
    for (int64_t n = 0; n < a->n; n++) {
        float *row = (float *)a->logits.data + n * a->stride;
        bool ignored = targets[n] < 0;
        double lse = xent_log_sum_exp(row, a->v, 1);
        losses[n] = ignored ? 0 : (float)(lse - row[targets[n]]);
        if (hits)
            hits[n] = ignored ? 0 : xent_is_argmax(row, a->v, targets[n]);
        for (int64_t v = 0; v < a->v && a->want_grad; v++) {
            double hit = v == targets[n], slope = xent_slope(row[v], a->cap);
            row[v] = ignored ? 0 : (float)(a->scale * (exp(row[v] - lse) - hit) * slope);
        }
    }
}

void xent_shard_plain(const struct cpu *cpu, const struct xent_shard *a)
{
    (void)cpu;
    const int32_t *targets = a->targets.data;
    for (int64_t n = 0; n < a->n; n++) {
        const float *row = (const float *)a->logits.data + n * a->stride;
        float *stats = (float *)a->stats.data + 3 * n;
        int64_t own = targets[n] - a->v_first, v_n = targets[n] < 0 ? 0 : a->v_n;
        double sum = 0;
        stats[0] = stats[2] = -INFINITY;
        for (int64_t v = 0; v < v_n; v++)
            stats[0] = row[v] > stats[0] ? row[v] : stats[0];
        for (int64_t v = 0; v < v_n; v++)
            sum += exp(row[v] - (stats[0] == -INFINITY ? 0 : stats[0]));
        stats[1] = (float)sum;
        if (v_n > 0 && own >= 0 && own < v_n)
            stats[2] = row[own];
    }
}

/* Returns log Σ exp of a row over all shards; *hit: the target's logit. */
static double xent_join_row(const struct xent_join *a, int64_t n, double *hit)
{
    const float *stats = (const float *)a->stats.data + 3 * n;
    int64_t step = a->stats_stride ? a->stats_stride : 3 * a->n;
    double max = -INFINITY, sum = 0;
    *hit = -INFINITY;
    for (int64_t i = 0; i < a->shards; i++) {
        max = stats[i * step] > max ? stats[i * step] : max;
        *hit = stats[i * step + 2] > *hit ? stats[i * step + 2] : *hit;
    }
    for (int64_t i = 0; i < a->shards; i++) /* a shard of logits -inf has the sum 0, or NaN */
        sum +=
            stats[i * step + 1] * (stats[i * step] == -INFINITY ? 1 : exp(stats[i * step] - max));
    return max + log(sum);
}

void xent_join_plain(const struct cpu *cpu, const struct xent_join *a)
{
    (void)cpu;
    const int32_t *targets = a->targets.data;
    for (int64_t n = 0; n < a->n; n++) {
        float *row = (float *)a->logits.data + n * a->stride;
        bool ignored = targets[n] < 0;
        double hit, lse = xent_join_row(a, n, &hit);
        ((float *)a->losses.data)[n] = ignored ? 0 : (float)(lse - hit);
        if (a->hits.data) {
            int64_t own = ignored ? -1 : targets[n] - a->v_first;
            bool leads = own >= 0 && own < a->v_n &&
                         xent_leads((const float *)a->stats.data + 3 * n, a->shards,
                                    a->stats_stride ? a->stats_stride : 3 * a->n, row[own]);
            ((float *)a->hits.data)[n] = leads ? xent_is_argmax(row, a->v_n, own) : 0;
        }
        for (int64_t v = 0; v < a->v_n && a->want_grad; v++) {
            double one = a->v_first + v == targets[n], slope = xent_slope(row[v], a->cap);
            row[v] = ignored ? 0 : (float)(a->scale * (exp(row[v] - lse) - one) * slope);
        }
    }
}

void qa_xent_plain(const struct cpu *cpu, const struct qa_xent *a)
{
    (void)cpu;
    float *losses = a->losses.data, *grad = a->dlogits.data;
    const float *logits = a->logits.data;
    for (int64_t i = 0; i < 2 * a->b; i++) {
        int64_t first = i / 2 * a->t * 2 + i % 2; /* sample i/2; start or end */
        int64_t label =
            i % 2 ? ((int32_t *)a->ends.data)[i / 2] : ((int32_t *)a->starts.data)[i / 2];
        double scale = i % 2 ? a->scale_end : a->scale_start;
        label = label < 0 ? 0 : label > a->t ? a->t : label;
        bool ignored = label == a->t;
        double lse = xent_log_sum_exp(logits + first, a->t, 2);
        losses[i] = ignored ? 0 : (float)(lse - logits[first + label * 2]);
        for (int64_t t = 0; t < a->t && grad; t++) {
            double hit = t == label;
            grad[first + t * 2] =
                ignored ? 0 : (float)(scale * (exp(logits[first + t * 2] - lse) - hit));
        }
    }
}
