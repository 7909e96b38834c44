/* gemm_pack_cpu — copies blocks of a matrix into panels, the order in which gemm_tile_cpu.h reads.
 *
 * Included by matmul_cpu.c only. Beyond the matrix it writes zeros and reads nothing. It must not
 * know threads or the meaning of the matrix. */
#ifndef CONVOY_KERNELS_GEMM_PACK_CPU_H
#define CONVOY_KERNELS_GEMM_PACK_CPU_H

#include "kernels/gemm_tile_cpu.h"

/* gemm_pack_transposed — panel[k·width + j] = b[j·step + k]: `cols` rows of the matrix become the
 * columns of the panel. */
static void gemm_pack_transposed(const float *b, int64_t step, int cols, int64_t k, int nv,
                                 float *panel)
{
    int width = nv * VEC_W;
    for (int j = 0; j < width; j += VEC_W) {
        int have = cols - j < VEC_W ? cols - j : VEC_W;
        for (int64_t k0 = 0; k0 < k; k0 += VEC_W) {
            int kn = k - k0 < VEC_W ? (int)(k - k0) : VEC_W;
            vec r[VEC_W];
            if (have == VEC_W && kn == VEC_W)
#pragma GCC unroll 16
                for (int i = 0; i < VEC_W; i++)
                    r[i] = vec_load(b + (j + i) * step + k0);
            else
                for (int i = 0; i < VEC_W; i++)
                    r[i] = i < have ? vec_load_n(b + (j + i) * step + k0, kn) : vec_set(0.0f);
            gemm_transpose(r);
            for (int i = 0; i < kn; i++)
                vec_store(panel + (k0 + i) * width + j, r[i]);
        }
    }
}

/* gemm_pack_along — panel[k·width + j] = b[k·step + j]: the columns lie side by side already; zeros
 * beyond `cols`. */
static void gemm_pack_along(const float *b, int64_t step, int cols, int64_t k, int nv, float *panel)
{
    for (int64_t i = 0; i < k; i++, b += step, panel += nv * VEC_W)
        for (int j = 0; j < nv; j++) {
            int have = cols - j * VEC_W < VEC_W ? cols - j * VEC_W : VEC_W;
            vec_store(panel + j * VEC_W,
                      have == VEC_W ? vec_load(b + j * VEC_W) : vec_load_n(b + j * VEC_W, have));
        }
}

/* gemm_pack_a — packs `rows` rows of A over k, A(m,k) = a[k·step + m], with zeros beyond the last
 * row. Several panels are written at once, so that each line of the matrix is fetched once. Returns
 * the panels. */
static float *gemm_pack_a(const float *a, int64_t step, int64_t rows, int64_t k, float *panels)
{
    int64_t row = 0;
    for (; row + 4 * GEMM_MR <= rows; row += 4 * GEMM_MR)
        for (int64_t i = 0; i < k; i++) {
            const float *from = a + i * step + row;
            float *to = panels + row * k + i * GEMM_MR;
            __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)(16 * step * 4)), 0, 3);
            __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)(16 * step * 4 + 64)), 0,
                               3);
            for (int64_t j = 0; j < 4; j++)
                memcpy(to + j * k * GEMM_MR, from + j * GEMM_MR, GEMM_MR * sizeof(float));
        }
    for (; row < rows; row += GEMM_MR)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < GEMM_MR; j++)
                panels[row * k + i * GEMM_MR + j] = row + j < rows ? a[i * step + row + j] : 0.0f;
    return panels;
}

/* gemm_store_rows — stores one k of a panel, or of neighbouring panels `step` elements apart, from
 * a vector. If a panel is narrower than the vector, `spills` allows to write the whole vector: the
 * next k overwrites the surplus. */
static inline __attribute__((always_inline)) void gemm_store_rows(float *to, int64_t step, int have,
                                                                  vec r, bool spills)
{
    if (VEC_W < 2 * GEMM_MR && spills) {
        vec_store(to, r);
        return;
    }
    for (int j = 0; j < have; j += GEMM_MR)
        memcpy(to + j * step, (const float *)(const void *)&r + j, GEMM_MR * sizeof(float));
}

/* gemm_pack_rows — does the same if rows are contiguous, A(m,k) = a[m·step + k]: squares of VEC_W ×
 * VEC_W are transposed in registers and stored in rows of GEMM_MR, or of VEC_W if a panel is
 * wider than a vector. */
#define GEMM_PACK_WIDTH (VEC_W < GEMM_MR ? VEC_W : GEMM_MR)
#define GEMM_PACK_ROWS (VEC_W / GEMM_PACK_WIDTH * GEMM_PACK_WIDTH)
static void gemm_pack_rows(const float *a, int64_t step, int64_t rows, int64_t k, float *panels)
{
    const int64_t end = gemm_ceil(rows, GEMM_MR) * GEMM_MR;
    for (int64_t row = 0; row < end; row += GEMM_PACK_ROWS)
        for (int64_t k0 = 0; k0 < k; k0 += VEC_W) {
            int kn = k - k0 < VEC_W ? (int)(k - k0) : VEC_W;
            int have = rows - row < GEMM_PACK_ROWS ? (int)(rows - row) : GEMM_PACK_ROWS;
            const float *from = a + row * step + k0;
            float *to = panels + row * k + k0 * GEMM_MR;
            vec r[VEC_W] = {{0}};
            if (have == GEMM_PACK_ROWS && kn == VEC_W)
#pragma GCC unroll 16
                for (int i = 0; i < GEMM_PACK_ROWS; i++)
                    r[i] = vec_load(from + i * step);
            else
                for (int i = 0; i < have; i++)
                    r[i] = vec_load_n(from + i * step, kn);
            gemm_transpose(r);
            if (GEMM_PACK_WIDTH < GEMM_MR)
                for (int i = 0; i < kn; i++)
                    memcpy(panels + row / GEMM_MR * GEMM_MR * k + (k0 + i) * GEMM_MR +
                               row % GEMM_MR,
                           &r[i], GEMM_PACK_WIDTH * sizeof(float));
            else if (k0 + VEC_W < k)
#pragma GCC unroll 16
                for (int i = 0; i < VEC_W; i++)
                    gemm_store_rows(to + i * GEMM_MR, k, have, r[i], true);
            else
                for (int i = 0; i < kn; i++)
                    gemm_store_rows(to + i * GEMM_MR, k, have, r[i], false);
        }
}

#endif
