/* compress — floats in fewer bytes for the way between ranks, with error feedback, and back. Must
 * not know ranks or transports. */
#ifndef CONVOY_KERNELS_COMPRESS_H
#define CONVOY_KERNELS_COMPRESS_H
#include "kernels/tensor.h"

enum compress_kind { COMPRESS_KIND_BF16, COMPRESS_KIND_INT8 };

/* Elements are packed in blocks of COMPRESS_BLOCK; the last block is padded with zeros:
 *   BF16  256 × bf16, rounded to nearest even                                 512 bytes
 *   INT8  scale f32, 256 × int8; value = scale·q, scale = max|y|/127           260 bytes
 * A block with an infinity or a NaN unpacks to NaN (INT8: the whole block) and leaves no residual.
 * A block whose largest value is below 1e-30 packs to zeros. */
#define COMPRESS_BLOCK 256
#define COMPRESS_TINY 1e-30f
static inline int64_t compress_block_bytes(enum compress_kind kind)
{
    return kind == COMPRESS_KIND_INT8 ? COMPRESS_BLOCK + 4 : 2 * COMPRESS_BLOCK;
}
static inline int64_t compress_bytes(enum compress_kind kind, int64_t n)
{
    return (n + COMPRESS_BLOCK - 1) / COMPRESS_BLOCK * compress_block_bytes(kind);
}

/* compress — packed ← Q(y), residual ← y - Q(y), with y = x + residual.
 * out  packed u8, compress_bytes(kind, n) bytes  aligned to 4
 * i/o  residual (n) f32  or NULL: y = x
 * in   x (n) f32
 * `packed` has the same bytes on every ISA level. Source Seide et al. 2014 (error feedback);
 * blockwise scales as Dettmers et al. 2022. */
struct compress {
    struct tensor packed, residual, x;
    int64_t n;
    enum compress_kind kind;
};

/* expand — y ← the values of `packed`.
 * out  y (n) f32 | in  packed u8, of compress. Exact. */
struct expand {
    struct tensor y, packed;
    int64_t n;
    enum compress_kind kind;
};
#endif
