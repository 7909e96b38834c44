/* gemm_amx_tile_cpu — the innermost loop of fp32 products in AMX tiles.
 *
 * Included by *_cpu.c files of the level `amx`. It must not know threads or what the product means.
 *
 * Every fp32 is a sum of three bf16, x = h + m + l: h the nearest (halves away from zero), m the
 * remainder of h cut to 8 bits, l the rest; all exact. Of the nine products of two such sums six
 * are computed (hh hm mh hl lh mm). What is dropped is at most 2^-25 of |a·b| and has no preferred
 * sign. A tile instruction adds 16 pairs of products before it touches the sum, so a sum over k is
 * rounded 6·k/32 times: less often than with one multiply-add for each k. After Henry, Tang and
 * Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
 * computations" (2019).
 *
 * A packed block is 32 of the outer index (rows of A, columns of B) by 32 of k: the parts h, m and
 * l, each two tiles of 16 rows of 64 bytes. A row of an A tile is one m, a row of a B tile one k.
 * Dword j of a row holds k and k+16, of k = j in A and of column j in B. Any pairing of k is right
 * when both sides agree, and this one needs no shuffle. Beyond the matrix there are zeros. */
#ifndef CONVOY_KERNELS_GEMM_AMX_TILE_CPU_H
#define CONVOY_KERNELS_GEMM_AMX_TILE_CPU_H

#include "kernels/gemm_op_cpu.h"

#define GEMM_NR 32   /* columns of a panel of B, and rows of a block of A */
#define GEMM_STEP 32 /* k of a block */
#define GEMM_TILE 1024
#define GEMM_PART (2 * GEMM_TILE)
#define GEMM_BLOCK (3 * GEMM_PART)

/* Eight tiles of 16 rows of 64 bytes. */
struct gemm_tile_config {
    uint8_t palette, start_row, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static const struct gemm_tile_config gemm_tiles = {.palette = 1,
                                                   .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                                   .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

/* The six products of one block of k. From one to the next only one side's tiles change. A tile is
 * loaded right after its last use, two products before its next use, so its lines have time to
 * come. */
#define GEMM_LOAD_A0(part) _tile_loadd(4, a + (part)*GEMM_PART, 64)
#define GEMM_LOAD_A1(part) _tile_loadd(5, a + (part)*GEMM_PART + GEMM_TILE, 64)
#define GEMM_LOAD_B0(part) _tile_loadd(6, b + (part)*GEMM_PART, 64)
#define GEMM_LOAD_B1(part) _tile_loadd(7, b + (part)*GEMM_PART + GEMM_TILE, 64)
#define GEMM_THEN_A(part)    \
    _tile_dpbf16ps(0, 4, 6); \
    _tile_dpbf16ps(1, 4, 7); \
    GEMM_LOAD_A0(part);      \
    _tile_dpbf16ps(2, 5, 6); \
    _tile_dpbf16ps(3, 5, 7); \
    GEMM_LOAD_A1(part)
#define GEMM_THEN_B(part)    \
    _tile_dpbf16ps(0, 4, 6); \
    _tile_dpbf16ps(2, 5, 6); \
    GEMM_LOAD_B0(part);      \
    _tile_dpbf16ps(1, 4, 7); \
    _tile_dpbf16ps(3, 5, 7); \
    GEMM_LOAD_B1(part)

/* What is prefetched next, in pieces between the products: a burst would take the fill buffers that
 * loads of tiles need. A piece is 128 bytes. 32 pieces lie `step` bytes apart, then the next 32
 * `block_step` bytes on. */
struct gemm_fetch {
    uintptr_t at;
    int64_t step, block_step, left;
    int row_i, each; /* each: pieces beside one block */
};

static inline __attribute__((always_inline)) void gemm_fetch_piece(struct gemm_fetch *f)
{
    uintptr_t at = f->at + (uintptr_t)(f->row_i * f->step);
    __builtin_prefetch((const void *)at, 0, 2);
    __builtin_prefetch((const void *)(at + 64), 0, 2);
    f->left--;
    f->row_i = (f->row_i + 1) % 32;
    f->at += f->row_i == 0 ? (uintptr_t)f->block_step : 0;
}

static inline __attribute__((always_inline)) void gemm_fetch(struct gemm_fetch *f, int slot)
{
    if (f && f->left > 0)
        for (int i = slot; i < f->each; i += 6)
            gemm_fetch_piece(f);
}

/* gemm_block_first — the tiles that the first block of k begins with. */
static inline __attribute__((always_inline)) void gemm_block_first(const char *a, const char *b)
{
    GEMM_LOAD_A0(2);
    GEMM_LOAD_A1(2);
    GEMM_LOAD_B0(0);
    GEMM_LOAD_B1(0);
}

/* gemm_block — one block of k, whose first tiles are loaded; loads the first ones of the block
 * behind it, which need not mean anything but must be readable. */
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

static inline __attribute__((always_inline)) void gemm_zero(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* gemm_store — the four accumulators as 32 rows of GEMM_NR sums. */
static inline __attribute__((always_inline)) void gemm_store(float *sums)
{
    _tile_stored(0, sums, GEMM_NR * 4);
    _tile_stored(1, sums + 16, GEMM_NR * 4);
    _tile_stored(2, sums + 16 * GEMM_NR, GEMM_NR * 4);
    _tile_stored(3, sums + 16 * GEMM_NR + 16, GEMM_NR * 4);
}

#endif
