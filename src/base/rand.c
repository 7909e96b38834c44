/* rand — distributions and permutations from Philox blocks; see rand.h. Pure functions. */
#include "base/rand.h"

#include <math.h>

#include "base/assert.h"

/* More than the four rounds that make a Feistel network a good permutation of a large set: small
 * sets need more rounds to reach almost all their orders. */
#define RAND_FEISTEL_ROUNDS 8

static uint64_t word64(uint32_t low, uint32_t high) { return (uint64_t)high << 32 | low; }

uint64_t rand_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    struct rand4 block = rand_philox(seed, stream, index / 2);
    return index % 2 == 0 ? word64(block.v[0], block.v[1]) : word64(block.v[2], block.v[3]);
}

double rand_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(rand_u64(seed, stream, index) >> 11) * 0x1p-53;
}

double rand_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    static const double two_pi = 6.283185307179586476925286766559;
    struct rand4 block = rand_philox(seed, stream, index);
    /* (0, 1], so that the logarithm is finite. */
    double radius_u = (double)((word64(block.v[0], block.v[1]) >> 11) + 1) * 0x1p-53;
    double angle_u = (double)(word64(block.v[2], block.v[3]) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(radius_u)) * cos(two_pi * angle_u);
}

uint64_t rand_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    ASSERT(n > 0);
    return (uint64_t)(((unsigned __int128)rand_u64(seed, stream, index) * n) >> 64);
}

uint64_t rand_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    ASSERTF(index < n, "index %llu n %llu", (unsigned long long)index, (unsigned long long)n);
    int half_bits = 1;
    while (half_bits < 32 && (uint64_t)1 << (2 * half_bits) < n)
        half_bits++;
    /* The walk follows the cycle of index, so it ends below n at the latest at index itself. */
    uint64_t x = index;
    do {
        /* One pass through the network maps x of 2·half_bits bits to another, one to one. */
        uint64_t mask = ((uint64_t)1 << half_bits) - 1;
        uint64_t left = x >> half_bits, right = x & mask;
        for (uint64_t round = 0; round < RAND_FEISTEL_ROUNDS; round++) {
            uint64_t mixed = left ^ (rand_philox(seed, stream, round << 32 | right).v[0] & mask);
            left = right;
            right = mixed;
        }
        x = left << half_bits | right;
    } while (x >= n);
    return x;
}
