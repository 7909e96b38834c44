/* grad_code — codes quantised gradients into fewer bytes to send, and decodes them: the numbers of
 * all blocks are coded by zstd; their scales are almost random and are not coded. Must not know
 * ranks or the quantisation of gradients.
 *
 * A message consists of chunks. The numbers of a chunk's blocks have GRAD_CODE_CHUNK_BYTES bytes
 * together; the last chunk has the rest. A chunk is: bytes of its payload (u32, little-endian), all
 * scales, the payload. The payload is a frame of zstd, or, if that would not be smaller, the
 * numbers as they are. */
#ifndef CONVOY_MESH_GRAD_CODE_H
#define CONVOY_MESH_GRAD_CODE_H

#include <stdint.h>

#include "base/status.h"

#define GRAD_CODE_CHUNK_BYTES 262144

/* Bytes of a block: the first scale_bytes are scales, the rest are numbers. GRAD_CODE_CHUNK_BYTES
 * is a multiple of the bytes of a block's numbers. */
struct grad_code_block {
    int64_t bytes, scale_bytes;
};

struct grad_code;
/* Most bytes that zstd allocates. */
#define GRAD_CODE_ZSTD_BYTES ((int64_t)1 << 20)
/* grad_code_memory — returns the bytes that grad_code_open allocates, with GRAD_CODE_ZSTD_BYTES for
 * zstd. */
int64_t grad_code_memory(void);
/* grad_code_zstd_bytes — for tests: returns the bytes that zstd has allocated so far. */
int64_t grad_code_zstd_bytes(const struct grad_code *code);
/* grad_code_open — allocates the coder: an encoder, a decoder and a buffer. Returns ST_RETRY or
 * ST_BAD_SETTING (base/memory.h) if memory is short. */
enum status grad_code_open(struct grad_code **out);
void grad_code_close(struct grad_code *code); /* accepts NULL */

/* grad_code_bound — returns the most bytes of a message of blocks_n blocks. */
int64_t grad_code_bound(struct grad_code_block block, int64_t blocks_n);
/* grad_code_encode — writes a message to `out`, which has grad_code_bound bytes. Returns the bytes
 * of the message. */
int64_t grad_code_encode(struct grad_code *code, struct grad_code_block block,
                         const uint8_t *packed, int64_t blocks_n, uint8_t *out);
/* grad_code_decode — reads blocks_n blocks from a message that begins at `coded`, where coded_bytes
 * may be read. Bytes after the message are ignored. Accepts messages of any content: ST_PEER if the
 * message is not of blocks_n blocks; `packed` is undefined then. */
enum status grad_code_decode(struct grad_code *code, struct grad_code_block block,
                             const uint8_t *coded, int64_t coded_bytes, uint8_t *packed,
                             int64_t blocks_n);

/* grad_quant (grad/quant.c): packs gradients into a few bits each, and unpacks them, on the host:
 * the forms of COMPRESS that kernels/compress.h does not have. With error feedback, as there.
 *
 * Elements are packed in blocks; the last block is padded with zeros:
 *   INT8_RMS  scale f32, 256 int8: 260 bytes; value = scale * q
 *   INT4      scale f32, 256 numbers of 4 bits (-7 to 7, the first of two in the low bits): 132
 *             bytes; scale = the largest magnitude / 7
 *
 * INT8_RMS is for entropy coding. Its scale is 16/127 of the block's root mean square r. So no
 * number is beyond 127, since no element is beyond 16 r, and the numbers of each block have the
 * same variance, (127/16)^2. Of all distributions of that variance the normal one has the largest
 * entropy, 5.04 bits. So a coder needs at most that for a number, whatever the gradients are.
 *
 * A block that has an infinity or a NaN unpacks to NaN, and its residual is 0. A block in which all
 * magnitudes are below 1e-30 packs to zeros. */
enum grad_quant_kind { GRAD_QUANT_KIND_INT8_RMS, GRAD_QUANT_KIND_INT4, GRAD_QUANT_KIND_N };

/* The size of a block: elements, bytes, and the number of its first bytes that are scales. */
struct grad_quant_block {
    int64_t elems, bytes, scale_bytes;
};
/* grad_quant_block — returns the size of a block of this kind. */
struct grad_quant_block grad_quant_block(enum grad_quant_kind kind);
/* grad_quant_bytes — for tests: returns the packed bytes of n elements. */
int64_t grad_quant_bytes(enum grad_quant_kind kind, int64_t n);

/* grad_quant_pack — computes packed ← Q(y), residual ← y - Q(y), with y = x + residual.
 * out  packed  grad_quant_bytes(kind, n) bytes
 * i/o  residual (n) or NULL: y = x | in  x (n) */
void grad_quant_pack(enum grad_quant_kind kind, const float *x, float *residual, int64_t n,
                     uint8_t *packed);
/* grad_quant_unpack — computes y (n) ← the values of `packed`. Exact. */
void grad_quant_unpack(enum grad_quant_kind kind, const uint8_t *packed, int64_t n, float *y);

#endif
