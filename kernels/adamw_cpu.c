/* adamw_cpu — fast optimisers: one pass, at the speed of memory. Scalars that decide (bias
 * corrections, step size) are folded in double first. Moments move by (new - old)·(1-β), so that a
 * β near 1 loses nothing to rounding. */
#include "kernels/adamw.h"

#include <math.h>

#include "kernels/cast.h"
#include "kernels/cpu.h"
#include "kernels/grad_scale.h" /* grad_scale_get */
#include "kernels/vec_cpu.h"

#define PART_ELEMS 65536

/* A part is at most PART_ELEMS elements of one span. */
static int spans_parts(const struct optim_span *spans, int64_t spans_n)
{
    int64_t parts = 0;
    for (int64_t i = 0; i < spans_n; i++)
        parts += cpu_parts(spans[i].elems, PART_ELEMS);
    return cpu_parts(parts, 1);
}

static struct optim_span spans_part(const struct optim_span *spans, int part_i)
{
    for (; part_i >= cpu_parts(spans->elems, PART_ELEMS); spans++)
        part_i -= cpu_parts(spans->elems, PART_ELEMS);
    int64_t first = (int64_t)part_i * PART_ELEMS,
            end = cpu_part_end(spans->elems, PART_ELEMS, part_i);
    return (struct optim_span){spans->offset + first, end - first, spans->weight_decay};
}

/* With c1 = 1-β1^step, c2 = 1-β2^step:
 *   lr·(m/c1)/(√(v/c2)+eps) = (lr·√c2/c1) · m/(√v + eps·√c2) */
struct adamw_work {
    const struct adamw *a;
    double scale, rate, eps;
};

struct adamw_vecs {
    vec p, m, v;
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

static void adamw_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct adamw_work *work = arg;
    const struct adamw *a = work->a;
    struct optim_span span = spans_part(a->spans, part_i);
    float *p = a->p.data, *m = a->m.data, *v = a->v.data;
    const float *g = a->g.data;
    struct adamw_scalars k = {
        vec_set((float)work->scale),    vec_set((float)(1 - a->beta1)),
        vec_set((float)(1 - a->beta2)), vec_set((float)work->rate),
        vec_set((float)work->eps),      vec_set((float)(a->lr * span.weight_decay))};
    int64_t i = span.offset, end = span.offset + span.elems;
    for (; i + VEC_W <= end; i += VEC_W) {
        struct adamw_vecs x = {vec_load(p + i), vec_load(m + i), vec_load(v + i)};
        x = adamw_step(&k, x, vec_load(g + i));
        vec_store(p + i, x.p);
        vec_store(m + i, x.m);
        vec_store(v + i, x.v);
    }
    if (i < end) {
        int n = (int)(end - i);
        struct adamw_vecs x = {vec_load_n(p + i, n), vec_load_n(m + i, n), vec_load_n(v + i, n)};
        x = adamw_step(&k, x, vec_load_n(g + i, n));
        vec_store_n(p + i, n, x.p);
        vec_store_n(m + i, n, x.m);
        vec_store_n(v + i, n, x.v);
    }
    if (a->copy.data) /* of a part that is in the cache */
        cast_plain(NULL, &(struct cast){tensor_at(a->copy, span.offset),
                                        tensor_at(a->p, span.offset), span.elems});
}

void CPU_FN(adamw)(const struct cpu *cpu, const struct adamw *a)
{
    double scale = grad_scale_get(a->grad_scale.data);
    if (isnan(scale))
        return;
    double c1 = 1 - pow(a->beta1, (double)a->step), c2 = 1 - pow(a->beta2, (double)a->step);
    struct adamw_work work = {a, scale, a->lr * sqrt(c2) / c1, a->eps * sqrt(c2)};
    thread_pool_run(cpu->pool, spans_parts(a->spans, a->spans_n), adamw_part, &work);
}

struct sgd_work {
    const struct sgd *a;
    double scale;
};

static void sgd_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct sgd_work *work = arg;
    const struct sgd *a = work->a;
    struct optim_span span = spans_part(a->spans, part_i);
    float *p = (float *)a->p.data + span.offset;
    const float *g = (const float *)a->g.data + span.offset;
    float scale = (float)work->scale, decay = span.weight_decay, lr = (float)a->lr;
    float momentum = a->step > 1 ? (float)a->momentum : 0;
    if (a->momentum == 0) {
        for (int64_t i = 0; i < span.elems; i++)
            p[i] -= lr * (g[i] * scale + decay * p[i]);
        return;
    }
    float *m = (float *)a->m.data + span.offset;
    for (int64_t i = 0; i < span.elems; i++) {
        /* step 1: m is not read */
        float old = momentum == 0 ? 0 : momentum * m[i];
        m[i] = old + (g[i] * scale + decay * p[i]);
        p[i] -= lr * m[i];
    }
}

void CPU_FN(sgd)(const struct cpu *cpu, const struct sgd *a)
{
    struct sgd_work work = {a, grad_scale_get(a->grad_scale.data)};
    if (isnan(work.scale))
        return;
    thread_pool_run(cpu->pool, spans_parts(a->spans, a->spans_n), sgd_part, &work);
}
