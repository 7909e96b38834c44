/* cast — the plain truth: one number at a time, through float, which holds every bf16 and f16. */
#include "kernels/cast.h"

#include <string.h>

#include "kernels/cpu.h"

static float cast_get(struct tensor t, int64_t i)
{
    uint32_t bits;
    float x;
    _Float16 half;
    switch (t.dtype) {
    case DTYPE_BF16:
        bits = (uint32_t)((const uint16_t *)t.data)[i] << 16;
        memcpy(&x, &bits, sizeof x);
        return x;
    case DTYPE_F16:
        memcpy(&half, (const uint16_t *)t.data + i, sizeof half);
        return (float)half;
    default:
        return ((const float *)t.data)[i];
    }
}

/* The upper half of a float; what is cut off rounds it, halves to even. A NaN keeps a bit that makes it one. */
static uint16_t cast_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void cast_put(struct tensor t, int64_t i, float x)
{
    _Float16 half = (_Float16)x;
    if (t.dtype == DTYPE_BF16)
        ((uint16_t *)t.data)[i] = cast_bf16(x);
    else if (t.dtype == DTYPE_F16)
        memcpy((uint16_t *)t.data + i, &half, sizeof half);
    else
        ((float *)t.data)[i] = x;
}

void cast_plain(const struct cpu *cpu, const struct cast *a)
{
    (void)cpu;
    for (int64_t i = 0; i < a->n; i++)
        cast_put(a->y, i, cast_get(a->x, i));
}
