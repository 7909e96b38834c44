/* adamw_cpu — fast optimisers: one pass, at the speed of memory. Decisive scalars (bias
 * corrections, step size) are folded in double first. Moments move by (new - old)·(1-β), so that a
 * β near 1 loses nothing to rounding.
 *
 * AdamW adds up bits in lanes of integers while they are in registers, so its sums cost no access
 * to memory. Threads add the sums of their ranges to the sums of the call, in any order. */
#include "kernels/adamw.h"

#include <math.h>
#include <stdatomic.h>

#include "kernels/cast.h"
#include "kernels/cpu.h"
#include "kernels/grad_scale.h" /* grad_scale_get */
#include "kernels/vec_cpu.h"

#define RANGE_ELEMS 65536

/* Returns the number of ranges. A range is at most RANGE_ELEMS elements of one span. */
static int spans_ranges(const struct optim_span *spans, int64_t spans_n)
{
    int64_t ranges = 0;
    for (int64_t i = 0; i < spans_n; i++)
        ranges += cpu_ranges(spans[i].elems, RANGE_ELEMS);
    return cpu_ranges(ranges, 1);
}

static struct optim_span spans_range(const struct optim_span *spans, int range_i)
{
    for (; range_i >= cpu_ranges(spans->elems, RANGE_ELEMS); spans++)
        range_i -= cpu_ranges(spans->elems, RANGE_ELEMS);
    int64_t first = (int64_t)range_i * RANGE_ELEMS,
            end = cpu_range_end(spans->elems, RANGE_ELEMS, range_i);
    return (struct optim_span){spans->offset + first, end - first, spans->weight_decay};
}

/* ---- sums of bits ---- */

typedef uint32_t vecu __attribute__((vector_size(VEC_W * 4)));

/* The sums of a call: read, then written; p, m, v each. */
struct sums {
    _Atomic uint32_t of[2][3];
};

static uint32_t sum_lanes(vecu x)
{
    uint32_t sum = 0;
    for (int i = 0; i < VEC_W; i++)
        sum += x[i];
    return sum;
}

static void sums_add(struct sums *sums, int when, int what, uint32_t sum)
{
    atomic_fetch_add_explicit(&sums->of[when][what], sum, memory_order_relaxed);
}

/* sums_give — adds the sums of a call to the caller's. */
static void sums_give(const struct sums *sums, struct optim_sums *to)
{
    if (!to)
        return;
    to->updates++;
    for (int what = 0; what < 3; what++) {
        to->read[what] += atomic_load_explicit(&sums->of[0][what], memory_order_relaxed);
        to->written[what] += atomic_load_explicit(&sums->of[1][what], memory_order_relaxed);
    }
}

/* ---- AdamW ---- */

/* With c1 = 1-β1^step, c2 = 1-β2^step:
 *   lr·(m/c1)/(√(v/c2)+eps) = (lr·√c2/c1) · m/(√v + eps·√c2) */
struct adamw_work {
    const struct adamw *a;
    double scale, rate, eps;
    struct sums sums;
};

struct adamw_vecs {
    vec p, m, v;
};
/* Sums of the bits of p, m and v. */
struct adamw_lanes {
    vecu p, m, v;
};
struct adamw_both {
    struct adamw_lanes read, written;
};
/* The elements of a range. */
struct adamw_run {
    float *p, *m, *v;
    const float *g;
    int64_t n;
};

struct adamw_scalars {
    vec scale, toward_m, toward_v, rate, eps, decay;
};

static inline struct adamw_vecs adamw_step(const struct adamw_scalars *k, struct adamw_vecs x,
                                           vec g)
{
    g *= k->scale;
    x.m = vec_fma(g - x.m, k->toward_m, x.m);
    x.v = vec_fma(vec_fma(g, g, -x.v), k->toward_v, x.v);
    vec step = k->rate * x.m / (vec_sqrt(x.v) + k->eps);
    x.p -= vec_fma(x.p, k->decay, step);
    return x;
}

