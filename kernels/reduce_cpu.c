/* reduce_cpu — fast whole-tensor sums in double: blocks of 4096, each by lanes, then the blocks
 * pairwise. The order depends only on the length. The blocks' sums lie in cpu->shared. */
#include "kernels/reduce.h"

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

#define RANGE_BLOCKS 32
#define REDUCE_LANES 32

struct reduce_work {
    const float *x;
    int64_t n;
    double *blocks;
    bool square;
};

/* reduce_lanes — adds up n elements, or their squares. 32 running sums keep every unit of a wide
 * core busy; they are folded onto each other at the end. The order depends on n only. */
static double reduce_lanes(const float *restrict x, int64_t n, bool square)
{
    double lane[REDUCE_LANES] = {0};
    int64_t i = 0;
    if (square)
        for (; i + REDUCE_LANES <= n; i += REDUCE_LANES)
            for (int l = 0; l < REDUCE_LANES; l++)
                lane[l] += (double)x[i + l] * (double)x[i + l];
    else
        for (; i + REDUCE_LANES <= n; i += REDUCE_LANES)
            for (int l = 0; l < REDUCE_LANES; l++)
                lane[l] += (double)x[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += square ? (double)x[i] * (double)x[i] : (double)x[i];
    for (int half = REDUCE_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static void reduce_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct reduce_work *work = arg;
    int64_t blocks_n = cpu_ranges(work->n, REDUCE_BLOCK_ELEMS),
            end = cpu_range_end(blocks_n, RANGE_BLOCKS, range_i);
    for (int64_t block = (int64_t)range_i * RANGE_BLOCKS; block < end; block++) {
        int64_t first = block * REDUCE_BLOCK_ELEMS,
                n = work->n - first < REDUCE_BLOCK_ELEMS ? work->n - first : REDUCE_BLOCK_ELEMS;
        work->blocks[block] = reduce_lanes(work->x + first, n, work->square);
    }
}

static double reduce_pairwise(const double *x, int64_t n)
{
    if (n <= 2)
        return n == 2 ? x[0] + x[1] : n == 1 ? x[0] : 0;
    return reduce_pairwise(x, n / 2) + reduce_pairwise(x + n / 2, n - n / 2);
}

static void reduce_blocks(const struct cpu *cpu, struct reduce_work *work)
{
    int64_t blocks_n = cpu_ranges(work->n, REDUCE_BLOCK_ELEMS);
    thread_pool_run(cpu->pool, cpu_ranges(blocks_n, RANGE_BLOCKS), reduce_range, work);
}

static void reduce_run(const struct cpu *cpu, struct reduce_work work, double *out, bool accumulate)
{
    int64_t blocks_n = cpu_ranges(work.n, REDUCE_BLOCK_ELEMS);
    ASSERTF((size_t)blocks_n <= CPU_SHARED_BYTES / sizeof(double), "%lld elements",
            (long long)work.n);
    work.blocks = (double *)(void *)cpu->shared;
    reduce_blocks(cpu, &work);
    *out = reduce_pairwise(work.blocks, blocks_n) + (accumulate ? *out : 0);
}

void CPU_FN(sum)(const struct cpu *cpu, const struct sum *a)
{
    reduce_run(cpu, (struct reduce_work){.x = a->x.data, .n = a->n}, a->out.data, a->accumulate);
}

void CPU_FN(sumsq)(const struct cpu *cpu, const struct sumsq *a)
{
    struct reduce_work work = {.x = a->x.data, .n = a->n, .blocks = a->out.data, .square = true};
    if (a->by_block)
        reduce_blocks(cpu, &work);
    else
        reduce_run(cpu, work, a->out.data, a->accumulate);
}
