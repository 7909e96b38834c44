/* gguf_quant — element types of GGUF's tensors, and how their blocks become floats.
 *
 * F32, F16, BF16; blocks of 32 along a row: Q8_0 (f16 scale, 32 int8), Q4_0 (f16 scale, 32 nibbles
 * minus 8), Q4_1 (f16 scale, f16 minimum, 32 nibbles). Must not know files. */
#ifndef CONVOY_FORMAT_GGUF_QUANT_H
#define CONVOY_FORMAT_GGUF_QUANT_H

#include <stddef.h>
#include <stdint.h>

#define GGUF_QUANT_BLOCK_MAX 32

struct gguf_quant {
    const char *name;
    uint32_t type; /* the file's number */
    int block_elems, block_bytes;
    void (*to_f32)(const uint8_t *block, int64_t blocks_n, float *out);
};

/* gguf_quant_of — NULL: a type that is not read; *name_out: its name, or "unknown". */
const struct gguf_quant *gguf_quant_of(uint32_t type, const char **name_out);
/* gguf_quant_to_f32 — elements [first, first+n) of a row of blocks that begins at row. */
void gguf_quant_to_f32(const struct gguf_quant *quant, const uint8_t *row, int64_t first, int64_t n,
                       float *out);

#endif
