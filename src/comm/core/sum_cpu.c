/* sum_cpu — the sums of sum.c for one ISA level. The Makefile compiles this file for x86-64 levels
 * 2, 3 and 4 (CPU_ISA) or for aarch64 (CPU_NEON), and once without a level for any processor. Must
 * not know which level is chosen. There are two ways:
 *   - up to four fp32 sources: in registers, 64 elements at a time; the tree is the same for each
 *     nodes × locals;
 *   - everything else: blocks of SUM_BLOCK elements in the first-level cache. */
#include "comm/core/sum_isa.h"

#ifndef CPU_ISA
#define CPU_ISA 0
#endif

#if CPU_ISA > 0 || defined(__SSE2__)
#include <immintrin.h>
#elif defined(CPU_NEON)
#include <arm_neon.h>
#endif

#include "comm/core/sum.h"
#include "kernels/f16.h"

#define SUM_BLOCK 512 /* elements of a block */
#define SUM_SHORT 64  /* elements of a block that needs less memory on the stack, at most */
#define SUM_DEPTH 16  /* levels of two nested trees of 4096 sources together, and one */

#if CPU_ISA > 0
#define SUM_PASTE2(name, level) name##_v##level
#define SUM_PASTE(name, level) SUM_PASTE2(name, level)
#define SUM_FN(name) SUM_PASTE(name, CPU_ISA)
#elif defined(CPU_NEON)
#define SUM_FN(name) name##_neon
#else
#define SUM_FN(name) name##_plain
#endif

typedef float sum_vec __attribute__((vector_size(64), aligned(4), may_alias));

union sum_bits {
    uint32_t u;
    float f;
};

struct sum_work {
    const struct sum_args *a;
    int64_t i, block_n;
    double *sums; /* SUM_DEPTH × level_elems, 64-aligned; written before they are read */
    int64_t level_elems;
    uint16_t *rounded; /* level_elems */
};

static double *level_sum(const struct sum_work *w, int level)
{
    return w->sums + level * w->level_elems;
}

/* Stores 16 floats with non-temporal stores, if the processor has them. */
static inline __attribute__((always_inline)) void sum_store_nt(float *to, const sum_vec *x)
{
#if CPU_ISA == 4
    _mm512_stream_ps(to, _mm512_loadu_ps(x));
#elif CPU_ISA == 3
    for (int k = 0; k < 2; k++)
        _mm256_stream_ps(to + 8 * k, _mm256_loadu_ps((const float *)x + 8 * k));
#elif defined(__SSE2__)
    for (int k = 0; k < 4; k++)
        _mm_stream_ps(to + 4 * k, _mm_loadu_ps((const float *)x + 4 * k));
#else
    *(sum_vec *)(void *)to = *x;
#endif
}

/* Loads and sums up to four sources: ((0+1)+(2+3)), ((0+1)+2). This is the tree of 1×n, n×1 and
 * 2×2. */
#define SUM_STEP_OF(type, x, at)                          \
    type x = *(const type *)(const void *)(in[0] + (at)); \
    if (n > 1)                                            \
        x += *(const type *)(const void *)(in[1] + (at)); \
    if (n == 3)                                           \
        x += *(const type *)(const void *)(in[2] + (at)); \
    if (n == 4)                                           \
    x += *(const type *)(const void *)(in[2] + (at)) + *(const type *)(const void *)(in[3] + (at))
#define SUM_STEP(x, at) SUM_STEP_OF(sum_vec, x, at)

