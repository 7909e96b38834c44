/* peak_cpu — see peak.h. */
#include "kernels/peak.h"

#include "base/clock.h"
#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"
#ifdef CPU_AMX
#include "kernels/gemm_amx_tile_cpu.h"
#endif

/* Independent sums: at least FMA latency (4) × FMA units (2, on aarch64 up to 4); few enough for 16
 * registers (NEON: 32). */
#ifdef CPU_NEON
#define PEAK_CHAINS 24
#else
#define PEAK_CHAINS 12
#endif
#define PEAK_RUN 4096 /* multiply-adds of each sum between looks at the clock */
#define PEAK_RANGE 65536

struct peak_fma {
    double seconds;
    double rate[THREAD_POOL_MAX]; /* rate of each thread */
};

#ifdef CPU_AMX
/* A run of products of one block with another, all in the first-level cache. */
#define PEAK_FLOPS (2.0 * PEAK_RUN * GEMM_NR * GEMM_NR)
static float peak_chains(float scale, float shift)
{
    _Alignas(64) char blocks[2][GEMM_BLOCK];
    (void)scale, (void)shift;
    memset(blocks, 0x3f, sizeof blocks); /* 0.75 everywhere */
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(&gemm_tiles);
    gemm_block_first(blocks[0], blocks[1]);
    for (int run = 0; run < PEAK_RUN / GEMM_STEP; run++)
        gemm_block(blocks[0], blocks[1], blocks[0], blocks[1], NULL);
    _tile_release();
    return 0.0f;
}
#else
#define PEAK_FLOPS (2.0 * PEAK_RUN * PEAK_CHAINS * VEC_W)
static float peak_chains(float scale, float shift)
{
    vec acc[PEAK_CHAINS], m = vec_set(scale), s = vec_set(shift);
#pragma GCC unroll 24
    for (int i = 0; i < PEAK_CHAINS; i++)
        acc[i] = vec_set((float)i);
    for (int run = 0; run < PEAK_RUN; run++)
#pragma GCC unroll 24
        for (int i = 0; i < PEAK_CHAINS; i++)
            acc[i] = vec_fma(acc[i], m, s);
#pragma GCC unroll 24
    for (int i = 1; i < PEAK_CHAINS; i++)
        acc[0] += acc[i];
    return vec_sum(acc[0]);
}
#endif

static void peak_fma_task(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    struct peak_fma *p = arg;
    /* so that the compiler cannot compute it beforehand */
    volatile float scale = 0.999f, shift = 0.001f, sink;
    int64_t start = clock_ns(), runs = 0, now;
    do {
        sink = peak_chains(scale, shift);
        runs++;
        now = clock_ns();
    } while ((double)(now - start) < p->seconds * 1e9);
    (void)sink;
    p->rate[task_i] = (double)runs * PEAK_FLOPS * 1e9 / (double)(now - start);
}

#ifdef CPU_AMX
double peak_amx(const struct cpu *cpu, double seconds)
#else
double CPU_FN(peak_fma)(const struct cpu *cpu, double seconds)
#endif
{
    struct peak_fma p = {.seconds = seconds};
    int threads_n = thread_pool_threads(cpu->pool);
    thread_pool_run(cpu->pool, threads_n, peak_fma_task, &p);
    double sum = 0;
    for (int i = 0; i < threads_n; i++)
        sum += p.rate[i];
    return sum;
}

#ifndef CPU_AMX
struct peak_update {
    float *data;
    int64_t n;
};

static void peak_update_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct peak_update *p = arg;
    int64_t from = (int64_t)range_i * PEAK_RANGE,
            to = from + PEAK_RANGE < p->n ? from + PEAK_RANGE : p->n;
    for (; from + VEC_W <= to; from += VEC_W)
        vec_store(p->data + from, vec_load(p->data + from) + vec_set(1.0f));
    for (; from < to; from++)
        p->data[from] += 1.0f;
}

static void peak_read_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct peak_update *p = arg;
    int64_t from = (int64_t)range_i * PEAK_RANGE,
            to = from + PEAK_RANGE < p->n ? from + PEAK_RANGE : p->n;
    vec sum[4] = {{0}};
    for (; from + 4 * VEC_W <= to; from += 4 * VEC_W)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum[i] += vec_load(p->data + from + i * VEC_W);
    volatile float sink = vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    (void)sink;
}

/* Returns nanoseconds of the fastest of `repeats` passes. */
static double peak_pass(const struct cpu *cpu, float *data, int64_t n, int repeats,
                        thread_pool_fn *range)
{
    struct peak_update p = {data, n};
    int64_t best = INT64_MAX;
    for (int i = 0; i < repeats; i++) {
        int64_t start = clock_ns();
        thread_pool_run(cpu->pool, (int)((n + PEAK_RANGE - 1) / PEAK_RANGE), range, &p);
        int64_t elapsed_ns = clock_ns() - start;
        best = elapsed_ns < best ? elapsed_ns : best;
    }
    return (double)(best > 0 ? best : 1);
}

double CPU_FN(peak_update)(const struct cpu *cpu, float *data, int64_t n, int repeats)
{
    return 8.0 * (double)n * 1e9 / peak_pass(cpu, data, n, repeats, peak_update_range);
}

double CPU_FN(peak_read)(const struct cpu *cpu, float *data, int64_t n, int repeats)
{
    return 4.0 * (double)n * 1e9 / peak_pass(cpu, data, n, repeats, peak_read_range);
}
#endif
