/* attention_tile_cpu — the small dense products of attention in registers, and a transpose.
 * Included by attention_cpu.c and attention_bwd_cpu.c only. It must not know softmax, masks or
 * heads.
 *
 * Every product of attention is C (+)= A·B with a few rows of A at a time. Each element of A is
 * broadcast to a vector; each row of B is read in place. TILE_ROWS × TILE_VECS sums stay in
 * registers for the whole sum over k. */
#ifndef CONVOY_KERNELS_ATTENTION_TILE_CPU_H
#define CONVOY_KERNELS_ATTENTION_TILE_CPU_H

#include "kernels/vec_cpu.h"

#define TILE_ROWS 6
#if CPU_ISA == 4 || defined(CPU_NEON) /* 32 registers */
#define TILE_VECS 4
#else
#define TILE_VECS 2
#endif

struct tile {
    const float *a;
    int64_t a_stride;
    const float *b; /* (k_n, columns) */
    int64_t b_stride;
    float *c; /* (rows, columns) */
    int64_t c_stride;
    int64_t k_n;
    bool is_added; /* true: added to c; false: c is replaced */
};

/* Computes a product in registers. A(r,k) is at a[r·stride + k], or, if `across`, at a[k·stride +
 * r]. Rows, vecs and across are constants after inlining. */
static inline __attribute__((always_inline)) void tile_product(const struct tile *t, int64_t column,
                                                               const int rows, const int vecs,
                                                               const bool across)
{
    vec sum[TILE_ROWS][TILE_VECS];
    const float *a = t->a, *b = t->b + column;
    const int64_t a_stride = t->a_stride, b_stride = t->b_stride, c_stride = t->c_stride;
    float *c = t->c + column;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < vecs; v++)
            sum[r][v] = t->is_added ? vec_load(c + r * c_stride + v * VEC_W) : vec_set(0);
    for (int64_t k = t->k_n; k > 0; k--) {
        vec row[TILE_VECS];
#pragma GCC unroll 8
        for (int v = 0; v < vecs; v++)
            row[v] = vec_load(b + v * VEC_W);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vec x = vec_set(across ? a[r] : a[r * a_stride]);
#pragma GCC unroll 8
            for (int v = 0; v < vecs; v++)
                sum[r][v] = vec_fma(x, row[v], sum[r][v]);
        }
        a += across ? a_stride : 1;
        b += b_stride;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < vecs; v++)
            vec_store(c + r * c_stride + v * VEC_W, sum[r][v]);
}

#define TILE_FN(rows, vecs)                                                        \
    static void tile_rows_##rows##_##vecs(const struct tile *t, int64_t column)    \
    {                                                                              \
        tile_product(t, column, rows, vecs, false);                                \
    }                                                                              \
    static void tile_columns_##rows##_##vecs(const struct tile *t, int64_t column) \
    {                                                                              \
        tile_product(t, column, rows, vecs, true);                                 \
    }
#if TILE_VECS == 4
#define TILE_FNS(rows) TILE_FN(rows, 1) TILE_FN(rows, 2) TILE_FN(rows, 3) TILE_FN(rows, 4)
#define TILE_LIST(way, rows)                                                         \
    {                                                                                \
        NULL, way##_##rows##_1, way##_##rows##_2, way##_##rows##_3, way##_##rows##_4 \
    }
#else
#define TILE_FNS(rows) TILE_FN(rows, 1) TILE_FN(rows, 2)
#define TILE_LIST(way, rows)                     \
    {                                            \
        NULL, way##_##rows##_1, way##_##rows##_2 \
    }
#endif
TILE_FNS(1)
TILE_FNS(2)
TILE_FNS(4)
TILE_FNS(6)

typedef void tile_fn(const struct tile *t, int64_t column);
static tile_fn *const tile_rows_fn[TILE_ROWS + 1][TILE_VECS + 1] = {[1] = TILE_LIST(tile_rows, 1),
                                                                    [2] = TILE_LIST(tile_rows, 2),
                                                                    [4] = TILE_LIST(tile_rows, 4),
                                                                    [6] = TILE_LIST(tile_rows, 6)};
static tile_fn *const tile_columns_fn[TILE_ROWS + 1][TILE_VECS + 1] = {
    [1] = TILE_LIST(tile_columns, 1),
    [2] = TILE_LIST(tile_columns, 2),
    [4] = TILE_LIST(tile_columns, 4),
    [6] = TILE_LIST(tile_columns, 6)};

/* tile_rows — computes `rows` rows (1, 2, 4 or 6) of a product; columns_n is a multiple of
 * VEC_W. */
