/* combine_cpu — the loop of the plain truth, cut into parts for the threads. Sums between ranks on
 * CPUs are comm's own; this one is for tests that stand in for a GPU. */
#include "kernels/combine.h"

#include "kernels/cpu.h"

#define PART_ELEMS 65536

static void combine_part(void *arg, int part_i, int thread_i)
{
    (void)thread_i;
    const struct combine *a = arg;
    int64_t i = (int64_t)part_i * PART_ELEMS;
    struct combine part = *a;
    part.out = tensor_at(a->out, i);
    part.in = tensor_at(a->in, i);
    part.own = tensor_at(a->own, i);
    part.elems = cpu_part_end(a->elems, PART_ELEMS, part_i) - i;
    combine_plain(NULL, &part);
}

void CPU_FN(combine)(const struct cpu *cpu, const struct combine *a)
{
    thread_pool_run(cpu->pool, cpu_parts(a->elems, PART_ELEMS), combine_part, (void *)a);
}
