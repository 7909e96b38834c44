/* compress — the plain truth of packing floats and unpacking them (compress.h). */
#include "kernels/compress.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu.h"

/* Packs one block of n ≤ COMPRESS_BLOCK values y; error: y minus the packed values. */
static void compress_block(const float *y, int64_t n, uint8_t *out, float *error)
{
    float most = 0, scale, inverse;
    bool is_finite = true;
    for (int64_t i = 0; i < n; i++) {
        is_finite = is_finite && isfinite(y[i]);
        most = fmaxf(most, fabsf(y[i]));
    }
    scale = !is_finite ? NAN : most < COMPRESS_TINY ? 0 : most / 127;
    inverse = scale > 0 ? 127 / most : 0;
    memcpy(out, &scale, sizeof scale);
    for (int64_t i = 0; i < COMPRESS_BLOCK; i++) {
        float q = i < n && is_finite ? rintf(y[i] * inverse) : is_finite ? 0 : 1;
        out[4 + i] = (uint8_t)(int8_t)q;
        if (i < n)
            error[i] = is_finite ? y[i] - scale * q : 0;
    }
}

void compress_plain(const struct cpu *cpu, const struct compress *a)
{
    (void)cpu;
    const float *x = a->x.data;
    float *residual = a->residual.data, y[COMPRESS_BLOCK], error[COMPRESS_BLOCK];
    uint8_t *out = a->packed.data;
    for (int64_t first = 0; first < a->n; first += COMPRESS_BLOCK, out += COMPRESS_BLOCK_BYTES) {
        int64_t n = a->n - first < COMPRESS_BLOCK ? a->n - first : COMPRESS_BLOCK;
        for (int64_t i = 0; i < n; i++)
            y[i] = x[first + i] + (residual ? residual[first + i] : 0);
        compress_block(y, n, out, error);
        if (residual)
            memcpy(residual + first, error, (size_t)n * sizeof *error);
    }
}

static void expand_block(const uint8_t *block, int64_t n, float *y)
{
    float scale;
    memcpy(&scale, block, sizeof scale);
    for (int64_t i = 0; i < n; i++)
        y[i] = scale * (float)(int8_t)block[sizeof scale + (size_t)i];
}

void expand_plain(const struct cpu *cpu, const struct expand *a)
{
    (void)cpu;
    float *y = a->y.data;
    const uint8_t *block = a->packed.data;
    for (int64_t first = 0; first < a->n; first += COMPRESS_BLOCK, block += COMPRESS_BLOCK_BYTES) {
        int64_t n = a->n - first < COMPRESS_BLOCK ? a->n - first : COMPRESS_BLOCK;
        expand_block(block, n, y + first);
    }
}
