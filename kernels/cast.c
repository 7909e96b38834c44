/* cast — the plain truth: one number at a time, through float, which holds every bf16 and f16. */
#include "kernels/cast.h"

#include "kernels/cpu.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"

static float cast_get(struct tensor t, int64_t i)
{
    switch (t.dtype) {
    case DTYPE_BF16:
        return bf16_to_float(((const uint16_t *)t.data)[i]);
    case DTYPE_F16:
        return f16_to_float(((const uint16_t *)t.data)[i]);
    default:
        return ((const float *)t.data)[i];
    }
}

static void cast_put(struct tensor t, int64_t i, float x)
{
    if (t.dtype == DTYPE_BF16)
        ((uint16_t *)t.data)[i] = bf16_from_float(x);
    else if (t.dtype == DTYPE_F16)
        ((uint16_t *)t.data)[i] = f16_from_float(x);
    else
        ((float *)t.data)[i] = x;
}

void cast_plain(const struct cpu *cpu, const struct cast *a)
{
    (void)cpu;
    for (int64_t i = 0; i < a->n; i++)
        cast_put(a->y, i, cast_get(a->x, i));
}
