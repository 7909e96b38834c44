/* gemm_amx_tile_cpu — the innermost loop of products in AMX tiles: of fp32, or, with CPU_BF16, of
 * fp32 rounded to bf16.
 *
 * Included by *_cpu.c files of the level `amx`. It must not know threads or the meaning of the
 * product. gemm_bf16_block_cpu.h describes the layout of blocks.
 *
 * Six of the nine products of two sums of three bf16 are computed (hh hm mh hl lh mm). The dropped
 * terms are at most 2^-25 of |a·b| and have no preferred sign. A tile instruction adds 16 pairs of
 * products before it touches the sum, so a sum over k is rounded 6·k/32 times: less often than with
 * one multiply-add for each k. After Henry, Tang and Heinecke, "Leveraging the bfloat16 artificial
 * intelligence datatype for higher-precision computations" (2019). */
#ifndef CONVOY_KERNELS_GEMM_AMX_TILE_CPU_H
#define CONVOY_KERNELS_GEMM_AMX_TILE_CPU_H

#include "kernels/gemm_bf16_block_cpu.h"

/* Eight tiles of 16 rows of 64 bytes. */
struct gemm_tile_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static const struct gemm_tile_config gemm_tiles = {.palette = 1,
                                                   .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                                   .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

#ifdef CPU_BF16
/* gemm_block_first — does nothing: rounded blocks load no tiles ahead. */
static inline __attribute__((always_inline)) void gemm_block_first(const char *a, const char *b)
{
    (void)a, (void)b;
}

/* gemm_block — multiplies one rounded block of k. */
static inline __attribute__((always_inline)) void gemm_block(const char *a, const char *b,
                                                             const char *a_next, const char *b_next,
                                                             struct gemm_fetch *f)
{
    (void)a_next, (void)b_next;
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + GEMM_TILE, 64);
    gemm_fetch(f, 0);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + GEMM_TILE, 64);
    gemm_fetch(f, 1);
    _tile_dpbf16ps(2, 5, 6);
    gemm_fetch(f, 2);
    _tile_dpbf16ps(3, 5, 7);
}
#else
/* The six products of one block of k. From one to the next only one side's tiles change. A tile is
 * loaded right after its last use, two products before its next use, so its lines have time to
 * come. */
#define GEMM_LOAD_A0(term) _tile_loadd(4, a + (term)*GEMM_TERM, 64)
#define GEMM_LOAD_A1(term) _tile_loadd(5, a + (term)*GEMM_TERM + GEMM_TILE, 64)
#define GEMM_LOAD_B0(term) _tile_loadd(6, b + (term)*GEMM_TERM, 64)
#define GEMM_LOAD_B1(term) _tile_loadd(7, b + (term)*GEMM_TERM + GEMM_TILE, 64)
#define GEMM_THEN_A(term)    \
    _tile_dpbf16ps(0, 4, 6); \
    _tile_dpbf16ps(1, 4, 7); \
    GEMM_LOAD_A0(term);      \
    _tile_dpbf16ps(2, 5, 6); \
    _tile_dpbf16ps(3, 5, 7); \
    GEMM_LOAD_A1(term)
#define GEMM_THEN_B(term)    \
    _tile_dpbf16ps(0, 4, 6); \
    _tile_dpbf16ps(2, 5, 6); \
    GEMM_LOAD_B0(term);      \
    _tile_dpbf16ps(1, 4, 7); \
    _tile_dpbf16ps(3, 5, 7); \
    GEMM_LOAD_B1(term)

/* gemm_block_first — loads the first tiles of the first block of k. */
static inline __attribute__((always_inline)) void gemm_block_first(const char *a, const char *b)
{
    GEMM_LOAD_A0(2);
    GEMM_LOAD_A1(2);
    GEMM_LOAD_B0(0);
    GEMM_LOAD_B1(0);
}

/* gemm_block — multiplies one block of k, whose first tiles are loaded, and loads the first tiles
 * of the next block. The next block may contain anything but must be readable. */
static inline __attribute__((always_inline)) void gemm_block(const char *a, const char *b,
                                                             const char *a_next, const char *b_next,
                                                             struct gemm_fetch *f)
{
    GEMM_THEN_A(1);
    gemm_fetch(f, 0);
    GEMM_THEN_B(1);
    gemm_fetch(f, 3);
    GEMM_THEN_A(0);
    gemm_fetch(f, 1);
    GEMM_THEN_B(2);
    gemm_fetch(f, 4);
    GEMM_THEN_B(0);
    gemm_fetch(f, 2);
    a = a_next, b = b_next;
    GEMM_THEN_A(2);
    GEMM_LOAD_B0(0);
    GEMM_LOAD_B1(0);
    gemm_fetch(f, 5);
}

#endif

static inline __attribute__((always_inline)) void gemm_zero(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* gemm_store — stores the four accumulators as 32 rows of GEMM_NR sums. */
static inline __attribute__((always_inline)) void gemm_store(float *sums)
{
    _tile_stored(0, sums, GEMM_NR * 4);
    _tile_stored(1, sums + 16, GEMM_NR * 4);
    _tile_stored(2, sums + 16 * GEMM_NR, GEMM_NR * 4);
    _tile_stored(3, sums + 16 * GEMM_NR + 16, GEMM_NR * 4);
}

#endif
