/* compress — packs floats into fewer bytes for transfers between ranks, with error feedback, and
 * unpacks them. Must not know ranks or transports. */
#ifndef CONVOY_KERNELS_COMPRESS_H
#define CONVOY_KERNELS_COMPRESS_H
#include "kernels/tensor.h"

/* Elements are packed in blocks of COMPRESS_BLOCK; the last block is padded with zeros: scale f32,
 * 256 × int8; value = scale·q, scale = max|y|/127. A block with an infinity or a NaN unpacks to NaN
 * and leaves no residual. A block whose largest value is below 1e-30 packs to zeros. */
#define COMPRESS_BLOCK 256
#define COMPRESS_BLOCK_BYTES (4 + COMPRESS_BLOCK)
#define COMPRESS_TINY 1e-30f
static inline int64_t compress_bytes(int64_t n)
{
    return (n + COMPRESS_BLOCK - 1) / COMPRESS_BLOCK * COMPRESS_BLOCK_BYTES;
}

/* compress — packed ← Q(y), residual ← y - Q(y), with y = x + residual.
 * out  packed u8, compress_bytes(n) bytes  aligned to 4
 * i/o  residual (n) f32  or NULL: y = x
 * in   x (n) f32
 * `packed` has the same bytes on every ISA level. Source Seide et al. 2014 (error feedback);
 * blockwise scales as Dettmers et al. 2022. */
struct compress {
    struct tensor packed, residual, x;
    int64_t n;
};

/* expand — y ← the values of `packed`.
 * out  y (n) f32 | in  packed u8, written by compress. Exact. */
struct expand {
    struct tensor y, packed;
    int64_t n;
};
#endif
