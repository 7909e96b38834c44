/* xent_cpu — fast cross-entropy: one exponential for each element.
 *
 * A row is processed in blocks of BLOCK_ELEMS: the largest so far, then e = exp(x - largest),
 * summed and, for the gradient, stored in place of x. After log Σ exp of the row, a second pass
 * over the row (still in the second-level cache) multiplies each block by scale·exp(its largest -
 * log Σ exp). For a vocabulary in shards, the second pass computes the exponential again: the
 * logits stay unchanged until the sums of the other shards have arrived. It does the same with a
 * soft cap: the cap's slope is computed from the logits. */
#include "kernels/xent.h"

#include <math.h>

#include "kernels/cpu.h"
#include "kernels/exp2_cpu.h"
#include "kernels/vec_cpu.h"

/* so short that the hardware, fetching ahead of the maximum, keeps memory busy during the sum */
#define BLOCK_ELEMS 256

static float block_max(const float *x, int64_t n)
{
    vec m0 = vec_set(-INFINITY), m1 = m0;
    int64_t i = 0;
    for (; i + 2 * VEC_W <= n; i += 2 * VEC_W) {
        m0 = vec_max(m0, vec_load(x + i));
        m1 = vec_max(m1, vec_load(x + i + VEC_W));
    }
    float max = vec_top(vec_max(m0, m1));
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static inline vec exp_down(vec x) { return exp2_vec(x * vec_set((float)EXP2_LOG2E)); }

/* Returns Σ exp(x - max); e, if not NULL, receives the terms (may be x). */
static double block_exp(const float *x, float *e, int64_t n, float max)
{
    vec s0 = {0}, s1 = {0}, m = vec_set(max);
    int64_t i = 0;
    for (; i + 2 * VEC_W <= n; i += 2 * VEC_W) {
        vec e0 = exp_down(vec_load(x + i) - m), e1 = exp_down(vec_load(x + i + VEC_W) - m);
        s0 += e0, s1 += e1;
        if (e) {
            vec_store(e + i, e0);
            vec_store(e + i + VEC_W, e1);
        }
    }
    double sum = vec_sum(s0 + s1);
    for (; i < n; i += VEC_W) {
        int left = n - i < VEC_W ? (int)(n - i) : VEC_W;
        vec some = exp_down(vec_load_n(x + i, left) - m);
        for (int l = 0; l < left; l++)
            sum += some[l];
        if (e)
            vec_store_n(e + i, left, some);
    }
    return sum;
}

static void block_scale(float *x, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* row_log — returns log Σ exp of a row. With `maxima`, which holds a float for each block, the
 * terms are left in place of the logits. */
static double row_log(float *row, int64_t v, float *maxima)
{
    double sum = 0;
    float max = -INFINITY;
    for (int64_t i = 0; i < v; i += BLOCK_ELEMS) {
        int64_t n = v - i < BLOCK_ELEMS ? v - i : BLOCK_ELEMS;
        float top = block_max(row + i, n);
        if (top > max) {
            sum *= exp((double)max - top);
            max = top;
        }
        if (maxima)
            maxima[i / BLOCK_ELEMS] = max;
        /* exp(-inf - 0) is 0 */
        sum += block_exp(row + i, maxima ? row + i : NULL, n, max == -INFINITY ? 0 : max);
    }
    return max + log(sum);
}

/* row_grad — computes the gradient of a row from the terms that row_log left there. */
static void row_grad(float *row, int64_t v, double lse, float scale, const float *maxima)
{
    float factor = 0;
    for (int64_t i = 0; i < v; i += BLOCK_ELEMS) {
        int64_t block = i / BLOCK_ELEMS;
        if (block == 0 || maxima[block] != maxima[block - 1])
            factor = (float)(scale * exp(maxima[block] - lse));
        block_scale(row + i, v - i < BLOCK_ELEMS ? v - i : BLOCK_ELEMS, factor);
    }
}

/* target_grad — returns the target's gradient, computed in double: when the answer is nearly
 * certain, the difference to 1 matters. cap: the soft cap that made the logits; 0: none. */
static float target_grad(double hit, double lse, float scale, float cap)
{
    double slope = cap > 0 ? 1 - hit / cap * (hit / cap) : 1;
    return (float)(scale * expm1(hit - lse) * slope);
}

/* Processes one row in place; `maxima` as in row_log. Returns the loss. */
static float row_xent(float *row, int64_t v, int64_t target, float scale, bool want_grad,
                      float *maxima)
{
    if (target < 0) {
        if (want_grad)
            memset(row, 0, (size_t)v * sizeof *row);
        return 0;
    }
    double hit = row[target], lse = row_log(row, v, want_grad ? maxima : NULL);
    if (want_grad) {
        row_grad(row, v, lse, scale, maxima);
        row[target] = target_grad(hit, lse, scale, 0);
    }
    return (float)(lse - hit);
}

/* grad_again — computes the gradient of a row in place, with new exponentials. A logit far below
 * log Σ exp gets 0. */
static void grad_again(float *row, int64_t n, double lse, float scale)
{
    vec from = vec_set((float)lse), factor = vec_set(scale);
    for (int64_t i = 0; i < n; i += VEC_W) {
        int left = n - i < VEC_W ? (int)(n - i) : VEC_W;
        if (left == VEC_W)
            vec_store(row + i, factor * exp_down(vec_load(row + i) - from));
        else
            vec_store_n(row + i, left, factor * exp_down(vec_load_n(row + i, left) - from));
    }
}

static inline vec grad_of(vec x, vec lse, vec scale, vec inverse_cap)
{
    vec shard = x * inverse_cap;
    return scale * exp_down(x - lse) * (vec_set(1) - shard * shard);
}

/* grad_capped — does the same after a soft cap. */
static void grad_capped(float *row, int64_t n, double lse, float scale, float cap)
{
    vec from = vec_set((float)lse), factor = vec_set(scale), inverse = vec_set(1 / cap);
    for (int64_t i = 0; i < n; i += VEC_W) {
        int left = n - i < VEC_W ? (int)(n - i) : VEC_W;
        if (left == VEC_W)
            vec_store(row + i, grad_of(vec_load(row + i), from, factor, inverse));
        else
            vec_store_n(row + i, left, grad_of(vec_load_n(row + i, left), from, factor, inverse));
    }
}

/* is_argmax — returns 1 if column `target` has the first of the largest of n logits. */
static float is_argmax(const float *row, int64_t n, int64_t target)
{
    return block_max(row, target) < row[target] &&
                   block_max(row + target, n - target) <= row[target]
               ? 1
               : 0;
}

struct xent_work {
    const struct cpu *cpu;
    const void *a;
};

/* row_capped — as row_xent with a gradient, after a soft cap. */
static float row_capped(const struct xent *a, float *row, int64_t target)
{
    if (target < 0)
        return row_xent(row, a->v, target, a->scale, true, NULL);
    double hit = row[target], lse = row_log(row, a->v, NULL);
    grad_capped(row, a->v, lse, a->scale, a->cap);
    row[target] = target_grad(hit, lse, a->scale, a->cap);
    return (float)(lse - hit);
}

static void xent_row(void *arg, int n, int thread_i)
{
    const struct xent_work *work = arg;
    const struct xent *a = work->a;
    float *maxima = (float *)(void *)work->cpu->scratch[thread_i];
    float *row = (float *)a->logits.data + n * a->stride;
    int32_t target = ((const int32_t *)a->targets.data)[n];
    if (a->hits.data)
        ((float *)a->hits.data)[n] = target < 0 ? 0 : is_argmax(row, a->v, target);
    ((float *)a->losses.data)[n] =
        a->cap > 0 && a->want_grad ? row_capped(a, row, target)
                                   : row_xent(row, a->v, target, a->scale, a->want_grad, maxima);
}

void CPU_FN(xent)(const struct cpu *cpu, const struct xent *a)
{
    struct xent_work work = {cpu, a};
    ASSERTF((size_t)cpu_ranges(a->v, BLOCK_ELEMS) <= CPU_SCRATCH_BYTES / sizeof(float), "%lld wide",
            (long long)a->v);
    thread_pool_run(cpu->pool, cpu_ranges(a->n, 1), xent_row, &work);
}

/* ---- a vocabulary in shards ---- */

static void xent_shard_row(void *arg, int n, int thread_i)
{
    (void)thread_i;
    const struct xent_shard *a = ((const struct xent_work *)arg)->a;
    const float *row = (const float *)a->logits.data + n * a->stride;
    float *stats = (float *)a->stats.data + 3 * (int64_t)n, max = -INFINITY;
    int32_t target = ((const int32_t *)a->targets.data)[n];
    int64_t own = target - a->v_first, v_n = target < 0 ? 0 : a->v_n;
    double sum = 0;
    for (int64_t i = 0; i < v_n; i += BLOCK_ELEMS) {
        int64_t width = v_n - i < BLOCK_ELEMS ? v_n - i : BLOCK_ELEMS;
        float top = block_max(row + i, width);
        if (top > max) {
            sum *= exp((double)max - top);
            max = top;
        }
        sum += block_exp(row + i, NULL, width, max == -INFINITY ? 0 : max);
    }
    stats[0] = max;
    stats[1] = (float)sum;
    stats[2] = own >= 0 && own < v_n ? row[own] : -INFINITY;
}

void CPU_FN(xent_shard)(const struct cpu *cpu, const struct xent_shard *a)
{
    struct xent_work work = {cpu, a};
    thread_pool_run(cpu->pool, cpu_ranges(a->n, 1), xent_shard_row, &work);
}

/* Returns log Σ exp of row n over all shards; *hit: the target's logit. */
static double join_log(const struct xent_join *a, int64_t n, double *hit)
{
    const float *stats = (const float *)a->stats.data + 3 * n;
    int64_t step = a->stats_stride ? a->stats_stride : 3 * a->n;
    double max = -INFINITY, sum = 0;
    *hit = -INFINITY;
    for (int64_t i = 0; i < a->shards; i++) {
        const float *shard = stats + i * step; /* gcc 12 for aarch64 fails on fmax here */
        max = shard[0] > max ? shard[0] : max;
        *hit = shard[2] > *hit ? shard[2] : *hit;
    }
    for (int64_t i = 0; i < a->shards; i++) {
        float top = stats[i * step];
        sum += stats[i * step + 1] * (top == -INFINITY ? 1 : exp(top - max));
    }
    return max + log(sum);
}

static void xent_join_row(void *arg, int n, int thread_i)
{
    (void)thread_i;
    const struct xent_join *a = ((const struct xent_work *)arg)->a;
    float *row = (float *)a->logits.data + n * a->stride, *loss = (float *)a->losses.data + n;
    int32_t target = ((const int32_t *)a->targets.data)[n];
    int64_t own = target - a->v_first;
    double hit, lse = target < 0 ? 0 : join_log(a, n, &hit);
    *loss = target < 0 ? 0 : (float)(lse - hit);
    if (a->hits.data) {
        bool leads = target >= 0 && own >= 0 && own < a->v_n &&
                     xent_leads((const float *)a->stats.data + 3 * (int64_t)n, a->shards,
                                a->stats_stride ? a->stats_stride : 3 * a->n, row[own]);
        ((float *)a->hits.data)[n] = leads ? is_argmax(row, a->v_n, own) : 0;
    }
    if (!a->want_grad)
        return;
    if (target < 0)
        memset(row, 0, (size_t)a->v_n * sizeof *row);
    else if (a->cap > 0)
        grad_capped(row, a->v_n, lse, a->scale, a->cap);
    else
        grad_again(row, a->v_n, lse, a->scale);
    if (target >= 0 && own >= 0 && own < a->v_n)
        row[own] = target_grad(hit, lse, a->scale, a->cap);
}

void CPU_FN(xent_join)(const struct cpu *cpu, const struct xent_join *a)
{
    struct xent_work work = {cpu, a};
    thread_pool_run(cpu->pool, cpu_ranges(a->n, 1), xent_join_row, &work);
}

/* ---- the two ends of an answer ---- */

/* Processes start (i even) or end (odd) of sample i/2: its T numbers are copied to a row,
 * processed, and copied back. */
static void qa_xent_row(void *arg, int i, int thread_i)
{
    const struct xent_work *work = arg;
    const struct qa_xent *a = work->a;
    float *row = (float *)(void *)work->cpu->scratch[thread_i], *grad = a->dlogits.data;
    const float *logits = a->logits.data;
    int64_t first = i / 2 * a->t * 2 + i % 2;
    int64_t label =
        i % 2 ? ((const int32_t *)a->ends.data)[i / 2] : ((const int32_t *)a->starts.data)[i / 2];
    label = label < 0 ? 0 : label >= a->t ? -1 : label;
    for (int64_t t = 0; t < a->t; t++)
        row[t] = logits[first + 2 * t];
    ((float *)a->losses.data)[i] =
        row_xent(row, a->t, label, i % 2 ? a->scale_end : a->scale_start, grad != NULL, row + a->t);
    for (int64_t t = 0; t < a->t && grad; t++)
        grad[first + 2 * t] = row[t];
}

void CPU_FN(qa_xent)(const struct cpu *cpu, const struct qa_xent *a)
{
    struct xent_work work = {cpu, a};
    ASSERTF((size_t)(2 * a->t + 1) <= CPU_SCRATCH_BYTES / sizeof(float), "%lld tokens",
            (long long)a->t);
    thread_pool_run(cpu->pool, cpu_ranges(2 * a->b, 1), qa_xent_row, &work);
}
