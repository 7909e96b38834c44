/* cast_cpu — the loop of the plain truth, cut into ranges for the threads. No step of training on a
 * CPU casts; only code that prepares or reads 16-bit numbers for another device does. */
#include "kernels/cast.h"

#include "kernels/cpu.h"

#define RANGE_ELEMS 65536

static void cast_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct cast *a = arg;
    int64_t i = (int64_t)range_i * RANGE_ELEMS, end = cpu_range_end(a->n, RANGE_ELEMS, range_i);
    cast_plain(NULL, &(struct cast){tensor_at(a->y, i), tensor_at(a->x, i), end - i});
}

void CPU_FN(cast)(const struct cpu *cpu, const struct cast *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->n, RANGE_ELEMS), cast_range, (void *)a);
}
