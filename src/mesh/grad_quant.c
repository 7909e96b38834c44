/* grad_quant — packing and unpacking, a block at a time (grad_quant.h). The Makefile compiles this
 * file with -O3, for vectors. */
#include "mesh/grad_quant.h"

#include <math.h>
#include <string.h>

#define DENSE_ELEMS 256
#define SPARSE_ELEMS 4096
#define KEPT GRAD_QUANT_TOPK_KEPT
#define TINY 1e-30f
#define BITS_INFINITE 0x7f800000
#define POSITION_BYTES (KEPT * 12 / 8)
#define LEVEL_BYTES (KEPT * 2 / 8)

struct grad_quant_block grad_quant_block(enum grad_quant_kind kind)
{
    static const struct grad_quant_block block[GRAD_QUANT_KIND_N] = {
        [GRAD_QUANT_KIND_INT8_RMS] = {DENSE_ELEMS, 4 + DENSE_ELEMS, 4},
        [GRAD_QUANT_KIND_INT4] = {DENSE_ELEMS, 4 + DENSE_ELEMS / 2, 4},
        [GRAD_QUANT_KIND_TOPK] = {SPARSE_ELEMS, 8 + POSITION_BYTES + LEVEL_BYTES, 8},
    };
    return block[kind];
}

int64_t grad_quant_bytes(enum grad_quant_kind kind, int64_t n)
{
    struct grad_quant_block b = grad_quant_block(kind);
    return (n + b.elems - 1) / b.elems * b.bytes;
}

/* ---- all kinds ---- */