static inline void add_lanes(struct adamw_lanes *to, struct adamw_vecs x, bool adds)
{
    if (!adds)
        return;
    to->p += (vecu)x.p;
    to->m += (vecu)x.m;
    to->v += (vecu)x.v;
}

static inline struct adamw_vecs load_n(const struct adamw_run *r, int64_t i, int n)
{
    return (struct adamw_vecs){vec_load_n(r->p + i, n), vec_load_n(r->m + i, n),
                               vec_load_n(r->v + i, n)};
}

/* end_of_run — updates the last elements, fewer than a vector has. The lanes after them need not be
 * zero after the update, so the stored elements are loaded for their sum. */
static inline void end_of_run(const struct adamw_scalars *k, const struct adamw_run *r, int64_t i,
                              struct adamw_both *sums, bool adds)
{
    const int n = (int)(r->n - i);
    struct adamw_vecs x = load_n(r, i, n);
    add_lanes(&sums->read, x, adds);
    x = adamw_step(k, x, vec_load_n(r->g + i, n));
    vec_store_n(r->p + i, n, x.p);
    vec_store_n(r->m + i, n, x.m);
    vec_store_n(r->v + i, n, x.v);
    if (adds)
        add_lanes(&sums->written, load_n(r, i, n), true);
}

/* all_of_run — updates the whole vectors of a run. Inlined twice, so that a call without sums has
 * the loop without them. Two vectors at a time: with one, sums cost 7 % of the time at AVX-512 if
 * the third-level cache holds all arrays. */
static inline __attribute__((always_inline)) struct adamw_both
all_of_run(const struct adamw_scalars *k, const struct adamw_run *r, bool adds)
{
    struct adamw_both sums = {0};
    int64_t i = 0;
#pragma GCC unroll 2
    for (; i + VEC_W <= r->n; i += VEC_W) {
        struct adamw_vecs x = {vec_load(r->p + i), vec_load(r->m + i), vec_load(r->v + i)};
        add_lanes(&sums.read, x, adds);
        x = adamw_step(k, x, vec_load(r->g + i));
        vec_store(r->p + i, x.p);
        vec_store(r->m + i, x.m);
        vec_store(r->v + i, x.v);
        add_lanes(&sums.written, x, adds);
    }
    if (i < r->n)
        end_of_run(k, r, i, &sums, adds);
    return sums;
}

static void add_both(struct sums *to, const struct adamw_both *from)
{
    const vecu each[2][3] = {{from->read.p, from->read.m, from->read.v},
                             {from->written.p, from->written.m, from->written.v}};
    for (int when = 0; when < 2; when++)
        for (int what = 0; what < 3; what++)
            sums_add(to, when, what, sum_lanes(each[when][what]));
}

static struct adamw_run run_of(const struct adamw *a, const struct optim_span *span)
{
    return (struct adamw_run){(float *)a->p.data + span->offset, (float *)a->m.data + span->offset,
                              (float *)a->v.data + span->offset,
                              (const float *)a->g.data + span->offset, span->elems};
}

static void adamw_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    struct adamw_work *work = arg;
    const struct adamw *a = work->a;
    struct optim_span span = spans_range(a->spans, range_i);
    struct adamw_scalars k = {
        vec_set((float)work->scale),    vec_set((float)(1 - a->beta1)),
        vec_set((float)(1 - a->beta2)), vec_set((float)work->rate),
        vec_set((float)work->eps),      vec_set((float)(a->lr * span.weight_decay))};
    struct adamw_run run = run_of(a, &span);
    if (a->sums) {
        struct adamw_both sums = all_of_run(&k, &run, true);
        add_both(&work->sums, &sums);
    } else {
        (void)all_of_run(&k, &run, false);
    }
    if (a->copy.data) /* copies a range that is in the cache */
        cast_plain(NULL, &(struct cast){tensor_at(a->copy, span.offset),
                                        tensor_at(a->p, span.offset), span.elems});
}

