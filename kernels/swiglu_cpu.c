/* swiglu_cpu — the fast gated activation and its gradient, at the speed of memory: each task
 * processes a range of the elements, which may span rows. */
#include "kernels/swiglu.h"

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

#define RANGE_ELEMS 16384

/* s = 1/(1+exp(-g)) and 1-s, from exp(-|g|), which never overflows. */
struct gate {
    vec s, rest;
};
static inline struct gate gate_of(vec g)
{
    vec e = vec_exp(vec_min(-g, g)), r = vec_recip(vec_set(1.0f) + e), small = e * r;
    veci is_positive = g > vec_set(0);
    return (struct gate){vec_select(is_positive, r, small), vec_select(is_positive, small, r)};
}

static inline vec apply_gate(vec g, vec u) { return g * gate_of(g).s * u; }

static void swiglu_fwd_run(float *y, const float *g, const float *u, int64_t n)
{
    int64_t i = 0;
    for (; i + VEC_W <= n; i += VEC_W)
        vec_store(y + i, apply_gate(vec_load(g + i), vec_load(u + i)));
    if (i < n) {
        int left = (int)(n - i);
        vec_store_n(y + i, left, apply_gate(vec_load_n(g + i, left), vec_load_n(u + i, left)));
    }
}

/* run_end — returns the end of a range's run that begins at element `at`: the end of its row, or of
 * the range. */
static int64_t run_end(int64_t at, int64_t end, int64_t f)
{
    int64_t row_end = (at / f + 1) * f;
    return row_end < end ? row_end : end;
}

static void swiglu_fwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct swiglu_fwd *a = arg;
    int64_t at = (int64_t)range_i * RANGE_ELEMS, next,
            end = cpu_range_end(a->n * a->f, RANGE_ELEMS, range_i);
    for (; at < end; at = next) {
        const float *g = (const float *)a->gu.data + at + at / a->f * a->f;
        next = run_end(at, end, a->f);
        swiglu_fwd_run((float *)a->y.data + at, g, g + a->f, next - at);
    }
}

void CPU_FN(swiglu_fwd)(const struct cpu *cpu, const struct swiglu_fwd *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n * a->f, RANGE_ELEMS), swiglu_fwd_range, (void *)a);
}

struct gradient {
    vec dg, du;
};
static inline struct gradient gradient_of(vec dy, vec g, vec u)
{
    struct gate x = gate_of(g);
    vec slope = x.s * vec_fma(g, x.rest, vec_set(1.0f));
    return (struct gradient){dy * u * slope, dy * (g * x.s)};
}

static void swiglu_bwd_run(float *dg, float *du, const float *dy, const float *g, const float *u,
                           int64_t n)
{
    int64_t i = 0;
    for (; i + VEC_W <= n; i += VEC_W) {
        struct gradient d = gradient_of(vec_load(dy + i), vec_load(g + i), vec_load(u + i));
        vec_store(dg + i, d.dg);
        vec_store(du + i, d.du);
    }
    if (i < n) {
        int left = (int)(n - i);
        struct gradient d =
            gradient_of(vec_load_n(dy + i, left), vec_load_n(g + i, left), vec_load_n(u + i, left));
        vec_store_n(dg + i, left, d.dg);
        vec_store_n(du + i, left, d.du);
    }
}

static void swiglu_bwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct swiglu_bwd *a = arg;
    int64_t at = (int64_t)range_i * RANGE_ELEMS, next,
            end = cpu_range_end(a->n * a->f, RANGE_ELEMS, range_i);
    for (; at < end; at = next) {
        int64_t wide = at + at / a->f * a->f;
        const float *g = (const float *)a->gu.data + wide;
        float *dg = (float *)a->dgu.data + wide;
        next = run_end(at, end, a->f);
        swiglu_bwd_run(dg, dg + a->f, (const float *)a->dy.data + at, g, g + a->f, next - at);
    }
}

void CPU_FN(swiglu_bwd)(const struct cpu *cpu, const struct swiglu_bwd *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n * a->f, RANGE_ELEMS), swiglu_bwd_range, (void *)a);
}
