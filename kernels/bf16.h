/* bf16 — float to bf16 and back, on the host: for the plain versions of kernels and for readers of
 * files. Must not know operations. */
#ifndef CONVOY_KERNELS_BF16_H
#define CONVOY_KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

/* bf16_from_float — returns the upper half of a float, rounded to nearest, ties to even. A NaN
 * stays a NaN: a bit of its mantissa is set. */
static inline uint16_t bf16_from_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float bf16_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