void CPU_FN(adamw)(const struct cpu *cpu, const struct adamw *a)
{
    double scale = grad_scale_get(a->grad_scale.data);
    if (isnan(scale))
        return;
    double c1 = 1 - pow(a->beta1, (double)a->step), c2 = 1 - pow(a->beta2, (double)a->step);
    struct adamw_work work = {
        .a = a, .scale = scale, .rate = a->lr * sqrt(c2) / c1, .eps = a->eps * sqrt(c2)};
    thread_pool_run(cpu->pool, spans_ranges(a->spans, a->spans_n), adamw_range, &work);
    sums_give(&work.sums, a->sums);
}

/* ---- SGD ---- */

struct sgd_work {
    const struct sgd *a;
    double scale;
    struct sums sums;
};

/* The elements of a range. */
struct sgd_run {
    float *p, *m; /* m NULL: no momentum */
    const float *g;
    int64_t n;
    float scale, decay, lr, momentum;
};
/* Sums of the bits of p and m. */
struct sgd_both {
    uint32_t p_read, m_read, p_written, m_written;
};

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline __attribute__((always_inline)) struct sgd_both without_momentum(struct sgd_run r,
                                                                              bool adds)
{
    struct sgd_both sums = {0};
    for (int64_t i = 0; i < r.n; i++) {
        sums.p_read += adds ? bits_of(r.p[i]) : 0;
        r.p[i] -= r.lr * (r.g[i] * r.scale + r.decay * r.p[i]);
        sums.p_written += adds ? bits_of(r.p[i]) : 0;
    }
    return sums;
}

static inline __attribute__((always_inline)) struct sgd_both with_momentum(struct sgd_run r,
                                                                           bool adds)
{
    struct sgd_both sums = {0};
    for (int64_t i = 0; i < r.n; i++) {
        sums.p_read += adds ? bits_of(r.p[i]) : 0;
        sums.m_read += adds ? bits_of(r.m[i]) : 0;
        /* step 1: m is not read */
        float old = r.momentum == 0 ? 0 : r.momentum * r.m[i];
        r.m[i] = old + (r.g[i] * r.scale + r.decay * r.p[i]);
        r.p[i] -= r.lr * r.m[i];
        sums.p_written += adds ? bits_of(r.p[i]) : 0;
        sums.m_written += adds ? bits_of(r.m[i]) : 0;
    }
    return sums;
}

static struct sgd_run sgd_run_of(const struct sgd_work *work, const struct optim_span *span)
{
    const struct sgd *a = work->a;
    return (struct sgd_run){(float *)a->p.data + span->offset,
                            a->momentum != 0 ? (float *)a->m.data + span->offset : NULL,
                            (const float *)a->g.data + span->offset,
                            span->elems,
                            (float)work->scale,
                            span->weight_decay,
                            (float)a->lr,
                            a->step > 1 ? (float)a->momentum : 0};
}

static void sgd_add(struct sums *to, struct sgd_both sums)
{
    sums_add(to, 0, 0, sums.p_read);
    sums_add(to, 0, 1, sums.m_read);
    sums_add(to, 1, 0, sums.p_written);
    sums_add(to, 1, 1, sums.m_written);
}

static void sgd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    struct sgd_work *work = arg;
    const struct optim_span span = spans_range(work->a->spans, range_i);
    const struct sgd_run run = sgd_run_of(work, &span);
    if (work->a->sums)
        sgd_add(&work->sums, run.m ? with_momentum(run, true) : without_momentum(run, true));
    else
        (void)(run.m ? with_momentum(run, false) : without_momentum(run, false));
}

void CPU_FN(sgd)(const struct cpu *cpu, const struct sgd *a)
{
    struct sgd_work work = {.a = a, .scale = grad_scale_get(a->grad_scale.data)};
    if (isnan(work.scale))
        return;
    thread_pool_run(cpu->pool, spans_ranges(a->spans, a->spans_n), sgd_range, &work);
    sums_give(&work.sums, a->sums);
}
