/* grad_code — quantised gradients, as one rank sends them to another, in fewer bytes and back: the
 * numbers of all blocks are coded by zstd; their scales, which are as good as random, are not. Must
 * not know ranks or how gradients are quantised.
 *
 * A message has chunks of so many blocks that their numbers are GRAD_CODE_CHUNK_BYTES; the last has
 * the rest. A chunk is: bytes of its payload (u32, little-endian), all scales, the payload. The
 * payload is a frame of zstd, or, where that would not be smaller, the numbers as they are. */
#ifndef CONVOY_MESH_GRAD_CODE_H
#define CONVOY_MESH_GRAD_CODE_H

#include <stdint.h>

#include "base/status.h"

#define GRAD_CODE_CHUNK_BYTES 262144

/* Of a block's bytes the first scale_bytes are scales, the rest numbers. GRAD_CODE_CHUNK_BYTES is a
 * multiple of the latter. */
struct grad_code_block {
    int64_t bytes, scale_bytes;
};

struct grad_code;
/* grad_code_memory — what _open takes, with GRAD_CODE_ZSTD_BYTES that zstd takes at most.
 * grad_code_zstd_bytes — for tests: what zstd has taken so far. */
#define GRAD_CODE_ZSTD_BYTES ((int64_t)1 << 20)
int64_t grad_code_memory(void);
int64_t grad_code_zstd_bytes(const struct grad_code *code);
enum status grad_code_open(struct grad_code **out);
void grad_code_close(struct grad_code *code); /* accepts NULL */

/* grad_code_bound — bytes of the message of blocks_n blocks, at most.
 * grad_code_encode — `out` has grad_code_bound bytes; returns how many the message has.
 * grad_code_decode — blocks_n blocks from a message that begins at `coded`, where coded_bytes may
 * be read. What is behind the message is ignored. For messages of any content: ST_PEER when it is
 * not of blocks_n blocks; `packed` is undefined then. */
int64_t grad_code_bound(struct grad_code_block block, int64_t blocks_n);
int64_t grad_code_encode(struct grad_code *code, struct grad_code_block block,
                         const uint8_t *packed, int64_t blocks_n, uint8_t *out);
enum status grad_code_decode(struct grad_code *code, struct grad_code_block block,
                             const uint8_t *coded, int64_t coded_bytes, uint8_t *packed,
                             int64_t blocks_n);

/* grad_quant (grad/quant.c): gradients in a few bits each, and back, on the host: the forms of
 * COMPRESS that kernels/compress.h has not. With error feedback, as there.
 *
 * Elements are packed in blocks; the last block is padded with zeros:
 *   INT8_RMS  scale f32, 256 int8: 260 bytes; value = scale * q
 *   INT4      scale f32, 256 numbers of 4 bits (-7 to 7, the first of two in the low bits):
 *             132 bytes; scale = the largest magnitude / 7
 *
 * INT8_RMS is for entropy coding. Its scale is 16/127 of the block's root mean square r: so no
 * number is beyond 127, since no element is beyond 16 r, and the numbers of each block have the
 * same variance, (127/16)^2. Of all distributions of that variance the normal one has the largest
 * entropy, 5.04 bits: that bounds what a coder needs, whatever the gradients are.
 *
 * A block that has an infinity or a NaN unpacks to NaN, and its residual is 0. A block in which
 * all magnitudes are below 1e-30 packs to zeros. */
enum grad_quant_kind { GRAD_QUANT_KIND_INT8_RMS, GRAD_QUANT_KIND_INT4, GRAD_QUANT_KIND_N };

/* What a block has: elements, bytes, and how many of these bytes, the first ones, are scales. */
struct grad_quant_block {
    int64_t elems, bytes, scale_bytes;
};
struct grad_quant_block grad_quant_block(enum grad_quant_kind kind);
/* grad_quant_bytes — for tests: of n elements, packed. */
int64_t grad_quant_bytes(enum grad_quant_kind kind, int64_t n);

/* grad_quant_pack — packed ← Q(y), residual ← y - Q(y), with y = x + residual.
 * out  packed  grad_quant_bytes(kind, n) bytes
 * i/o  residual (n) or NULL: y = x | in  x (n) */
void grad_quant_pack(enum grad_quant_kind kind, const float *x, float *residual, int64_t n,
                     uint8_t *packed);
/* grad_quant_unpack — y (n) ← the values of `packed`. Exact. */
void grad_quant_unpack(enum grad_quant_kind kind, const uint8_t *packed, int64_t n, float *y);

#endif
