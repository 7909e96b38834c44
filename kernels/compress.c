/* compress — the plain truth of packing floats and unpacking them (compress.h). */
#include "kernels/compress.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/bf16.h"

/* One block of n ≤ COMPRESS_BLOCK values y; error: y minus what was packed. */
static void compress_block_bf16(const float *y, int64_t n, uint8_t *out, float *error)
{
    for (int64_t i = 0; i < COMPRESS_BLOCK; i++) {
        uint16_t half = i < n ? bf16_from_float(y[i]) : 0;
        memcpy(out + 2 * i, &half, sizeof half);
        if (i < n)
            error[i] = isfinite(bf16_to_float(half)) ? y[i] - bf16_to_float(half) : 0;
    }
}

static void compress_block_int8(const float *y, int64_t n, uint8_t *out, float *error)
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
    for (int64_t first = 0; first < a->n;
         first += COMPRESS_BLOCK, out += compress_block_bytes(a->kind)) {
        int64_t n = a->n - first < COMPRESS_BLOCK ? a->n - first : COMPRESS_BLOCK;
        for (int64_t i = 0; i < n; i++)
            y[i] = x[first + i] + (residual ? residual[first + i] : 0);
        if (a->kind == COMPRESS_KIND_INT8)
            compress_block_int8(y, n, out, error);
        else
            compress_block_bf16(y, n, out, error);
        if (residual)
            memcpy(residual + first, error, (size_t)n * sizeof *error);
    }
}

static void expand_block_int8(const uint8_t *block, int64_t n, float *y)
{
    float scale;
    memcpy(&scale, block, sizeof scale);
    for (int64_t i = 0; i < n; i++)
        y[i] = scale * (float)(int8_t)block[sizeof scale + (size_t)i];
}

static void expand_block_bf16(const uint8_t *block, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, block + 2 * i, sizeof half);
        y[i] = bf16_to_float(half);
    }
}

void expand_plain(const struct cpu *cpu, const struct expand *a)
{
    (void)cpu;
    float *y = a->y.data;
    const uint8_t *block = a->packed.data;
    for (int64_t first = 0; first < a->n;
         first += COMPRESS_BLOCK, block += compress_block_bytes(a->kind)) {
        int64_t n = a->n - first < COMPRESS_BLOCK ? a->n - first : COMPRESS_BLOCK;
        if (a->kind == COMPRESS_KIND_INT8)
            expand_block_int8(block, n, y + first);
        else
            expand_block_bf16(block, n, y + first);
    }
}
