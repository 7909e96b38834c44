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

/* philox_blocks — the 4·PHILOX_LANES words of the blocks from `block` on. */
static inline void philox_blocks(uint64_t seed, uint64_t stream, uint64_t block, uint32_t *out)
{
    philox_vec c0 = {0}, c2 = {0}, k0 = {0}, k1 = {0}, m0 = {0}, m1 = {0};
    for (int i = 0; i < PHILOX_LANES; i++)
        c0[i] = block + (uint64_t)i;
    philox_vec c1 = c0 >> 32, low = m0 + 0xFFFFFFFFu;
    m0 += 0xD2511F53u, m1 += 0xCD9E8D57u;
    c2 += (uint32_t)stream;
    philox_vec c3 = c2 * 0 + (stream >> 32);
    k0 += (uint32_t)seed, k1 += seed >> 32;
    for (int round = 0; round < 10; round++) {
        philox_vec p0 = PHILOX_MUL(c0, m0), p1 = PHILOX_MUL(c2, m1);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    philox_vec a = (c0 & low) | (c1 << 32), b = (c2 & low) | (c3 << 32);
    for (int i = 0; i < PHILOX_LANES; i++) {
        uint64_t pair[2] = {a[i], b[i]};
        __builtin_memcpy(out + 4 * i, pair, sizeof pair);
    }
}

/* philox_fill — out[i] = rand_u32(seed, stream, index + i) for i < n. */
static inline void philox_fill(uint64_t seed, uint64_t stream, uint64_t index, int64_t n,
                               uint32_t *out)
{
    uint32_t words[PHILOX_WORDS];
    int64_t i = 0;
    if (index % 4 == 0)
        for (; i + PHILOX_WORDS <= n; i += PHILOX_WORDS)
            philox_blocks(seed, stream, (index + (uint64_t)i) / 4, out + i);
    while (i < n) {
        uint64_t at = index + (uint64_t)i;
        int64_t skip = (int64_t)(at % 4),
                take = PHILOX_WORDS - skip < n - i ? PHILOX_WORDS - skip : n - i;
        philox_blocks(seed, stream, at / 4, words);
        __builtin_memcpy(out + i, words + skip, (size_t)take * sizeof *out);
        i += take;
    }
}

/* philox_scale — scale[i] = 0 where element index+i of `d` (p > 0) is dropped, else 1/(1-p). index
 * counts without d->offset. */
static inline void philox_scale(const struct dropout *d, uint64_t index, int64_t n, float *scale)
{
    uint32_t words[256], threshold = dropout_threshold(d);
    float keep = dropout_scale(d);
    for (int64_t i = 0; i < n; i += 256) {
        int64_t take = n - i < 256 ? n - i : 256;
        philox_fill(d->seed, d->stream, d->offset + index + (uint64_t)i, take, words);
        for (int64_t j = 0; j < take; j++)
            scale[i + j] = words[j] < threshold ? 0.0f : keep;
    }
}

#endif
