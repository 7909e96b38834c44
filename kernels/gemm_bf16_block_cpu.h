/* gemm_bf16_block_cpu — the memory layout of products of bf16: packed blocks; and the prefetches
 * that run during a product.
 *
 * Included by gemm_amx_tile_cpu.h, gemm_dot_tile_cpu.h and gemm_bf16_pack_cpu.h. It must not know
 * how the blocks are multiplied.
 *
 * With CPU_BF16 an fp32 is rounded to one bf16, the nearest. Without, it is a sum of three, all
 * exact: x = h + m + l: h the nearest (halves away from zero), m the remainder of h cut to 8 bits,
 * l the rest.
 *
 * A packed block is 32 of the outer index (rows of A, columns of B) by 32 of k: the terms h, m and
 * l (or one term), each two tiles of 16 rows of 64 bytes. A row of an A tile is one m, a row of a B
 * tile one k. Dword j of a row holds k and k+16, of k = j in A and of column j in B. Any pairing of
 * k is right when both sides agree, and this one needs no shuffle. Beyond the matrix there are
 * zeros. */
#ifndef CONVOY_KERNELS_GEMM_BF16_BLOCK_CPU_H
#define CONVOY_KERNELS_GEMM_BF16_BLOCK_CPU_H

#include "kernels/gemm_op_cpu.h"

#define GEMM_NR 32   /* columns of a panel of B, and rows of a block of A */
#define GEMM_STEP 32 /* k of a block */
#define GEMM_TILE 1024
#define GEMM_TERM (2 * GEMM_TILE)
#ifdef CPU_BF16
#define GEMM_TERMS 1
#else
#define GEMM_TERMS 3
#endif
#define GEMM_BLOCK (GEMM_TERMS * GEMM_TERM)

#ifdef CPU_BF16
#define GEMM_SLOTS 3 /* calls of gemm_fetch during one block */
#else
#define GEMM_SLOTS 6
#endif

/* The next memory to prefetch, two cache lines at a time between the products: a burst would occupy
 * the fill buffers that loads of tiles need. 32 pairs of lines lie `step` bytes apart, then the
 * next 32 `block_step` bytes on. */
struct gemm_fetch {
    uintptr_t at;
    int64_t step, block_step, left;
    int row_i, each; /* each: pairs during one block */
};

static inline __attribute__((always_inline)) void gemm_fetch_lines(struct gemm_fetch *f)
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
        for (int i = slot; i < f->each; i += GEMM_SLOTS)
            gemm_fetch_lines(f);
}

#endif
