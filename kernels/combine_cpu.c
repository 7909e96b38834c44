/* combine_cpu — two sources of f32 (the gradients of virtual shards) at the speed of memory; others
 * by the loop of the plain truth, for tests that replace a GPU: comm itself computes the sums
 * between ranks on CPUs. */
#include "kernels/combine.h"

#include "kernels/cpu.h"

#define RANGE_ELEMS 65536

static bool is_pair(const struct combine *a)
{
    return a->sources_n == 2 && a->out.dtype == DTYPE_F32 && a->in.dtype == DTYPE_F32 &&
           a->own.dtype == DTYPE_F32;
}

/* Adds two arrays; out may be x or y. */
static void add_pair(float *out, const float *x, const float *y, int64_t n)
{
#ifndef __clang__ /* clang does not have it */
#pragma GCC ivdep
#endif
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] + y[i];
}

static void combine_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct combine *a = arg;
    int64_t i = (int64_t)range_i * RANGE_ELEMS;
    struct combine range = *a;
    range.out = tensor_at(a->out, i);
    range.in = tensor_at(a->in, i);
    range.own = tensor_at(a->own, i);
    range.elems = cpu_range_end(a->elems, RANGE_ELEMS, range_i) - i;
    if (is_pair(a)) /* the source that is not own */
        add_pair(range.out.data, range.own.data,
                 tensor_at(range.in, (1 - a->own_i) * a->stride).data, range.elems);
    else
        combine_plain(NULL, &range);
}

void CPU_FN(combine)(const struct cpu *cpu, const struct combine *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(a->elems, RANGE_ELEMS), combine_range, (void *)a);
}
