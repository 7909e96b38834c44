/* compress_cpu — fast packing of floats. A block stays in registers and first-level cache between
 * finding its scale and using it. The greatest magnitude is found among the bits: there a NaN is
 * greater than an infinity, and an infinity greater than any number. */
#include "kernels/compress.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu.h"

#define RANGE_BLOCKS 128
#define BITS_INFINITE 0x7f800000

/* Writes the values y of a block, padded with zeros; returns the bits of the greatest magnitude. */
static int32_t compress_load(const float *restrict x, const float *restrict residual, int64_t n,
                             float *restrict y)
{
    int32_t bits[COMPRESS_BLOCK], most = 0;
    if (n < COMPRESS_BLOCK)
        memset(y, 0, COMPRESS_BLOCK * sizeof *y);
    if (residual)
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] + residual[i];
    else
        memcpy(y, x, (size_t)n * sizeof *y);
    memcpy(bits, y, sizeof bits);
    for (int i = 0; i < COMPRESS_BLOCK; i++) {
        int32_t magnitude = bits[i] & INT32_MAX;
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

static void compress_block(float *restrict y, int32_t most_bits, uint8_t *restrict out)
{
    float most, scale, inverse;
    int8_t q[COMPRESS_BLOCK];
    memcpy(&most, &most_bits, sizeof most);
    if (most_bits >= BITS_INFINITE) {
        scale = NAN;
        memset(q, 1, sizeof q);
        memset(y, 0, COMPRESS_BLOCK * sizeof *y);
    } else {
        scale = most < COMPRESS_TINY ? 0 : most / 127;
        inverse = most < COMPRESS_TINY ? 0 : 127 / most;
        for (int i = 0; i < COMPRESS_BLOCK; i++) {
            float whole = rintf(y[i] * inverse);
            q[i] = (int8_t)(int32_t)whole;
            y[i] -= scale * whole;
        }
    }
    memcpy(out, &scale, sizeof scale);
    memcpy(out + 4, q, sizeof q);
}

static void compress_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct compress *a = arg;
    float *residual = a->residual.data, y[COMPRESS_BLOCK];
    int64_t blocks_n = cpu_ranges(a->n, COMPRESS_BLOCK);
    for (int64_t b = (int64_t)range_i * RANGE_BLOCKS;
         b < cpu_range_end(blocks_n, RANGE_BLOCKS, range_i); b++) {
        int64_t first = b * COMPRESS_BLOCK,
                n = a->n - first < COMPRESS_BLOCK ? a->n - first : COMPRESS_BLOCK;
        uint8_t *out = (uint8_t *)a->packed.data + b * COMPRESS_BLOCK_BYTES;
        int32_t most = compress_load((const float *)a->x.data + first,
                                     residual ? residual + first : NULL, n, y);
        compress_block(y, most, out);
        if (residual)
            memcpy(residual + first, y, (size_t)n * sizeof *y);
    }
}

void CPU_FN(compress)(const struct cpu *cpu, const struct compress *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(cpu_ranges(a->n, COMPRESS_BLOCK), RANGE_BLOCKS),
                    compress_range, (void *)a);
}

static void expand_block(const uint8_t *restrict block, float *restrict y)
{
    float scale;
    int8_t q[COMPRESS_BLOCK];
    memcpy(&scale, block, sizeof scale);
    memcpy(q, block + 4, sizeof q);
    for (int i = 0; i < COMPRESS_BLOCK; i++)
        y[i] = scale * (float)q[i];
}

static void expand_range(void *arg, int range_i, int thread_i)
{
    (void)thread_i;
    const struct expand *a = arg;
    int64_t blocks_n = cpu_ranges(a->n, COMPRESS_BLOCK);
    for (int64_t b = (int64_t)range_i * RANGE_BLOCKS;
         b < cpu_range_end(blocks_n, RANGE_BLOCKS, range_i); b++) {
        int64_t first = b * COMPRESS_BLOCK,
                n = a->n - first < COMPRESS_BLOCK ? a->n - first : COMPRESS_BLOCK;
        float *out = (float *)a->y.data + first, y[COMPRESS_BLOCK];
        expand_block((const uint8_t *)a->packed.data + b * COMPRESS_BLOCK_BYTES,
                     n < COMPRESS_BLOCK ? y : out);
        if (n < COMPRESS_BLOCK)
            memcpy(out, y, (size_t)n * sizeof *y);
    }
}

void CPU_FN(expand)(const struct cpu *cpu, const struct expand *a)
{
    thread_pool_run(cpu->pool, cpu_ranges(cpu_ranges(a->n, COMPRESS_BLOCK), RANGE_BLOCKS),
                    expand_range, (void *)a);
}
