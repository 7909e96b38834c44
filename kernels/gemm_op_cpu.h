/* gemm_op_cpu — a product to compute, C(m,n) = Σ_k A(m,k)·B(k,n), and the arithmetic of cutting it.
 *
 * Included by matmul_cpu.c and by the two headers that compute the product: gemm_cpu.h
 * (multiply-adds) and gemm_bf16_cpu.h (packed bf16). It knows where the matrices lie. It must not
 * know how they are computed, nor the use of C: each finished tile is passed to `finish`, once.
 *
 * Words, as in BLIS (Van Zee, van de Geijn 2015):
 *   panel  packed columns of B, or packed rows of A, that one tile reads
 *   slab   the range of k (and of m) whose packed A fits into the shared memory
 *   task   a block of rows of C by some panels of columns: the work of one thread at a time
 *   tile   the sums that stay in registers */
#ifndef CONVOY_KERNELS_GEMM_OP_CPU_H
#define CONVOY_KERNELS_GEMM_OP_CPU_H

#include <stdatomic.h>

#include "kernels/cpu.h"
#include "kernels/vec_cpu.h"

/* Cache lines of C that the end of a tile touches, to be prefetched: `step` bytes from row to row.
 * at NULL: none. */
#define GEMM_STREAMS 2
struct gemm_lines {
    const char *at;
    int64_t step;
};

struct gemm;
typedef void gemm_finish_fn(const struct gemm *g, const float *tile, int64_t row, int64_t col,
                            int rows, int cols);

struct gemm {
    /* A(m,k) = a[m·a_step + k], or a[k·a_step + m] if a_transposed;
     * B(k,n) = b[k·b_step + n], or b[n·b_step + k] if b_transposed */
    const float *a, *b;
    int64_t a_step, b_step;
    bool a_transposed, b_transposed;
    int64_t m, n, k;
    gemm_finish_fn *finish; /* tile: rows of GEMM_NR */
    const void *op;         /* the operation's arguments, for finish */
    float *b_sums;          /* Σ_k B(k,n), needs !b_transposed; or NULL */
    float *a_sums;          /* Σ_k A(m,k), needs a_transposed; or NULL */
    bool accumulates_sums;  /* true: b_sums and a_sums are added to; false: replaced */
    const struct cpu *cpu;
    struct gemm_lines lines[GEMM_STREAMS];
    float *partial; /* memory for sums between slabs of k: the memory of C; or NULL */
    int64_t partial_step;
    /* the cut: of k by the shape only; of m and n, which changes no sum, also by the machine */
    int64_t k_block, m_block, n_block, m_tasks, n_tasks;
    /* the current slab; with gemm_cpu.h always all of m */
    int64_t m_from, m_to, k_from, k_to;
    /* A is read from packed panels: a_shared, or each task's own */
    bool a_packed;
    atomic_llong claimed; /* tasks that threads have claimed so far */
    /* the slab's A, packed, one block of k after the other; NULL: each task packs its own */
    void *a_shared;
};

/* Products with at most this number of columns, for example of an adapter, read rows of A in place:
 * few panels read each element of A, so packing it would cost more than it saves. */
#define GEMM_NARROW 96

static inline int64_t gemm_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t gemm_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t gemm_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* gemm_even — returns the size of equal blocks of `whole`: a multiple of `unit`, at most `most` (≥
 * unit). */
static inline int64_t gemm_even(int64_t whole, int64_t most, int64_t unit)
{
    int64_t blocks = gemm_ceil(whole, most / unit * unit);
    return gemm_ceil(gemm_ceil(whole, blocks), unit) * unit;
}

/* gemm_transpose — transposes r[0 … W-1] in registers: log2(W) times, rows i and i+W/2 are
 * interleaved (a perfect shuffle rotates the bits of (row, column) by one). AVX2 interleaves within
 * halves of a register in one instruction, and across halves in three: there, pairs and fours of
 * rows are interleaved first, and the halves are exchanged last. */
#if VEC_W == 8
static inline __attribute__((always_inline)) void gemm_transpose(vec *r)
{
    __m256 fours[VEC_W];
#pragma GCC unroll 8
    for (int i = 0; i < VEC_W; i += 4) {
        __m256 a = _mm256_unpacklo_ps((__m256)r[i], (__m256)r[i + 1]),
               b = _mm256_unpackhi_ps((__m256)r[i], (__m256)r[i + 1]),
               c = _mm256_unpacklo_ps((__m256)r[i + 2], (__m256)r[i + 3]),
               d = _mm256_unpackhi_ps((__m256)r[i + 2], (__m256)r[i + 3]);
        fours[i] = _mm256_shuffle_ps(a, c, 0x44);
        fours[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        fours[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        fours[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
#pragma GCC unroll 8
    for (int i = 0; i < VEC_W / 2; i++) {
        r[i] = (vec)_mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        r[i + 4] = (vec)_mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}
#else
static inline __attribute__((always_inline)) void gemm_transpose(vec *r)
{
    veci low, high;
#pragma GCC unroll 16
    for (int i = 0; i < VEC_W; i++) {
        low[i] = i / 2 + (i & 1) * VEC_W;
        high[i] = low[i] + VEC_W / 2;
    }
#pragma GCC unroll 4
    for (int bits = VEC_W; bits > 1; bits /= 2) {
        vec next[VEC_W];
#pragma GCC unroll 8
        for (int i = 0; i < VEC_W / 2; i++) {
            next[2 * i] = vec_shuffle(r[i], r[i + VEC_W / 2], low);
            next[2 * i + 1] = vec_shuffle(r[i], r[i + VEC_W / 2], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VEC_W; i++)
            r[i] = next[i];
    }
}
#endif

#endif
