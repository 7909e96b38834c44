/* gemm_tile_cpu — the innermost loop of products: a tile of GEMM_MR × GEMM_NR sums in registers.
 *
 * Included by matmul_cpu.c only. It must not know threads or the meaning of the product. Every sum
 * runs over k in order in one accumulator, so an element's value does not depend on the cut into
 * tiles.
 *
 * B comes as a panel: GEMM_NR columns, k-major (row k holds columns 0 … nv·VEC_W-1 side by side).
 * A comes in one of two ways:
 *   rows    read in place (row-major x or dy); each row of the tile is its own stream
 *   packed  a panel, k-major, GEMM_MR elements side by side
 * With `pack`, B is read from the matrix itself, and the panel is written on the way. So the first
 * tile of a panel packs it for the others. The arithmetic leaves store slots free for that.
 * Each GEMM_CHUNK of k also fetches a few lines of the next panel from memory into L2. */
#ifndef CONVOY_KERNELS_GEMM_TILE_CPU_H
#define CONVOY_KERNELS_GEMM_TILE_CPU_H

#include "kernels/gemm_op_cpu.h"

/* Registers: MR·NV accumulators + NV of B + 1 of A. 8×3 of 32 zmm, 6×2 of 16 ymm, 4×2 of 16 xmm (no
 * FMA there: one more). NEON: 8×3 of 32, with 2 of A. */
#if CPU_ISA == 4 || defined(CPU_NEON)
#define GEMM_MR 8
#define GEMM_NV 3
#elif CPU_ISA == 3
#define GEMM_MR 6
#define GEMM_NV 2
#else
#define GEMM_MR 4
#define GEMM_NV 2
#endif
#define GEMM_NR (GEMM_NV * VEC_W)
#define GEMM_CHUNK 16

/* The next panel: `rows` runs of memory, `step` bytes apart. Each GEMM_CHUNK of k prepares a few in
 * straight-line code; a loop here cost 6 % of the tile.
 *   with `to`  rows of GEMM_NR columns are packed there, GEMM_AHEAD rows after their prefetch
 *   without    lines are fetched into L2 only, `width` bytes of each run */
#define GEMM_AHEAD 12
#define GEMM_AHEAD_LINES 2
struct gemm_ahead {
    const char *at;
    int64_t step, rows;
    float *to;
    int64_t width, col; /* without `to` */
    /* Every (mask+1)-th chunk of a tile prepares some. Fetches from memory need long; spread out,
     * they leave buffers free for the panel's own lines. */
    int64_t mask;
};

struct gemm_tile {
    const float *a; /* rows: first row, a_step apart, `rows` of them readable; packed: panel */
    int64_t a_step;
    int rows;
    const float *b; /* panel; with pack: the matrix, rows b_step apart */
    int64_t b_step;
    float *panel; /* with pack: written */
    float *out;   /* GEMM_MR rows of GEMM_NR sums; added to when add */
    int64_t k;
    bool add;
    struct gemm_ahead *ahead;
    struct gemm_lines lines[GEMM_STREAMS];
};

/* Prefetches row `row` of each stream. The streams are read from the tile each time, field by
 * field: a copy of the structs is one wide load of fields that were stored separately. Such a load
 * waits until all earlier stores, among them the previous tile's stores to C, have left the core
 * (up to 30 % of a tile's time). */
static inline __attribute__((always_inline)) void gemm_prefetch(const struct gemm_lines *lines,
                                                                int64_t row)
{
    for (int i = 0; i < GEMM_STREAMS; i++) {
        if (!lines[i].at)
            continue;
        const char *at = (const char *)((uintptr_t)lines[i].at + (uintptr_t)(row * lines[i].step));
#pragma GCC unroll 4
        for (int j = 0; j < GEMM_NV; j++)
            __builtin_prefetch(at + j * VEC_W * 4, 1, 3);
    }
}

