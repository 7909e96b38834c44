/* grad_quant — packing and unpacking, a block at a time (grad/code.h). The Makefile compiles this
 * file with -O3, for vectors. */
#include "mesh/grad/code.h"

#include <math.h>
#include <string.h>

#define BLOCK_ELEMS 256
#define TINY 1e-30f
#define BITS_INFINITE 0x7f800000

struct grad_quant_block grad_quant_block(enum grad_quant_kind kind)
{
    static const struct grad_quant_block block[GRAD_QUANT_KIND_N] = {
        [GRAD_QUANT_KIND_INT8_RMS] = {BLOCK_ELEMS, 4 + BLOCK_ELEMS, 4},
        [GRAD_QUANT_KIND_INT4] = {BLOCK_ELEMS, 4 + BLOCK_ELEMS / 2, 4},
    };
    return block[kind];
}

int64_t grad_quant_bytes(enum grad_quant_kind kind, int64_t n)
{
    struct grad_quant_block b = grad_quant_block(kind);
    return (n + b.elems - 1) / b.elems * b.bytes;
}

/* Computes y = x + residual, padded with zeros to a block. Returns the bits of the largest
 * magnitude. */
static int32_t load_block(const float *restrict x, const float *restrict residual, int64_t n,
                          float *restrict y)
{
    int32_t most = 0;
    memset(y + n, 0, (size_t)(BLOCK_ELEMS - n) * sizeof *y);
    memcpy(y, x, (size_t)n * sizeof *y);
    for (int64_t i = 0; residual && i < n; i++)
        y[i] += residual[i];
    for (int64_t i = 0; i < BLOCK_ELEMS; i++) {
        int32_t bits;
        memcpy(&bits, y + i, sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    return most;
}

static float float_of(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds to nearest even, for |x| < 2^22; the baseline of x86-64 has no instruction for it. */
static inline int32_t round_near(float x) { return (int32_t)(x + 12582912.0f - 12582912.0f); }

/* Computes q = y / scale; the rounding error stays in y. */
static void quantise_block(float *restrict y, float scale, float inverse, int8_t *restrict q)
{
    for (int i = 0; i < BLOCK_ELEMS; i++) {
        int32_t whole = round_near(y[i] * inverse);
        q[i] = (int8_t)whole;
        y[i] -= scale * (float)whole;
    }
}

/* Returns the sum of the squares of all y, in units of (most / 127)^2 and rounded to them.
 * Integers, so their order does not matter; at least 127^2. */
static int32_t sum_squares(const float *restrict y, float most)
{
    const float inverse = 127 / most;
    int32_t sum = 0;
    for (int i = 0; i < BLOCK_ELEMS; i++) {
        int32_t whole = round_near(y[i] * inverse);
        sum += whole * whole;
    }
    return sum;
}

static float scale_of(enum grad_quant_kind kind, const float *y, float most)
{
    if (most < TINY)
        return 0;
    if (kind == GRAD_QUANT_KIND_INT4)
        return most / 7;
    /* 16/127 of the root of sum/256 squares of most/127 */
    return most / 127 * (sqrtf((float)sum_squares(y, most)) / 127);
}

static void store_int4(const int8_t *restrict q, uint8_t *restrict out)
{
    for (int i = 0; i < BLOCK_ELEMS / 2; i++)
        out[i] = (uint8_t)((q[2 * i] & 15) | (uint32_t)q[2 * i + 1] << 4);
}

static void pack_block(enum grad_quant_kind kind, float *y, int32_t most_bits, uint8_t *out)
{
    int8_t q[BLOCK_ELEMS];
    float scale = NAN;
    if (most_bits >= BITS_INFINITE) {
        memset(q, 1, sizeof q);
        memset(y, 0, BLOCK_ELEMS * sizeof *y);
    } else {
        scale = scale_of(kind, y, float_of(most_bits));
        quantise_block(y, scale, scale > 0 ? 1 / scale : 0, q);
    }
    memcpy(out, &scale, sizeof scale);
    if (kind == GRAD_QUANT_KIND_INT4)
        store_int4(q, out + sizeof scale);
    else
        memcpy(out + sizeof scale, q, sizeof q);
}

static void unpack_block(enum grad_quant_kind kind, const uint8_t *in, float *restrict y)
{
    int8_t q[BLOCK_ELEMS];
    float scale;
    memcpy(&scale, in, sizeof scale);
    if (kind == GRAD_QUANT_KIND_INT4)
        for (int i = 0; i < BLOCK_ELEMS; i++) /* the sign is bit 3 */
            q[i] = (int8_t)(((in[4 + i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8);
    else
        memcpy(q, in + sizeof scale, sizeof q);
    for (int i = 0; i < BLOCK_ELEMS; i++)
        y[i] = scale * (float)q[i];
}

void grad_quant_pack(enum grad_quant_kind kind, const float *x, float *residual, int64_t n,
                     uint8_t *packed)
{
    const struct grad_quant_block b = grad_quant_block(kind);
    float y[BLOCK_ELEMS];
    for (int64_t first = 0; first < n; first += b.elems, packed += b.bytes) {
        int64_t here = n - first < b.elems ? n - first : b.elems;
        int32_t most = load_block(x + first, residual ? residual + first : NULL, here, y);
        pack_block(kind, y, most, packed);
        if (residual)
            memcpy(residual + first, y, (size_t)here * sizeof *y);
    }
}

void grad_quant_unpack(enum grad_quant_kind kind, const uint8_t *packed, int64_t n, float *y)
{
    const struct grad_quant_block b = grad_quant_block(kind);
    float last[BLOCK_ELEMS];
    for (int64_t first = 0; first < n; first += b.elems, packed += b.bytes) {
        int64_t here = n - first < b.elems ? n - first : b.elems;
        if (here == b.elems) {
            unpack_block(kind, packed, y + first);
        } else {
            unpack_block(kind, packed, last);
            memcpy(y + first, last, (size_t)here * sizeof *y);
        }
    }
}
