/* grad_quant — gradients in a few bits each, and back, on the host: the forms of COMPRESS that
 * kernels/compress.h has not. With error feedback, as there. Must not know ranks or entropy coding.
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
#ifndef CONVOY_MESH_GRAD_QUANT_H
#define CONVOY_MESH_GRAD_QUANT_H

#include <stdint.h>

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
