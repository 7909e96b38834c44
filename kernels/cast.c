/* cast — the plain truth: one number at a time, through float, which holds every bf16 and f16. */
#include "kernels/cast.h"

#include <string.h>

#include "kernels/cpu.h"
#include "kernels/bf16.h"

/* f16: a sign, 5 bits of exponent (15 is 2^0), 10 bits of fraction; exponent 0 counts in units of
 * 2^-24. From its bits, because not every compiler has the type. */
static float half_get(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    /* 127 - 15, and all ones stay so */
    uint32_t bits = sign | ((rest << 13) + (rest < 0x7c00 ? 112u << 23 : 224u << 23));
    float x;
    if (rest < 0x400)
        return sign ? -(float)rest * 0x1p-24f : (float)rest * 0x1p-24f;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To nearest, ties to even. Below 2^-14 the addition to 1/2, whose last bit counts 2^-24, rounds.
 * */
static uint16_t half_put(float x)
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

static float cast_get(struct tensor t, int64_t i)
{
    switch (t.dtype) {
    case DTYPE_BF16:
        return bf16_to_float(((const uint16_t *)t.data)[i]);
    case DTYPE_F16:
        return half_get(((const uint16_t *)t.data)[i]);
    default:
        return ((const float *)t.data)[i];
    }
}

static void cast_put(struct tensor t, int64_t i, float x)
{
    if (t.dtype == DTYPE_BF16)
        ((uint16_t *)t.data)[i] = bf16_from_float(x);
    else if (t.dtype == DTYPE_F16)
        ((uint16_t *)t.data)[i] = half_put(x);
    else
        ((float *)t.data)[i] = x;
}

void cast_plain(const struct cpu *cpu, const struct cast *a)
{
    (void)cpu;
    for (int64_t i = 0; i < a->n; i++)
        cast_put(a->y, i, cast_get(a->x, i));
}