static inline __attribute__((always_inline)) int64_t few_n(const struct sum_args *a, const int n)
{
    const float *in[4];
    for (int s = 0; s < n; s++)
        in[s] = a->in[s];
    int64_t i = 0;
    for (; i + 64 <= a->elems; i += 64) {
        for (int s = 0; s < n; s++)
            __builtin_prefetch(in[s] + i + 256);
        SUM_STEP(x0, i);
        SUM_STEP(x1, i + 16);
        SUM_STEP(x2, i + 32);
        SUM_STEP(x3, i + 48);
        for (int o = 0; o < a->outs_n; o++) {
            float *out = (float *)a->out[o] + i;
            if (a->is_nt) {
                sum_store_nt(out, &x0);
                sum_store_nt(out + 16, &x1);
                sum_store_nt(out + 32, &x2);
                sum_store_nt(out + 48, &x3);
            } else {
                *(sum_vec *)(void *)out = x0;
                *(sum_vec *)(void *)(out + 16) = x1;
                *(sum_vec *)(void *)(out + 32) = x2;
                *(sum_vec *)(void *)(out + 48) = x3;
            }
        }
    }
    for (; i + 16 <= a->elems; i += 16) {
        SUM_STEP(x, i);
        for (int o = 0; o < a->outs_n; o++)
            *(sum_vec *)(void *)((float *)a->out[o] + i) = x;
    }
    for (; i < a->elems; i++) {
        SUM_STEP_OF(float, x, i);
        for (int o = 0; o < a->outs_n; o++)
            ((float *)a->out[o])[i] = x;
    }
    return i;
}

/* Sums up to four sources and returns the number of elements summed; 0: there are more sources. */
static int64_t sum_few(const struct sum_args *a)
{
    switch (a->nodes * a->locals) {
    case 1:
        return few_n(a, 1);
    case 2:
        return few_n(a, 2);
    case 3:
        return few_n(a, 3);
    case 4:
        return few_n(a, 4);
    default:
        return 0;
    }
}

/* Sets sum (n) to f16 numbers, or adds them; levels 3 and 4 and NEON have instructions for them. */
static void add_f16(float *restrict to, const uint16_t *restrict from, int64_t n, bool is_first)
{
    int64_t j = 0;
#if CPU_ISA >= 3
    for (; j + 8 <= n; j += 8) {
        __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + j)));
        _mm256_storeu_ps(to + j, is_first ? x : _mm256_add_ps(_mm256_loadu_ps(to + j), x));
    }
#elif defined(CPU_NEON)
    for (; j + 4 <= n; j += 4) {
        float32x4_t x = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + j)));
        vst1q_f32(to + j, is_first ? x : vaddq_f32(vld1q_f32(to + j), x));
    }
#endif
    for (; j < n; j++)
        to[j] = is_first ? f16_to_float(from[j]) : to[j] + f16_to_float(from[j]);
}

/* Sets sum (block_n) to source s from element w->i, widened to the type of the sum, or adds it. */
static void add_source(struct sum_work *w, void *sum, int s, bool is_first)
{
    const int64_t n = w->block_n;
    if (w->a->dtype_in == DTYPE_F64) {
        double *restrict to = sum;
        const double *restrict from = (const double *)w->a->in[s] + w->i;
        for (int64_t j = 0; j < n; j++)
            to[j] = is_first ? from[j] : to[j] + from[j];
    } else if (w->a->dtype_in == DTYPE_F32) {
        float *restrict to = sum;
        const float *restrict from = (const float *)w->a->in[s] + w->i;
        for (int64_t j = 0; j < n; j++)
            to[j] = is_first ? from[j] : to[j] + from[j];
    } else if (w->a->dtype_in == DTYPE_F16) {
        add_f16(sum, (const uint16_t *)w->a->in[s] + w->i, n, is_first);
    } else {
        float *restrict to = sum;
        const uint16_t *restrict from = (const uint16_t *)w->a->in[s] + w->i;
        for (int64_t j = 0; j < n; j++) {
            union sum_bits wide = {.u = (uint32_t)from[j] << 16};
            to[j] = is_first ? wide.f : to[j] + wide.f;
        }
    }
}

