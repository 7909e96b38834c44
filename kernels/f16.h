/* f16 — float to IEEE binary16 and back, on the host: for the plain versions of kernels and for
 * sums between ranks. Must not know operations. */
#ifndef CONVOY_KERNELS_F16_H
#define CONVOY_KERNELS_F16_H

#include <stdint.h>
#include <string.h>

/* f16_to_float — converts a sign, 5 bits of exponent (15 is 2^0) and 10 bits of fraction; exponent
 * 0 counts in units of 2^-24. It works on the bits, because not every compiler has the type. */
static inline float f16_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    /* from bias 15 to bias 127; an exponent of all ones stays all ones */
    uint32_t bits = sign | ((rest << 13) + (rest < 0x7c00 ? 112u << 23 : 224u << 23));
    float x;
    if (rest < 0x400)
        return sign ? -(float)rest * 0x1p-24f : (float)rest * 0x1p-24f;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* f16_from_float — rounds to nearest, ties to even. Below 2^-14 the addition to 1/2 rounds: the
 * last bit of 1/2 counts 2^-24. */
static inline uint16_t f16_from_float(float x)
{
    uint32_t bits, small;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (bits >= 0x477ff000) /* 65520: the middle between the greatest value and 2^16 */
        return sign | 0x7c00;
    if (bits >= 0x38800000)
        return (uint16_t)(sign | ((bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13));
    const float sum = (x < 0 ? -x : x) + 0.5f;
    memcpy(&small, &sum, sizeof small);
    return (uint16_t)(sign | (small - 0x3f000000));
}

#endif
