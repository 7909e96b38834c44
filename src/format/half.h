/* half — IEEE binary16 as a float. Must not know files. */
#ifndef CONVOY_FORMAT_HALF_H
#define CONVOY_FORMAT_HALF_H

#include <stdint.h>
#include <string.h>

/* half_bits — returns the bits of the float of the same value. Every half is a float, so this is
 * exact. */
static inline uint32_t half_bits(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31)
        return sign | 0x7f800000u | fraction << 13;
    if (exponent > 0)
        return sign | (exponent + 112) << 23 | fraction << 13;
    if (fraction == 0)
        return sign;
    /* A subnormal: fraction · 2^-24. Shifts its leading bit to bit 10 and counts the steps. */
    uint32_t shift = (uint32_t)__builtin_clz(fraction) - 21;
    return sign | (113 - shift) << 23 | (fraction << shift & 0x3ff) << 13;
}

static inline float half_to_float(uint16_t h)
{
    uint32_t bits = half_bits(h);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#endif