/* Sums n neighbours from `first`, which are nodes (w->a->locals sources each) or sources. */
static void sum_subtree(struct sum_work *w, int first, int n, bool is_nodes, int level)
{
    void *sum = level_sum(w, level);
    if (n == 1) {
        if (is_nodes)
            sum_subtree(w, first * w->a->locals, w->a->locals, false, level);
        else
            add_source(w, sum, first, true);
        return;
    }
    int left = sum_tree_left(n);
    sum_subtree(w, first, left, is_nodes, level);
    if (n - left == 1 && (!is_nodes || w->a->locals == 1)) {
        add_source(w, sum, first + left, false);
        return;
    }
    sum_subtree(w, first + left, n - left, is_nodes, level + 1);
    const void *more = level_sum(w, level + 1);
    if (w->a->dtype_in == DTYPE_F64) {
        double *restrict to = sum;
        const double *restrict from = more;
        for (int64_t j = 0; j < w->block_n; j++)
            to[j] += from[j];
    } else {
        float *restrict to = sum;
        const float *restrict from = more;
        for (int64_t j = 0; j < w->block_n; j++)
            to[j] += from[j];
    }
}

static void round_bf16(uint16_t *restrict out, const float *restrict in, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        union sum_bits x = {.f = in[j]};
        uint32_t rounded = (x.u + 0x7fff + (x.u >> 16 & 1)) >> 16, quiet = x.u >> 16 | 0x40;
        out[j] = (uint16_t)((x.u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
    }
}

static void round_f16(uint16_t *restrict out, const float *restrict in, int64_t n)
{
    int64_t j = 0;
#if CPU_ISA >= 3
    for (; j + 8 <= n; j += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + j),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + j), _MM_FROUND_TO_NEAREST_INT));
#elif defined(CPU_NEON)
    for (; j + 4 <= n; j += 4)
        vst1_u16(out + j, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(in + j))));
#endif
    for (; j < n; j++)
        out[j] = f16_from_float(in[j]);
}

static void sum_blocks(struct sum_work *w)
{
    const struct sum_args *a = w->a;
    const int64_t out_bytes = (int64_t)dtype_bytes(a->dtype_out);
    for (; w->i < a->elems; w->i += w->level_elems) {
        w->block_n = a->elems - w->i < w->level_elems ? a->elems - w->i : w->level_elems;
        sum_subtree(w, 0, a->nodes, true, 0);
        const void *sum = w->sums;
        if (a->dtype_out == DTYPE_BF16)
            round_bf16(w->rounded, sum, w->block_n);
        else if (a->dtype_out == DTYPE_F16)
            round_f16(w->rounded, sum, w->block_n);
        if (dtype_bytes(a->dtype_out) == sizeof *w->rounded)
            sum = w->rounded;
        for (int o = 0; o < a->outs_n; o++)
            sum_copy((char *)a->out[o] + w->i * out_bytes, sum, w->block_n * out_bytes, a->is_nt);
    }
}

/* A function of its own: a stack frame of 65 KiB is probed page by page, which needs longer than a
 * short sum. */
static __attribute__((noinline)) void blocks_long(const struct sum_args *a, int64_t i)
{
    double sums[SUM_DEPTH][SUM_BLOCK] __attribute__((aligned(64)));
    uint16_t rounded[SUM_BLOCK] __attribute__((aligned(64)));
    sum_blocks(&(struct sum_work){
        .a = a, .i = i, .sums = sums[0], .level_elems = SUM_BLOCK, .rounded = rounded});
}

static __attribute__((noinline)) void blocks_short(const struct sum_args *a, int64_t i)
{
    double sums[SUM_DEPTH][SUM_SHORT] __attribute__((aligned(64)));
    uint16_t rounded[SUM_SHORT] __attribute__((aligned(64)));
    sum_blocks(&(struct sum_work){
        .a = a, .i = i, .sums = sums[0], .level_elems = SUM_SHORT, .rounded = rounded});
}

void SUM_FN(sum_isa)(const struct sum_args *a)
{
    const bool is_float = a->dtype_in == DTYPE_F32 && a->dtype_out == DTYPE_F32;
    const int64_t done = is_float ? sum_few(a) : 0;
    if (a->elems - done > SUM_SHORT)
        blocks_long(a, done);
    else if (a->elems > done)
        blocks_short(a, done);
}
