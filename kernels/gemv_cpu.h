/* gemv_cpu — a matrix by one vector. Each element of the matrix is read once, so only memory
 * bandwidth determines the time.
 *
 * Included by *_cpu.c files only; it must not know what the matrix means. Rows are `step` elements
 * apart and are prefetched GEMV_AHEAD rows ahead, because no hardware prefetcher follows rows that
 * far apart. The shape determines the order of sums; long ones are summed in runs of GEMV_RUN
 * terms, so that rounding errors do not grow with them. */
#ifndef CONVOY_KERNELS_GEMV_CPU_H
#define CONVOY_KERNELS_GEMV_CPU_H

#include "kernels/vec_cpu.h"

#define GEMV_VECS 4
#define GEMV_COLS (GEMV_VECS * VEC_W)
#define GEMV_RUN 256
#define GEMV_AHEAD 16
#define GEMV_FETCH 1024 /* rows without gaps: elements to prefetch ahead */

/* gemv_dot — returns Σ_i w[i]·x[i] over k elements. Prefetches `ahead` elements on, in later
 * rows. */
static inline float gemv_dot(const float *w, const float *x, int64_t k, int64_t ahead)
{
    vec sum[GEMV_VECS] = {{0}};
    int64_t i = 0;
    for (; i + GEMV_COLS <= k; i += GEMV_COLS)
#pragma GCC unroll 4
        for (int v = 0; v < GEMV_VECS; v++) {
            if (v * VEC_W % 16 == 0)
                __builtin_prefetch(w + i + v * VEC_W + ahead, 0, 3);
            sum[v] = vec_fma(vec_load(w + i + v * VEC_W), vec_load(x + i + v * VEC_W), sum[v]);
        }
    for (; i + VEC_W <= k; i += VEC_W)
        sum[0] = vec_fma(vec_load(w + i), vec_load(x + i), sum[0]);
    if (i < k)
        sum[1] = vec_fma(vec_load_n(w + i, (int)(k - i)), vec_load_n(x + i, (int)(k - i)), sum[1]);
    return vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* gemv_columns — sums[j] = Σ_i x[i]·w[i·step + j] for GEMV_COLS columns. */
static inline void gemv_columns(const float *w, int64_t step, const float *x, int64_t k,
                                float *sums)
{
    vec total[GEMV_VECS] = {{0}};
    for (int64_t from = 0; from < k; from += GEMV_RUN) {
        int64_t to = k - from < GEMV_RUN ? k : from + GEMV_RUN;
        vec sum[GEMV_VECS] = {{0}};
        for (int64_t i = from; i < to; i++, w += step) {
            vec factor = vec_set(x[i]);
#pragma GCC unroll 4
            for (int v = 0; v < GEMV_VECS; v++) {
                if (v * VEC_W % 16 == 0)
                    __builtin_prefetch(w + GEMV_AHEAD * step + v * VEC_W, 0, 3);
                sum[v] = vec_fma(vec_load(w + v * VEC_W), factor, sum[v]);
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < GEMV_VECS; v++)
            total[v] += sum[v];
    }
    for (int v = 0; v < GEMV_VECS; v++)
        vec_store(sums + v * VEC_W, total[v]);
}

/* gemv_columns_n — does the same for n < GEMV_COLS columns; sums beyond n are zero up to a whole
 * vector. */
static inline void gemv_columns_n(const float *w, int64_t step, const float *x, int64_t k, int n,
                                  float *sums)
{
    for (int j = 0; j < n; j += VEC_W) {
        vec sum = {0}, total = {0};
        int cols = n - j < VEC_W ? n - j : VEC_W;
        for (int64_t i = 0; i < k; i++) {
            const float *at = w + i * step + j;
            sum = vec_fma(cols == VEC_W ? vec_load(at) : vec_load_n(at, cols), vec_set(x[i]), sum);
            if (i % GEMV_RUN == GEMV_RUN - 1) {
                total += sum;
                sum = (vec){0};
            }
        }
        vec_store(sums + j, total + sum);
    }
}

#endif