static inline __attribute__((always_inline)) void gemm_fetch_row(struct gemm_ahead *ahead)
{
    const char *far = (const char *)((uintptr_t)ahead->at + (uintptr_t)(GEMM_AHEAD * ahead->step));
#pragma GCC unroll 4
    for (int j = 0; j < GEMM_NV; j++) {
        __builtin_prefetch(far + j * VEC_W * 4, 0, 2);
        vec_store(ahead->to + j * VEC_W,
                  vec_load((const float *)(const void *)ahead->at + j * VEC_W));
    }
    ahead->at = (const char *)((uintptr_t)ahead->at + (uintptr_t)ahead->step);
    ahead->to += GEMM_NR;
    ahead->rows--;
}

static inline __attribute__((always_inline)) void gemm_fetch_lines(struct gemm_ahead *ahead)
{
    const char *from = (const char *)((uintptr_t)ahead->at + (uintptr_t)ahead->col);
#pragma GCC unroll 4
    for (int j = 0; j < GEMM_AHEAD_LINES; j++)
        __builtin_prefetch(from + j * 64, 0, 2);
    ahead->col += GEMM_AHEAD_LINES * 64;
    if (ahead->col >= ahead->width) {
        ahead->col = 0;
        ahead->at = (const char *)((uintptr_t)ahead->at + (uintptr_t)ahead->step);
        ahead->rows--;
    }
}

static inline __attribute__((always_inline)) void gemm_fetch(struct gemm_ahead *ahead)
{
    if (ahead->rows <= 0)
        return;
    if (ahead->to)
        gemm_fetch_row(ahead);
    else
        gemm_fetch_lines(ahead);
}

/* gemm_tile_factor — returns A(i, k) in all lanes. NEON multiplies by a lane of a vector, so one
 * load of packed A serves VEC_W rows; here too, a_step is a constant. */
static inline __attribute__((always_inline)) vec gemm_tile_factor(const float *const *a,
                                                                  int64_t a_step, int i, int64_t k)
{
#ifdef CPU_NEON
    if (a_step == GEMM_MR)
        return vec_set(vec_load(a[i / VEC_W * VEC_W] + k * a_step)[i % VEC_W]);
#endif
    return vec_set(a[i][k * a_step]);
}

/* gemm_tile_step — computes `kn` steps of k; all but `t` and `k` are constants or registers after
 * inlining. */
