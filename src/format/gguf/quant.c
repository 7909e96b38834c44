/* gguf_quant — see gguf.h. Source: the layouts in ggml-common.h of llama.cpp. Its library
 * computes scale × number + minimum in f32, as here, so values are equal bit for bit. */
#include "format/gguf.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "format/half.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"

#define BLOCK GGUF_QUANT_BLOCK_MAX

static uint16_t read_u16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

static void f32_to_f32(const uint8_t *block, int64_t blocks_n, float *out)
{
    memcpy(out, block, (size_t)blocks_n * sizeof(*out));
}

static void f16_to_f32(const uint8_t *block, int64_t blocks_n, float *out)
{
    for (int64_t i = 0; i < blocks_n; i++)
        out[i] = half_to_float(read_u16(block + 2 * i));
}

static void bf16_to_f32(const uint8_t *block, int64_t blocks_n, float *out)
{
    for (int64_t i = 0; i < blocks_n; i++)
        out[i] = bf16_to_float(read_u16(block + 2 * i));
}

static void q8_0_to_f32(const uint8_t *block, int64_t blocks_n, float *out)
{
    for (; blocks_n > 0; blocks_n--, block += 2 + BLOCK, out += BLOCK) {
        float scale = half_to_float(read_u16(block));
        for (int i = 0; i < BLOCK; i++)
            out[i] = scale * (float)(int8_t)block[2 + i];
    }
}

static void write_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static bool f32_from_f32(const float *in, int64_t blocks_n, uint8_t *out)
{
    memcpy(out, in, (size_t)blocks_n * sizeof(*in));
    return true;
}

static bool f16_from_f32(const float *in, int64_t blocks_n, uint8_t *out)
{
    bool fits = true;
    for (int64_t i = 0; i < blocks_n; i++) {
        const uint16_t half = f16_from_float(in[i]);
        fits = fits && ((half & 0x7c00) != 0x7c00 || !isfinite(in[i]));
        write_u16(out + 2 * i, half);
    }
    return fits;
}

static bool bf16_from_f32(const float *in, int64_t blocks_n, uint8_t *out)
{
    bool fits = true;
    for (int64_t i = 0; i < blocks_n; i++) {
        const uint16_t half = bf16_from_float(in[i]);
        fits = fits && ((half & 0x7f80) != 0x7f80 || !isfinite(in[i]));
        write_u16(out + 2 * i, half);
    }
    return fits;
}

/* Rounds with the f32 scale and stores the scale as f16, like llama.cpp's reference. A number
 * that is not finite becomes 0. */
static bool q8_0_from_f32(const float *in, int64_t blocks_n, uint8_t *out)
{
    bool fits = true;
    for (; blocks_n > 0; blocks_n--, in += BLOCK, out += 2 + BLOCK) {
        float most = 0;
        for (int i = 0; i < BLOCK; i++)
            most = isfinite(in[i]) && fabsf(in[i]) > most ? fabsf(in[i]) : most;
        const float scale = most / 127;
        const float inverse = scale > 0 ? 1 / scale : 0;
        const uint16_t half = f16_from_float(scale);
        fits = fits && (half & 0x7c00) != 0x7c00;
        write_u16(out, half);
        for (int i = 0; i < BLOCK; i++) {
            const float x = isfinite(in[i]) && isfinite(inverse) ? roundf(in[i] * inverse) : 0;
            out[2 + i] = (uint8_t)(int8_t)x;
        }
    }
    return fits;
}

/* Unpacks 32 nibbles: the low ones are the first 16 numbers. */
static void unpack_nibbles(const uint8_t *nibbles, float scale, float minimum, int less, float *out)
{
    for (int i = 0; i < BLOCK / 2; i++) {
        out[i] = scale * (float)((nibbles[i] & 15) - less) + minimum;
        out[i + BLOCK / 2] = scale * (float)((nibbles[i] >> 4) - less) + minimum;
    }
}

static void q4_0_to_f32(const uint8_t *block, int64_t blocks_n, float *out)
{
    for (; blocks_n > 0; blocks_n--, block += 2 + BLOCK / 2, out += BLOCK)
        unpack_nibbles(block + 2, half_to_float(read_u16(block)), -0.0f, 8, out); /* x + -0 is x */
}

static void q4_1_to_f32(const uint8_t *block, int64_t blocks_n, float *out)
{
    for (; blocks_n > 0; blocks_n--, block += 4 + BLOCK / 2, out += BLOCK)
        unpack_nibbles(block + 4, half_to_float(read_u16(block)),
                       half_to_float(read_u16(block + 2)), 0, out);
}

static const struct gguf_quant quant_list[] = {
    {"F32", 0, 1, 4, f32_to_f32, f32_from_f32, 0},
    {"F16", 1, 1, 2, f16_to_f32, f16_from_f32, 1},
    {"Q4_0", 2, BLOCK, 2 + BLOCK / 2, q4_0_to_f32, NULL, 0},
    {"Q4_1", 3, BLOCK, 4 + BLOCK / 2, q4_1_to_f32, NULL, 0},
    {"Q8_0", 8, BLOCK, 2 + BLOCK, q8_0_to_f32, q8_0_from_f32, 7},
    {"BF16", 30, 1, 2, bf16_to_f32, bf16_from_f32, 32},
};

/* Types that are not read, for messages. */
static const struct {
    uint32_t type;
    const char *name;
} other_list[] = {
    {6, "Q5_0"},   {7, "Q5_1"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},
    {13, "Q5_K"},  {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},
    {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {34, "TQ1_0"},
    {35, "TQ2_0"}, {39, "MXFP4"},
};

const struct gguf_quant *gguf_quant_of(uint32_t type, const char **name_out)
{
    *name_out = "unknown";
    for (size_t i = 0; i < sizeof(quant_list) / sizeof(quant_list[0]); i++)
        if (quant_list[i].type == type) {
            *name_out = quant_list[i].name;
            return &quant_list[i];
        }
    for (size_t i = 0; i < sizeof(other_list) / sizeof(other_list[0]); i++)
        if (other_list[i].type == type)
            *name_out = other_list[i].name;
    return NULL;
}

void gguf_quant_to_f32(const struct gguf_quant *quant, const uint8_t *row, int64_t first, int64_t n,
                       float *out)
{
    const int64_t width = quant->block_elems, end = first + n;
    while (first < end) {
        const uint8_t *block = row + first / width * quant->block_bytes;
        int64_t from = first % width, whole = (end - first) / width, done;
        if (from == 0 && whole > 0) {
            done = whole * width;
            quant->to_f32(block, whole, out);
        } else {
            int64_t to = end - first < width - from ? from + end - first : width;
            done = to - from;
            /* Elements [from, to) of one block. */
            float all[GGUF_QUANT_BLOCK_MAX];
            quant->to_f32(block, 1, all);
            memcpy(out, all + from, (size_t)(to - from) * sizeof(*out));
        }
        first += done;
        out += done;
    }
}

const struct gguf_quant *gguf_quant_named(const char *name)
{
    for (size_t i = 0; i < sizeof(quant_list) / sizeof(quant_list[0]); i++)
        if (quant_list[i].from_f32 != NULL && strcasecmp(quant_list[i].name, name) == 0)
            return &quant_list[i];
    return NULL;
}

bool gguf_quant_from_f32(const struct gguf_quant *quant, const float *in, int64_t n, uint8_t *out)
{
    ASSERTF(n % quant->block_elems == 0, "%lld of %s", (long long)n, quant->name);
    return quant->from_f32(in, n / quant->block_elems, out);
}
