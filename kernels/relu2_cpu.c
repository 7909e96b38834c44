/* relu2_cpu — the fast squared ReLU and its gradient, at the speed of memory: each task processes a
 * range of the elements. */
#include "kernels/relu2.h"

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

#define RANGE_ELEMS 32768

/* Uses a comparison that a NaN fails, so that it stays a NaN. */
static inline vec keep_positive(vec x) { return vec_select(x <= vec_set(0), vec_set(0), x); }

static inline vec square_positive(vec x)
{
    vec r = keep_positive(x);
    return r * r;
}

static void relu2_fwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct relu2_fwd *a = arg;
    float *y = a->y.data;
    const float *x = a->x.data;
    int64_t i = (int64_t)range_i * RANGE_ELEMS, end = cpu_range_end(a->n, RANGE_ELEMS, range_i);
    for (; i + VEC_W <= end; i += VEC_W)
        vec_store(y + i, square_positive(vec_load(x + i)));
    if (i < end)
        vec_store_n(y + i, (int)(end - i), square_positive(vec_load_n(x + i, (int)(end - i))));
}

void CPU_FN(relu2_fwd)(const struct cpu *cpu, const struct relu2_fwd *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ELEMS), relu2_fwd_range, (void *)a);
}

static inline vec scale_gradient(vec dy, vec x) { return dy * (vec_set(2) * keep_positive(x)); }

static void relu2_bwd_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct relu2_bwd *a = arg;
    float *dx = a->dx.data;
    const float *dy = a->dy.data, *x = a->x.data;
    int64_t i = (int64_t)range_i * RANGE_ELEMS, end = cpu_range_end(a->n, RANGE_ELEMS, range_i);
    for (; i + VEC_W <= end; i += VEC_W)
        vec_store(dx + i, scale_gradient(vec_load(dy + i), vec_load(x + i)));
    if (i < end) {
        int n = (int)(end - i);
        vec_store_n(dx + i, n, scale_gradient(vec_load_n(dy + i, n), vec_load_n(x + i, n)));
    }
}

void CPU_FN(relu2_bwd)(const struct cpu *cpu, const struct relu2_bwd *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ELEMS), relu2_bwd_range, (void *)a);
}
