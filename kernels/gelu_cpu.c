/* gelu_cpu — fast GELU and its gradient, at the speed of memory: each task takes a part of the
 * elements. */
#include "kernels/gelu.h"

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

#define PART_ELEMS 32768

static void gelu_fwd_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct gelu_fwd *a = arg;
    float *y = a->y.data;
    const float *x = a->x.data;
    int64_t i = (int64_t)part_i * PART_ELEMS, end = cpu_part_end(a->n, PART_ELEMS, part_i);
    for (; i + VEC_W <= end; i += VEC_W)
        vec_store(y + i, vec_gelu(vec_load(x + i)));
    if (i < end)
        vec_store_n(y + i, (int)(end - i), vec_gelu(vec_load_n(x + i, (int)(end - i))));
}

void CPU_FN(gelu_fwd)(const struct cpu *cpu, const struct gelu_fwd *a)
{
    thread_pool_run(cpu->pool, cpu_parts(a->n, PART_ELEMS), gelu_fwd_part, (void *)a);
}

static void gelu_bwd_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct gelu_bwd *a = arg;
    float *dx = a->dx.data;
    const float *dy = a->dy.data, *x = a->x.data;
    int64_t i = (int64_t)part_i * PART_ELEMS, end = cpu_part_end(a->n, PART_ELEMS, part_i);
    for (; i + VEC_W <= end; i += VEC_W)
        vec_store(dx + i, vec_load(dy + i) * vec_gelu_grad(vec_load(x + i)));
    if (i < end) {
        int n = (int)(end - i);
        vec_store_n(dx + i, n, vec_load_n(dy + i, n) * vec_gelu_grad(vec_load_n(x + i, n)));
    }
}

void CPU_FN(gelu_bwd)(const struct cpu *cpu, const struct gelu_bwd *a)
{
    thread_pool_run(cpu->pool, cpu_parts(a->n, PART_ELEMS), gelu_bwd_part, (void *)a);
}
