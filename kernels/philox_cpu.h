/* philox_cpu — the random numbers of base/rand.h, many at a time: dropout of the fast kernels.
 *
 * Included by *_cpu.c files only; it must not know operations. Each 64-bit lane carries one 32-bit
 * word of one Philox block. The multiplication reads the lower half only, so the upper half may
 * hold anything. */
#ifndef CONVOY_KERNELS_PHILOX_CPU_H
#define CONVOY_KERNELS_PHILOX_CPU_H

#include "base/rand.h"
#include "kernels/dropout.h"
#include "kernels/vec_cpu.h"

#if CPU_ISA == 4
#define PHILOX_LANES 8
#define PHILOX_MUL(a, b) ((philox_vec)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#elif CPU_ISA == 3
#define PHILOX_LANES 4
#define PHILOX_MUL(a, b) ((philox_vec)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#elif defined(CPU_NEON)
#define PHILOX_LANES 2
#define PHILOX_MUL(a, b) \
    ((philox_vec)vmull_u32(vmovn_u64((uint64x2_t)(a)), vmovn_u64((uint64x2_t)(b))))
#else
#define PHILOX_LANES 2
#define PHILOX_MUL(a, b) ((philox_vec)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#endif
typedef uint64_t philox_vec __attribute__((vector_size(PHILOX_LANES * 8)));
#define PHILOX_WORDS (PHILOX_LANES * 4)

#define PHILOX_ROUNDS 10
#define PHILOX_VECS 4
#define PHILOX_SOME (PHILOX_VECS * PHILOX_WORDS) /* words that philox_some makes */

/* State common to the blocks of a stream: the keys of all rounds, and the upper half of the
 * counter. */
struct philox {
    philox_vec k0[PHILOX_ROUNDS], k1[PHILOX_ROUNDS], c2, c3;
};

static inline struct philox philox_of(uint64_t seed, uint64_t stream)
{
    struct philox p;
    philox_vec zero = {0}, k0 = zero + (uint32_t)seed, k1 = zero + (seed >> 32);
    for (int i = 0; i < PHILOX_ROUNDS; i++) {
        p.k0[i] = k0;
        p.k1[i] = k1;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    p.c2 = zero + (uint32_t)stream;
    p.c3 = zero + (stream >> 32);
    return p;
}

/* The counters of PHILOX_LANES blocks, one word of each block a lane. */
struct philox_words {
    philox_vec c0, c1, c2, c3;
};

static inline struct philox_words philox_start(const struct philox *p, uint64_t block)
{
    philox_vec c0 = {0};
    for (int i = 0; i < PHILOX_LANES; i++)
        c0[i] = block + (uint64_t)i;
    return (struct philox_words){c0, c0 >> 32, p->c2, p->c3};
}

static inline struct philox_words philox_round(struct philox_words c, philox_vec k0, philox_vec k1)
{
    philox_vec zero = {0}, p0 = PHILOX_MUL(c.c0, zero + 0xD2511F53u),
               p1 = PHILOX_MUL(c.c2, zero + 0xCD9E8D57u);
    return (struct philox_words){(p1 >> 32) ^ (c.c1 ^ k0), p1, (p0 >> 32) ^ (c.c3 ^ k1), p0};
}

/* Stores the words in the order of their blocks. */
static inline void philox_store(struct philox_words c, uint32_t *out)
{
    philox_vec zero = {0}, low = zero + 0xFFFFFFFFu, a = (c.c0 & low) | (c.c1 << 32),
               b = (c.c2 & low) | (c.c3 << 32);
#if CPU_ISA == 3
    __m256i even = _mm256_unpacklo_epi64((__m256i)a, (__m256i)b),
            odd = _mm256_unpackhi_epi64((__m256i)a, (__m256i)b),
            first = _mm256_permute2x128_si256(even, odd, 0x20),
            last = _mm256_permute2x128_si256(even, odd, 0x31);
    __builtin_memcpy(out, &first, sizeof first);
    __builtin_memcpy(out + 8, &last, sizeof last);
#else
    for (int i = 0; i < PHILOX_LANES; i++) {
        uint64_t pair[2] = {a[i], b[i]};
        __builtin_memcpy(out + 4 * i, pair, sizeof pair);
    }
#endif
}

/* philox_some — computes the PHILOX_SOME words of the blocks from `block` on. Four vectors of
 * blocks at a time: while a round waits for its products, the other vectors are computed. */
static inline void philox_some(const struct philox *p, uint64_t block, uint32_t *out)
{
    struct philox_words c[PHILOX_VECS];
#pragma GCC unroll 4
    for (int v = 0; v < PHILOX_VECS; v++)
        c[v] = philox_start(p, block + (uint64_t)v * PHILOX_LANES);
#pragma GCC unroll 10
    for (int i = 0; i < PHILOX_ROUNDS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < PHILOX_VECS; v++)
            c[v] = philox_round(c[v], p->k0[i], p->k1[i]);
#pragma GCC unroll 4
    for (int v = 0; v < PHILOX_VECS; v++)
        philox_store(c[v], out + v * PHILOX_WORDS);
}

/* philox_fill — out[i] = rand_u32(seed, stream, index + i) for i < n, of philox_of(seed, stream).
 */
static inline void philox_fill(const struct philox *p, uint64_t index, int64_t n, uint32_t *out)
{
    uint32_t words[PHILOX_SOME];
    int64_t i = 0;
    if (index % 4 == 0)
        for (; i + PHILOX_SOME <= n; i += PHILOX_SOME)
            philox_some(p, (index + (uint64_t)i) / 4, out + i);
    while (i < n) {
        uint64_t at = index + (uint64_t)i;
        int64_t skip = (int64_t)(at % 4),
                count = PHILOX_SOME - skip < n - i ? PHILOX_SOME - skip : n - i;
        philox_some(p, at / 4, words);
        __builtin_memcpy(out + i, words + skip, (size_t)count * sizeof *out);
        i += count;
    }
}

/* philox_scale — scale[i] = 0 where element index+i of `d` (p > 0) is dropped, else 1/(1-p). index
 * counts without d->offset. */
static inline void philox_scale(const struct dropout *d, uint64_t index, int64_t n, float *scale)
{
    uint32_t words[256], threshold = dropout_threshold(d);
    float keep = dropout_scale(d);
    struct philox p = philox_of(d->seed, d->stream);
    for (int64_t i = 0; i < n; i += 256) {
        int64_t count = n - i < 256 ? n - i : 256;
        philox_fill(&p, d->offset + index + (uint64_t)i, count, words);
        for (int64_t j = 0; j < count; j++)
            scale[i + j] = words[j] < threshold ? 0.0f : keep;
    }
}

#endif
