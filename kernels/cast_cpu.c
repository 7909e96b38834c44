/* cast_cpu — the loop of the plain truth, cut into parts for the threads. No step of training on a
 * CPU casts; only code that prepares or reads 16-bit numbers for another device does. */
#include "kernels/cast.h"

#include "kernels/cpu.h"

#define PART_ELEMS 65536

static void cast_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct cast *a = arg;
    int64_t i = (int64_t)part_i * PART_ELEMS, end = cpu_part_end(a->n, PART_ELEMS, part_i);
    cast_plain(NULL, &(struct cast){tensor_at(a->y, i), tensor_at(a->x, i), end - i});
}

void CPU_FN(cast)(const struct cpu *cpu, const struct cast *a)
{
    thread_pool_run(cpu->pool, cpu_parts(a->n, PART_ELEMS), cast_part, (void *)a);
}