static inline __attribute__((always_inline)) void
gemm_tile_step(vec acc[GEMM_MR][GEMM_NV], const float *const *a, int64_t a_step, const float **b,
               int64_t b_step, float **panel, const int mr, const int nv, const bool pack,
               int64_t k)
{
    vec bv[GEMM_NV];
#pragma GCC unroll 4
    for (int j = 0; j < nv; j++) {
        bv[j] = vec_load(*b + j * VEC_W);
        if (pack) {
            __builtin_prefetch(
                (const void *)((uintptr_t)(*b + j * VEC_W) + (uintptr_t)(GEMM_CHUNK * b_step * 4)),
                0, 3);
            vec_store(*panel + j * VEC_W, bv[j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
        vec av = gemm_tile_factor(a, a_step, i, k);
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            acc[i][j] = vec_fma(av, bv[j], acc[i][j]);
    }
    *b += b_step;
    *panel += pack ? nv * VEC_W : 0;
}

/* gemm_tile_run — computes a tile. mr, nv, packed_a and pack are constants at each use, so that
 * everything unrolls into registers. */
static inline __attribute__((always_inline)) void gemm_tile_run(const struct gemm_tile *t,
                                                                const int mr, const int nv,
                                                                const bool packed_a,
                                                                const bool pack)
{
    const float *a[GEMM_MR], *b = t->b;
    int64_t b_step = pack ? t->b_step : nv * VEC_W, a_step = packed_a ? GEMM_MR : 1, k = 0,
            k_end = t->k;
    float *panel = t->panel;
    struct gemm_ahead ahead = *t->ahead;
    vec acc[GEMM_MR][GEMM_NV];
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++) {
        a[i] = packed_a ? t->a + i : t->a + (i < t->rows ? i : t->rows - 1) * t->a_step;
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            acc[i][j] = vec_set(0.0f);
    }
    for (; k + GEMM_CHUNK <= k_end; k += GEMM_CHUNK) {
        if ((k / GEMM_CHUNK & ahead.mask) == 0)
            gemm_fetch(&ahead);
        if (k < mr * GEMM_CHUNK)
            gemm_prefetch(t->lines, k / GEMM_CHUNK);
#pragma GCC unroll 4
        for (int64_t i = 0; i < GEMM_CHUNK; i++)
            gemm_tile_step(acc, a, a_step, &b, b_step, &panel, mr, nv, pack, k + i);
    }
    for (; k < k_end; k++)
        gemm_tile_step(acc, a, a_step, &b, b_step, &panel, mr, nv, pack, k);
    *t->ahead = ahead;
#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) {
            float *out = t->out + i * GEMM_NR + j * VEC_W;
            vec_store(out, t->add ? vec_load(out) + acc[i][j] : acc[i][j]);
        }
}

typedef void gemm_tile_fn(const struct gemm_tile *t);

#define GEMM_TILE(name, mr, nv, packed_a, pack)                           \
    static __attribute__((noinline)) void name(const struct gemm_tile *t) \
    {                                                                     \
        gemm_tile_run(t, mr, nv, packed_a, pack);                         \
    }
#define GEMM_TILES(mr, nv)                                 \
    GEMM_TILE(gemm_tile_##mr##_##nv, mr, nv, false, false) \
    GEMM_TILE(gemm_tile_##mr##_##nv##_pack, mr, nv, false, true)
#define GEMM_TILES_FULL(mr, nv)                                      \
    GEMM_TILES(mr, nv)                                               \
    GEMM_TILE(gemm_tile_##mr##_##nv##_packed_a, mr, nv, true, false) \
    GEMM_TILE(gemm_tile_##mr##_##nv##_packed_a_pack, mr, nv, true, true)
#define GEMM_ROW(mr, suffix)                                                           \
    {                                                                                  \
        gemm_tile_##mr##_1##suffix, gemm_tile_##mr##_2##suffix, GEMM_THIRD(mr, suffix) \
    }

#if GEMM_NV == 3
#define GEMM_THIRD(mr, suffix) gemm_tile_##mr##_3##suffix
#define GEMM_EACH_NV(tiles, mr) tiles(mr, 1) tiles(mr, 2) tiles(mr, 3)
#else
#define GEMM_THIRD(mr, suffix) NULL
#define GEMM_EACH_NV(tiles, mr) tiles(mr, 1) tiles(mr, 2)
#endif
#if GEMM_MR == 8
#define GEMM_TOP(suffix) GEMM_ROW(8, suffix)
GEMM_EACH_NV(GEMM_TILES_FULL, 8)
GEMM_EACH_NV(GEMM_TILES, 4)
#define GEMM_MIDDLE(suffix) GEMM_ROW(4, suffix)
#elif GEMM_MR == 6
#define GEMM_TOP(suffix) GEMM_ROW(6, suffix)
GEMM_EACH_NV(GEMM_TILES_FULL, 6)
GEMM_EACH_NV(GEMM_TILES, 4)
#define GEMM_MIDDLE(suffix) GEMM_ROW(4, suffix)
#else
#define GEMM_TOP(suffix) GEMM_ROW(4, suffix)
GEMM_EACH_NV(GEMM_TILES_FULL, 4)
#define GEMM_MIDDLE(suffix) GEMM_ROW(4, suffix)
#endif
GEMM_EACH_NV(GEMM_TILES, 2)
GEMM_EACH_NV(GEMM_TILES, 1)

/* gemm_tile_pick — returns the smallest tile that holds `rows` rows and nv vectors of columns. */
static gemm_tile_fn *gemm_tile_pick(int rows, int nv, bool packed_a, bool pack)
{
    static gemm_tile_fn *const by_rows[2][4][3] = {
        {GEMM_ROW(1, ), GEMM_ROW(2, ), GEMM_MIDDLE(), GEMM_TOP()},
        {GEMM_ROW(1, _pack), GEMM_ROW(2, _pack), GEMM_MIDDLE(_pack), GEMM_TOP(_pack)}};
    static gemm_tile_fn *const by_packed[2][3] = {GEMM_TOP(_packed_a), GEMM_TOP(_packed_a_pack)};
    int size = rows <= 1 ? 0 : rows <= 2 ? 1 : rows <= 4 ? 2 : 3;
    return packed_a ? by_packed[pack][nv - 1] : by_rows[pack][size][nv - 1];
}

#endif
