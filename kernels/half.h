/* half — bf16 on the host: what the plain truths of cast and compress share. Must not know operations. */
#ifndef CONVOY_KERNELS_HALF_H
#define CONVOY_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

/* half_bf16 — the upper half of a float; what is cut off rounds it, halves to even. A NaN keeps a bit that makes it
 * one. */
static inline uint16_t half_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float half_from_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
