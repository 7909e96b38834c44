/* dropout_cpu — fast dropout: random words vector by vector, 256 elements at a time. */
#include "kernels/dropout.h"

#include "kernels/cpu.h"
#include "kernels/philox_cpu.h"
#include "kernels/vec_cpu.h"

#define PART_ELEMS 16384
#define TILE_ELEMS 256

static void dropout_tile(float *y, const float *x, const float *factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = factor[i] == 0 ? 0 : x[i] * factor[i];
}

static void dropout_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct drop *a = arg;
    float factor[TILE_ELEMS];
    int64_t end = cpu_part_end(a->n, PART_ELEMS, part_i);
    for (int64_t i = (int64_t)part_i * PART_ELEMS; i < end; i += TILE_ELEMS) {
        int64_t n = end - i < TILE_ELEMS ? end - i : TILE_ELEMS;
        philox_scale(&a->dropout, (uint64_t)i, n, factor);
        dropout_tile((float *)a->y.data + i, (const float *)a->x.data + i, factor, n);
    }
}

static void dropout_copy_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct drop *a = arg;
    int64_t i = (int64_t)part_i * PART_ELEMS, n = cpu_part_end(a->n, PART_ELEMS, part_i) - i;
    memcpy((float *)a->y.data + i, (const float *)a->x.data + i, (size_t)n * sizeof(float));
}

void CPU_FN(drop)(const struct cpu *cpu, const struct drop *a)
{
    if (a->dropout.p <= 0 && a->y.data == a->x.data)
        return;
    thread_pool_fn *part = a->dropout.p > 0 ? dropout_part : dropout_copy_part;
    thread_pool_run(cpu->pool, cpu_parts(a->n, PART_ELEMS), part, (void *)a);
}
