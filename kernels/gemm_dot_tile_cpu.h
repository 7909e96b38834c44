/* gemm_dot_tile_cpu — the innermost loop of products of bf16 by the dot products of AVX512_BF16,
 * for processors without AMX tiles.
 *
 * Included by gemm_bf16_cpu.h only, with CPU_BF16. It must not know threads or the meaning of the
 * product. gemm_bf16_block_cpu.h describes the layout of blocks. */
#ifndef CONVOY_KERNELS_GEMM_DOT_TILE_CPU_H
#define CONVOY_KERNELS_GEMM_DOT_TILE_CPU_H

#include "kernels/gemm_bf16_block_cpu.h"

#define GEMM_DOT_ROWS 8 /* rows of A at a time: 16 of 32 registers hold their sums */

/* gemm_dot_rows — computes out (GEMM_DOT_ROWS, GEMM_NR) = rows of packed A, from `a` on, by a panel
 * of `steps` blocks. */
static inline void gemm_dot_rows(const char *a, const char *b, int64_t steps, float *out)
{
    __m512 sum[GEMM_DOT_ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < GEMM_DOT_ROWS; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (int64_t i = 0; i < steps; i++, a += GEMM_BLOCK, b += GEMM_BLOCK)
#pragma GCC unroll 2
        for (int j = 0; j < 16; j++) {
            __m512bh left = (__m512bh)_mm512_load_si512(b + j * 64),
                     right = (__m512bh)_mm512_load_si512(b + GEMM_TILE + j * 64);
#pragma GCC unroll 8
            for (int r = 0; r < GEMM_DOT_ROWS; r++) {
                int32_t pair;
                memcpy(&pair, a + r * 64 + j * 4, sizeof pair);
                __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
                sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, left);
                sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, right);
            }
        }
#pragma GCC unroll 8
    for (int r = 0; r < GEMM_DOT_ROWS; r++) {
        _mm512_storeu_ps(out + r * GEMM_NR, sum[r][0]);
        _mm512_storeu_ps(out + r * GEMM_NR + 16, sum[r][1]);
    }
}

#endif
