/* gemm_bf16_pack_cpu — splits, or rounds, tiles of a matrix into the blocks of bf16 that
 * products read (gemm_bf16_block_cpu.h).
 *
 * Included by gemm_bf16_cpu.h only. Beyond the matrix it writes zeros and reads nothing. It must
 * not know threads or the meaning of the matrix. */
#ifndef CONVOY_KERNELS_GEMM_BF16_PACK_CPU_H
#define CONVOY_KERNELS_GEMM_BF16_PACK_CPU_H

#include "kernels/gemm_bf16_block_cpu.h"

#ifdef CPU_BF16
/* gemm_pair — writes one row of a tile: u, rounded to bf16, in the lower halves of the lanes, v in
 * the upper. */
static inline __attribute__((always_inline)) void gemm_pair(vec u, vec v, char *to)
{
    const __m512i mix = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)v, (__m512)u);
    _mm512_store_si512(to, _mm512_permutexvar_epi16(mix, both));
}
#else
/* gemm_pair — writes one row of a tile of each term: u in the lower halves of the lanes, v in the
 * upper. */
static inline __attribute__((always_inline)) void gemm_pair(vec u, vec v, char *to)
{
    const __m512i half = _mm512_set1_epi32(0x8000), top = _mm512_set1_epi32((int)0xffff0000u);
    const __mmask32 upper = 0xaaaaaaaau;
    __m512i uh = _mm512_and_si512(_mm512_add_epi32((__m512i)u, half), top),
            vh = _mm512_and_si512(_mm512_add_epi32((__m512i)v, half), top);
    _mm512_store_si512(to, _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(uh, 16), vh));
    u -= (vec)uh;
    v -= (vec)vh;
    uh = _mm512_and_si512((__m512i)u, top);
    vh = _mm512_and_si512((__m512i)v, top);
    _mm512_store_si512(to + GEMM_TERM,
                       _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(uh, 16), vh));
    u -= (vec)uh;
    v -= (vec)vh;
    _mm512_store_si512(
        to + 2 * GEMM_TERM,
        _mm512_mask_blend_epi16(upper, _mm512_srli_epi32((__m512i)u, 16), (__m512i)v));
}
#endif

/* A unit of packing makes one tile of each term: 16 rows of 16 lanes of u (k … k+15) and of v
 * (k+16 … k+31), `step` elements from row to row; transposed when the tile's lanes are rows. */
struct gemm_unit {
    const float *u, *v;
    int64_t step, far;                    /* far: elements from here to the next data to pack */
    int rows_u, rows_v, lanes_u, lanes_v; /* inside the matrix; may be ≤ 0 */
};

static inline __attribute__((always_inline)) void gemm_unit_full(const struct gemm_unit *n,
                                                                 const bool transpose, char *to)
{
    const float *u = n->u, *v = n->v;
    vec ru[16], rv[16];
    if (!transpose) {
#pragma GCC unroll 2
        for (int i = 0; i < 16; i++, u += n->step, v += n->step) {
            __builtin_prefetch((const void *)((uintptr_t)u + (uintptr_t)(4 * n->far)), 0, 2);
            __builtin_prefetch((const void *)((uintptr_t)v + (uintptr_t)(4 * n->far)), 0, 2);
            gemm_pair(vec_load(u), vec_load(v), to + i * 64);
        }
        return;
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++, u += n->step) {
        __builtin_prefetch((const void *)((uintptr_t)u + (uintptr_t)(4 * n->far)), 0, 2);
        ru[i] = vec_load(u);
    }
    gemm_transpose(ru);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++, v += n->step) {
        __builtin_prefetch((const void *)((uintptr_t)v + (uintptr_t)(4 * n->far)), 0, 2);
        rv[i] = vec_load(v);
    }
    gemm_transpose(rv);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        gemm_pair(ru[i], rv[i], to + i * 64);
}

static __attribute__((noinline)) void gemm_unit_plain(const struct gemm_unit *n, char *to)
{
    gemm_unit_full(n, false, to);
}
static __attribute__((noinline)) void gemm_unit_transposed(const struct gemm_unit *n, char *to)
{
    gemm_unit_full(n, true, to);
}

static inline vec gemm_load_edge(const float *at, bool has_row, int lanes)
{
    if (!has_row || lanes <= 0)
        return vec_set(0.0f);
    return lanes >= VEC_W ? vec_load(at) : vec_load_n(at, lanes);
}

static inline void gemm_store_edge(float *at, int lanes, vec x)
{
    if (lanes >= VEC_W)
        vec_store(at, x);
    else
        vec_store_n(at, lanes, x);
}

static __attribute__((noinline)) void gemm_unit_edge(const struct gemm_unit *n, bool transpose,
                                                     char *to)
{
    vec u[16], v[16];
    for (int i = 0; i < 16; i++) {
        u[i] = gemm_load_edge(n->u + i * n->step, i < n->rows_u, n->lanes_u);
        v[i] = gemm_load_edge(n->v + i * n->step, i < n->rows_v, n->lanes_v);
    }
    if (transpose) {
        gemm_transpose(u);
        gemm_transpose(v);
    }
    for (int i = 0; i < 16; i++)
        gemm_pair(u[i], v[i], to + i * 64);
}

/* A matrix to pack: element (outer, k) is at at[outer·step + k], or at[k·step + outer] when
 * outer_runs. transpose: the tiles' lanes are the other index. */
struct gemm_source {
    const float *at;
    int64_t step;
    bool outer_runs, transpose;
    bool prefetches; /* prefetches the next data to pack; false: they were prefetched before */
};

/* gemm_pack_unit — packs half t (0, 1) of the block that begins at (outer, k). outer_n, k_n:
 * elements of the matrix from there on. */
static void gemm_pack_unit(const struct gemm_source *s, int64_t outer, int64_t outer_n, int64_t k,
                           int64_t k_n, int t, char *block)
{
    struct gemm_unit n = {.step = s->step};
    outer += 16 * t, outer_n -= 16 * t;
    if (outer_n > 16)
        outer_n = 16;
    if (k_n > 32)
        k_n = 32;
    int k_u = (int)gemm_min(k_n, 16), k_v = (int)k_n - 16, o = (int)outer_n;
    if (s->outer_runs) {
        n.u = s->at + k * s->step + outer;
        n.v = (const float *)((uintptr_t)n.u + (uintptr_t)(64 * s->step));
        n.far = s->prefetches ? 32 * s->step : 0;
        n.rows_u = k_u, n.rows_v = k_v, n.lanes_u = n.lanes_v = o;
    } else {
        n.u = (const float *)((uintptr_t)s->at + (uintptr_t)(4 * (outer * s->step + k)));
        n.v = n.u + 16;
        n.far = s->prefetches ? 64 : 0;
        n.rows_u = n.rows_v = o, n.lanes_u = k_u, n.lanes_v = k_v;
    }
    char *to = block + t * GEMM_TILE;
    if (o < 16 || k_v < 16)
        gemm_unit_edge(&n, s->transpose, to);
    else if (s->transpose)
        gemm_unit_transposed(&n, to);
    else
        gemm_unit_plain(&n, to);
}

#endif
