/* softcap_cpu — the fast soft cap: each task processes a row. */
#include "kernels/softcap.h"

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

/* Returns tanh(z): near 0, where vec_tanh has few digits, by its series up to z^9. */
static inline vec tanh_near(vec z)
{
    vec q = z * z, p = vec_set(62.0f / 2835);
    p = vec_fma(p, q, vec_set(-17.0f / 315));
    p = vec_fma(p, q, vec_set(2.0f / 15));
    p = vec_fma(p, q, vec_set(-1.0f / 3));
    return vec_fma(p * q, z, z);
}

static inline vec apply_cap(vec x, vec cap, vec inverse)
{
    vec z = x * inverse, a = vec_max(-z, z);
    return cap * vec_select(a < vec_set(0.3f), tanh_near(z), vec_tanh(z));
}

static void softcap_row(void *arg, int n, int thread_i)
{
    (void)thread_i;
    const struct softcap *a = arg;
    float *row = (float *)a->x.data + n * a->stride;
    vec cap = vec_set(a->cap), inverse = vec_set(1 / a->cap);
    int64_t i = 0;
    for (; i + VEC_W <= a->v; i += VEC_W)
        vec_store(row + i, apply_cap(vec_load(row + i), cap, inverse));
    if (i < a->v) {
        int left = (int)(a->v - i);
        vec_store_n(row + i, left, apply_cap(vec_load_n(row + i, left), cap, inverse));
    }
}

void CPU_FN(softcap)(const struct cpu *cpu, const struct softcap *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, 1), softcap_row, (void *)a);
}
