/* rand — random numbers as pure functions of a counter: Philox4x32-10 (Salmon et al., SC 2011).
 *
 * value = f(seed, stream, index). There is no state, so results do not depend on order, threads,
 * ranks or devices, and a resumed run needs only its counters. Each use has a stream of its own.
 * Inline, because kernels use it too; a CUDA kernel repeats the same ten rounds. */
#ifndef CONVOY_BASE_RAND_H
#define CONVOY_BASE_RAND_H

#include <stdint.h>

/* The use of the numbers, in the upper bits of the Philox counter. A use with its own index space
 * adds its number to the low half: RAND_STREAM(INIT, param number), RAND_STREAM(DROPOUT, layer * 4
 * + site). */
enum rand_use {
    RAND_USE_INIT = 1,
    RAND_USE_ORDER,
    RAND_USE_DROPOUT,
    RAND_USE_SYNTHETIC,
    RAND_USE_SAMPLE,
    RAND_USE_TEST,
    RAND_USE_MIX,
    RAND_USE_REHEARSE
};
#define RAND_STREAM(use, number) (((uint64_t)(RAND_USE_##use) << 32) | (uint32_t)(number))

struct rand4 {
    uint32_t v[4];
};

/* rand_philox — returns block `index` of the stream: four words. */
static inline struct rand4 rand_philox(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (struct rand4){{c0, c1, c2, c3}};
}

/* rand_u32 — returns element `index` of the stream: word index % 4 of Philox block index / 4. */
static inline uint32_t rand_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
    return rand_philox(seed, stream, index / 4).v[index % 4];
}

/* rand_u64 — returns 64-bit element `index` of the stream: half index % 2 of Philox block index /
 * 2. */
uint64_t rand_u64(uint64_t seed, uint64_t stream, uint64_t index);
double rand_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1), 53 bits */
/* rand_normal — for tests: returns N(0,1) by Box–Muller in double, one Philox block per value. */
double rand_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* rand_below — returns a uniform number in [0, n), n > 0 (multiply-shift of 64 bits; bias < n /
 * 2^64). */
uint64_t rand_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);
/* rand_permute — returns the new position of position `index` of [0, n) in the permutation of
 * (seed, stream): a Feistel network of eight rounds over the next power of four, walked until it
 * lands below n. A bijection on [0, n); O(1) expected, no table. */
uint64_t rand_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

#endif
