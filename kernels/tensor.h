/* tensor — an address in memory and an element type, as every operation sees it. Must not know
 * devices; shapes are fields of an operation's own arguments.
 *
 * Letters of shapes, in all headers of kernels/:
 *   B samples · T tokens of a sample · N rows = B·T · C embedding width
 *   H heads · D head width = C/H · V vocabulary · I, O input and output width of a product
 * A tensor is dense and row-major unless its field has a stride.
 *
 * Words of the contracts, the same in every header:
 *   out           written
 *   in            read
 *   i/o           read and written
 *   may be        the two may be one tensor; else a tensor must not overlap another one
 *   accumulate    true: the result is added to the present contents; false: it replaces them
 *   nmse          Σ(result - plain)² / Σ plain², the greatest that a test accepts; "plain" is the
 *                 kernel's truth on the CPU (norm.c), which sums in double
 *   exact         the same bits as plain, on every ISA level
 * An operation without a stated element type accepts f32 on a CPU; a GPU also accepts bf16, f16
 * (dev/dev_check.h). No operation allocates; work runs on the stream that it is submitted to. */
#ifndef CONVOY_KERNELS_TENSOR_H
#define CONVOY_KERNELS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64, DTYPE_I32, DTYPE_U8, DTYPE_N };

static inline size_t dtype_bytes(enum dtype dtype)
{
    static const uint8_t bytes[DTYPE_N] = {4, 2, 2, 8, 4, 1};
    return bytes[dtype];
}

/* A borrowed address in the memory of the operation's device. data NULL: no tensor, if the field
 * allows that. All zero: f32, no tensor. */
struct tensor {
    void *data;
    enum dtype dtype;
};

static inline struct tensor tensor_at(struct tensor t, int64_t elems)
{
    if (t.data)
        t.data = (char *)t.data + elems * (int64_t)dtype_bytes(t.dtype);
    return t;
}

/* Dropout of an operation. Element i is dropped when rand_u32(seed, stream, offset + i) < p · 2^32;
 * a kept element is multiplied by 1/(1-p). p 0: off. */
struct dropout {
    float p;
    uint64_t seed;
    uint64_t stream; /* RAND_STREAM(DROPOUT, site); the seed differs from step to step */
    uint64_t offset; /* global index of this pass's first element */
};

#endif
