/* gelu_cpu — fast GELU and its gradient, at the speed of memory: each task processes a range of the
 * elements. */
#include "kernels/gelu.h"

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

#define RANGE_ELEMS 32768

/* The density's exponential, and Φ(x) made of it (gelu.h): for x > 0 it is 1 - Φ(-x). */
struct normal {
    vec bell, phi;
};
static inline struct normal normal_of(vec x)
{
    vec a = vec_min(vec_set(GELU_ERF_MOST), vec_max(-x, x));
    vec bell = vec_exp(vec_set(-0.5f) * a * a), q = vec_set(0);
    vec t = vec_recip(vec_fma(vec_set(GELU_ERF_STEP), a, vec_set(1.0f)));
#define NEXT(coefficient) q = vec_fma(q, t, vec_set(coefficient));
    GELU_ERF_LIST(NEXT)
#undef NEXT
    vec tail = bell * t * q;
    return (struct normal){bell, vec_select(x > vec_set(0), vec_set(1.0f) - tail, tail)};
}

static inline vec erf_gelu(vec x) { return x * normal_of(x).phi; }

/* Φ(x) + x·exp(-x²/2)/√(2π) */
static inline vec erf_gelu_grad(vec x)
{
    struct normal n = normal_of(x);
    return vec_fma(x * vec_set(0.398942280401432678f), n.bell, n.phi);
}

/* Computes elements i … end-1. Inlined with the function that it is called with. */
static inline __attribute__((always_inline)) void fwd_vecs(float *y, const float *x, int64_t i,
                                                           int64_t end, vec gelu(vec))
{
    for (; i + VEC_W <= end; i += VEC_W)
        vec_store(y + i, gelu(vec_load(x + i)));
    if (i < end)
        vec_store_n(y + i, (int)(end - i), gelu(vec_load_n(x + i, (int)(end - i))));
}

static void gelu_fwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct gelu_fwd *a = arg;
    const int64_t step = (int64_t)VEC_SOME * VEC_W;
    float *y = a->y.data;
    const float *x = a->x.data;
    int64_t i = (int64_t)range_i * RANGE_ELEMS, end = cpu_range_end(a->n, RANGE_ELEMS, range_i);
    for (; i + step <= end; i += step)
        vec_gelu_some(y + i, x + i, VEC_SOME);
    fwd_vecs(y, x, i, end, vec_gelu);
}

static void erf_fwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct gelu_fwd *a = arg;
    fwd_vecs(a->y.data, a->x.data, (int64_t)range_i * RANGE_ELEMS,
             cpu_range_end(a->n, RANGE_ELEMS, range_i), erf_gelu);
}

void CPU_FN(gelu_fwd)(const struct cpu *cpu, const struct gelu_fwd *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ELEMS),
                    a->kind == GELU_KIND_ERF ? erf_fwd_range : gelu_fwd_range, (void *)a);
}

static inline __attribute__((always_inline)) void bwd_range(const struct gelu_bwd *a, int range_i,
                                                            vec gelu_grad(vec))
{
    float *dx = a->dx.data;
    const float *dy = a->dy.data, *x = a->x.data;
    int64_t i = (int64_t)range_i * RANGE_ELEMS, end = cpu_range_end(a->n, RANGE_ELEMS, range_i);
    for (; i + VEC_W <= end; i += VEC_W)
        vec_store(dx + i, vec_load(dy + i) * gelu_grad(vec_load(x + i)));
    if (i < end) {
        int n = (int)(end - i);
        vec_store_n(dx + i, n, vec_load_n(dy + i, n) * gelu_grad(vec_load_n(x + i, n)));
    }
}

static void gelu_bwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    bwd_range(arg, range_i, vec_gelu_grad);
}

static void erf_bwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    bwd_range(arg, range_i, erf_gelu_grad);
}

void CPU_FN(gelu_bwd)(const struct cpu *cpu, const struct gelu_bwd *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ELEMS),
                    a->kind == GELU_KIND_ERF ? erf_bwd_range : gelu_bwd_range, (void *)a);
}