/* y = x + residual, padded with zeros to `elems`; returns the bits of the largest magnitude. */
static int32_t load(const float *restrict x, const float *restrict residual, int64_t n,
                    int64_t elems, float *restrict y)
{
    int32_t most = 0;
    memset(y + n, 0, (size_t)(elems - n) * sizeof *y);
    memcpy(y, x, (size_t)n * sizeof *y);
    for (int64_t i = 0; residual && i < n; i++)
        y[i] += residual[i];
    for (int64_t i = 0; i < elems; i++) {
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

/* Rounded to nearest even, for |x| < 2^22; the baseline of x86-64 has no instruction for it. */
static inline int32_t round_near(float x) { return (int32_t)(x + 12582912.0f - 12582912.0f); }

/* ---- INT8_RMS and INT4 ---- */

/* q = y / scale, and what that loses is left in y. */
static void quantise(float *restrict y, float scale, float inverse, int8_t *restrict q)
{
    for (int i = 0; i < DENSE_ELEMS; i++) {
        int32_t whole = round_near(y[i] * inverse);
        q[i] = (int8_t)whole;
        y[i] -= scale * (float)whole;
    }
}

/* The sum of the squares of all y, in units of (most / 127)^2 and rounded to them. Integers, so its
 * order does not matter; at least 127^2. */
static int32_t sum_squares(const float *restrict y, float most)
{
    const float inverse = 127 / most;
    int32_t sum = 0;
    for (int i = 0; i < DENSE_ELEMS; i++) {
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
    for (int i = 0; i < DENSE_ELEMS / 2; i++)
        out[i] = (uint8_t)((q[2 * i] & 15) | (uint32_t)q[2 * i + 1] << 4);
}

static void pack_dense(enum grad_quant_kind kind, float *y, int32_t most_bits, uint8_t *out)
{
    int8_t q[DENSE_ELEMS];
    float scale = NAN;
    if (most_bits >= BITS_INFINITE) {
        memset(q, 1, sizeof q);
        memset(y, 0, DENSE_ELEMS * sizeof *y);
    } else {
        scale = scale_of(kind, y, float_of(most_bits));
        quantise(y, scale, scale > 0 ? 1 / scale : 0, q);
    }
    memcpy(out, &scale, sizeof scale);
    if (kind == GRAD_QUANT_KIND_INT4)
        store_int4(q, out + sizeof scale);
    else
        memcpy(out + sizeof scale, q, sizeof q);
}

static void unpack_dense(enum grad_quant_kind kind, const uint8_t *in, float *restrict y)
{
    int8_t q[DENSE_ELEMS];
    float scale;
    memcpy(&scale, in, sizeof scale);
    if (kind == GRAD_QUANT_KIND_INT4)
        for (int i = 0; i < DENSE_ELEMS; i++) /* the sign is bit 3 */
            q[i] = (int8_t)(((in[4 + i / 2] >> (i % 2 * 4) & 15) ^ 8) - 8);
    else
        memcpy(q, in + sizeof scale, sizeof q);
    for (int i = 0; i < DENSE_ELEMS; i++)
        y[i] = scale * (float)q[i];
}

/* ---- TOPK ---- */

struct kept {
    uint16_t position[KEPT];
    int n;
};

/* The most of the upper 11 bits of a magnitude such that at least `want` elements have them or
 * more; *above: how many have more. */
static uint32_t find_bin(const uint32_t *magnitude, int64_t n, int want, int *above_out)
{
    uint16_t count[2048] = {0};
    int above = 0;
    uint32_t bin = 2047;
    for (int64_t i = 0; i < n; i++)
        count[magnitude[i] >> 20]++;
    while (above + count[bin] < want)
        above += count[bin--];
    *above_out = above;
    return bin;
}

/* The magnitude of the want-th largest of those that have these upper bits. */
static uint32_t find_least(const uint32_t *magnitude, int64_t n, uint32_t bin, int want)
{
    uint32_t low = bin << 20, high = low + (1u << 20) - 1; /* the answer lies in [low, high] */
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        int count = 0;
        for (int64_t i = 0; i < n; i++)
            count += magnitude[i] >> 20 == bin && magnitude[i] >= middle;
        if (count >= want)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* How many of n elements to keep: no zeros, so that padding of tensors stays zero. */
static int count_wanted(const uint32_t *magnitude, int64_t n)
{
    int not_zero = 0;
    for (int64_t i = 0; i < n; i++)
        not_zero += magnitude[i] > 0;
    return not_zero < KEPT ? not_zero : KEPT;
}

/* The positions, in order, of the elements of the largest magnitude; of equals the first ones. At
 * least one is not zero. */
static struct kept choose(const uint32_t *magnitude, int64_t n)
{
    struct kept k = {.n = 0};
    uint32_t in_bin[SPARSE_ELEMS];
    int want = count_wanted(magnitude, n), above, greater = 0;
    int64_t in_bin_n = 0;
    uint32_t bin = find_bin(magnitude, n, want, &above);
    for (int64_t i = 0; i < n; i++)
        if (magnitude[i] >> 20 == bin)
            in_bin[in_bin_n++] = magnitude[i];
    uint32_t least = find_least(in_bin, in_bin_n, bin, want - above);
    for (int64_t i = 0; i < n; i++)
        greater += magnitude[i] > least;
    for (int64_t i = 0, equal = want - greater; i < n && k.n < want; i++)
        if (magnitude[i] > least || (magnitude[i] == least && equal-- > 0))
            k.position[k.n++] = (uint16_t)i;
    return k;
}

/* The means of the magnitudes below their mean, and of the others. */
static void levels_of(const float *y, const struct kept *k, float level[2], bool is_high[KEPT])
{
    float sum = 0, part[2] = {0};
    int count[2] = {0};
    for (int i = 0; i < k->n; i++)
        sum += fabsf(y[k->position[i]]) / (float)k->n;
    for (int i = 0; i < k->n; i++) {
        is_high[i] = fabsf(y[k->position[i]]) >= sum;
        part[is_high[i]] += fabsf(y[k->position[i]]) / KEPT;
        count[is_high[i]]++;
    }
    for (int h = 0; h < 2; h++)
        level[h] = count[h] > 0 ? part[h] / (float)count[h] * KEPT : 0;
}

static void put_position(uint8_t *out, int i, uint32_t position)
{
    uint8_t *at = out + i / 2 * 3;
    if (i % 2 == 0) {
        at[0] = (uint8_t)position;
        at[1] = (uint8_t)(position >> 8);
    } else {
        at[1] = (uint8_t)(at[1] | (position & 15) << 4);
        at[2] = (uint8_t)(position >> 4);
    }
}

static uint32_t get_position(const uint8_t *in, int i)
{
    const uint8_t *at = in + i / 2 * 3;
    return i % 2 == 0 ? at[0] | (at[1] & 15u) << 8 : (uint32_t)at[1] >> 4 | (uint32_t)at[2] << 4;
}

static uint32_t sign_and_level(float value, bool is_high)
{
    return (value < 0 ? 2u : 0u) | is_high;
}

static void pack_sparse(float *y, int64_t n, int32_t most_bits, uint8_t *out)
{
    uint32_t magnitude[SPARSE_ELEMS];
    bool is_high[KEPT];
    float level[2] = {NAN, NAN};
    memset(out, 0, 8 + POSITION_BYTES + LEVEL_BYTES);
    if (most_bits >= BITS_INFINITE) {
        memcpy(out, level, sizeof level);
        memset(y, 0, SPARSE_ELEMS * sizeof *y);
        return;
    }
    if (float_of(most_bits) < TINY)
        return;
    memcpy(magnitude, y, sizeof magnitude);
    for (int i = 0; i < SPARSE_ELEMS; i++)
        magnitude[i] &= INT32_MAX;
    struct kept k = choose(magnitude, n);
    levels_of(y, &k, level, is_high);
    memcpy(out, level, sizeof level);
    for (int i = 0; i < KEPT; i++) { /* with fewer, the first one stands for the rest */
        int at = i < k.n ? i : 0;
        put_position(out + 8, i, k.position[at]);
        out[8 + POSITION_BYTES + i / 4] |=
            (uint8_t)(sign_and_level(y[k.position[at]], is_high[at]) << i % 4 * 2);
    }
    for (int i = 0; i < k.n; i++)
        y[k.position[i]] -= copysignf(level[is_high[i]], y[k.position[i]]);
}

static bool unpack_sparse(const uint8_t *in, int64_t n, float *y)
{
    float level[2];
    memcpy(level, in, sizeof level);
    for (int64_t i = 0; i < n; i++)
        y[i] = isfinite(level[0]) && isfinite(level[1]) ? 0 : NAN;
    for (int i = 0; i < KEPT; i++) {
        uint32_t position = get_position(in + 8, i),
                 bits = (uint32_t)in[8 + POSITION_BYTES + i / 4] >> i % 4 * 2;
        if (position >= n)
            return false;
        if (!isnan(y[position]) && level[bits & 1] != 0)
            y[position] = bits & 2 ? -level[bits & 1] : level[bits & 1];
    }
    return true;
}

/* ---- */

void grad_quant_pack(enum grad_quant_kind kind, const float *x, float *residual, int64_t n,
                     uint8_t *packed)
{
    const struct grad_quant_block b = grad_quant_block(kind);
    float y[SPARSE_ELEMS];
    for (int64_t first = 0; first < n; first += b.elems, packed += b.bytes) {
        int64_t here = n - first < b.elems ? n - first : b.elems;
        int32_t most = load(x + first, residual ? residual + first : NULL, here, b.elems, y);
        if (kind == GRAD_QUANT_KIND_TOPK)
            pack_sparse(y, here, most, packed);
        else
            pack_dense(kind, y, most, packed);
        if (residual)
            memcpy(residual + first, y, (size_t)here * sizeof *y);
    }
}

bool grad_quant_unpack(enum grad_quant_kind kind, const uint8_t *packed, int64_t n, float *y)
{
    const struct grad_quant_block b = grad_quant_block(kind);
    float last[DENSE_ELEMS];
    for (int64_t first = 0; first < n; first += b.elems, packed += b.bytes) {
        int64_t here = n - first < b.elems ? n - first : b.elems;
        if (kind == GRAD_QUANT_KIND_TOPK) {
            if (!unpack_sparse(packed, here, y + first))
                return false;
        } else if (here == b.elems) {
            unpack_dense(kind, packed, y + first);
        } else {
            unpack_dense(kind, packed, last);
            memcpy(y + first, last, (size_t)here * sizeof *y);
        }
    }
    return true;
}
