/* tensor — what every operation knows of memory: an address and an element type.
 *
 * Shapes are fields of the operation's own argument struct, with the house's letters:
 *   B samples · T tokens a sample · N rows = B·T · C embedding width · H heads · D head width = C/H
 *   · V vocabulary
 *   I, O input and output width of a product. All tensors are dense and row-major unless a field
 *   says otherwise. */
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

/* A borrowed address on the operation's device; data == NULL where a field allows "none". Zero
 * means float, none. */
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

/* Where dropout draws its numbers: element i of the operation is dropped when
 * rand_u32(seed, stream, i) < p · 2^32 (as an integer threshold); kept elements are scaled by
 * 1/(1-p). p == 0: off. */
struct dropout {
    float p;
    uint64_t seed;
    /* RAND_STREAM(DROPOUT, place) of the caller, already mixed with the step by the seed */
    uint64_t stream;
    uint64_t offset; /* added to the element number: global index of this pass's first element */
};

#endif