static inline void tile_rows(const struct tile *t, int rows, int64_t columns_n)
{
    for (int64_t column = 0; column < columns_n; column += TILE_VECS * VEC_W) {
        int64_t vecs = (columns_n - column) / VEC_W;
        tile_rows_fn[rows][vecs < TILE_VECS ? vecs : TILE_VECS](t, column);
    }
}
/* tile_columns — does the same, and reads A across. */
static inline void tile_columns(const struct tile *t, int rows, int64_t columns_n)
{
    for (int64_t column = 0; column < columns_n; column += TILE_VECS * VEC_W) {
        int64_t vecs = (columns_n - column) / VEC_W;
        tile_columns_fn[rows][vecs < TILE_VECS ? vecs : TILE_VECS](t, column);
    }
}

/* tile_lane — returns 0, 1, 2 … VEC_W-1. */
static inline veci tile_lane(void)
{
    veci lane;
    for (int i = 0; i < VEC_W; i++)
        lane[i] = i;
    return lane;
}

/* tile_transpose_square — transposes VEC_W × VEC_W in registers: row[i][l] ↔ row[l][i]. */
#if CPU_ISA == 3
static inline __attribute__((always_inline)) void tile_transpose_square(vec row[VEC_W])
{
    vec pair[VEC_W], four[VEC_W];
#pragma GCC unroll 8
    for (int i = 0; i < VEC_W; i += 2) {
        pair[i] = (vec)_mm256_unpacklo_ps((__m256)row[i], (__m256)row[i + 1]);
        pair[i + 1] = (vec)_mm256_unpackhi_ps((__m256)row[i], (__m256)row[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < VEC_W; i++) { /* four[i]: rows i & 4 … + 3 of lanes i & 3 and 4 more */
        __m256 a = (__m256)pair[(i & 4) + (i & 2) / 2], b = (__m256)pair[(i & 4) + 2 + (i & 2) / 2];
        four[i] = (vec)(i & 1 ? _mm256_shuffle_ps(a, b, 0xEE) : _mm256_shuffle_ps(a, b, 0x44));
    }
#pragma GCC unroll 8
    for (int i = 0; i < VEC_W / 2; i++) {
        __m256 a = (__m256)four[i], b = (__m256)four[i + 4];
        row[i] = (vec)_mm256_permute2f128_ps(a, b, 0x20);
        row[i + 4] = (vec)_mm256_permute2f128_ps(a, b, 0x31);
    }
}
#else
/* In step s, row i sends its lanes with bit s to row i+s, and receives the lanes without it. */
static inline __attribute__((always_inline)) void tile_transpose_square(vec row[VEC_W])
{
    veci lane = tile_lane();
#pragma GCC unroll 4
    for (int s = 1; s < VEC_W; s *= 2) {
        veci odd = (lane & s) != 0;
        veci low = (odd & (lane - s + VEC_W)) | (~odd & lane),
             high = (odd & (lane + VEC_W)) | (~odd & (lane + s));
#pragma GCC unroll 16
        for (int i = 0; i < VEC_W; i++)
            if (!(i & s)) {
                vec a = row[i], b = row[i + s];
                row[i] = vec_shuffle(a, b, low);
                row[i + s] = vec_shuffle(a, b, high);
            }
    }
}
#endif

/* tile_max — returns the largest lane. A NaN in any lane may be lost. */
static inline float tile_max(vec x)
{
#if CPU_ISA == 4
    return _mm512_reduce_max_ps((__m512)x);
#elif CPU_ISA == 3
    __m128 top = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
#else
    return vec_top(x);
#endif
}

/* tile_square — transposes one square: n rows and `width` columns of it exist; further rows are
 * zero. */
static inline __attribute__((always_inline)) void tile_square(float *out, int64_t out_stride,
                                                              const float *x, int64_t stride,
                                                              const int64_t n, const int64_t width)
{
    vec row[VEC_W];
#pragma GCC unroll 16
    for (int r = 0; r < VEC_W; r++)
        row[r] = r >= n           ? vec_set(0)
                 : width == VEC_W ? vec_load(x + r * stride)
                                  : vec_load_n(x + r * stride, (int)width);
    tile_transpose_square(row);
#pragma GCC unroll 16
    for (int r = 0; r < VEC_W; r++)
        if (r < width)
            vec_store(out + r * out_stride, row[r]);
}

/* tile_transpose — out (d, out_stride) ← n rows of x (n, d): out[e][i] = x[i][e]; columns from n on
 * become zero. */
static inline void tile_transpose(float *out, int64_t out_stride, const float *x, int64_t stride,
                                  int64_t n, int64_t d)
{
    for (int64_t i = 0; i < out_stride; i += VEC_W)
        for (int64_t e = 0; e < d; e += VEC_W) {
            int64_t width = d - e < VEC_W ? d - e : VEC_W;
            if (i + VEC_W <= n && width == VEC_W)
                tile_square(out + e * out_stride + i, out_stride, x + i * stride + e, stride, VEC_W,
                            VEC_W);
            else
                tile_square(out + e * out_stride + i, out_stride, x + i * stride + e, stride, n - i,
                            width);
        }
}

#endif
