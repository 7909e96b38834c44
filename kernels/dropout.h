/* dropout — dropout as an operation, if no product's epilogue has it: y = keep(i) ? x/(1-p) : 0. It
 * is its own adjoint: the backward pass runs it on dy with the same numbers. Must not know
 * layers. */
#ifndef CONVOY_KERNELS_DROPOUT_H
#define CONVOY_KERNELS_DROPOUT_H
#include "base/rand.h"
#include "kernels/tensor.h"

/* dropout_threshold — returns the bound of random words: an element is dropped if its word is
 * below. */
static inline uint32_t dropout_threshold(const struct dropout *d)
{
    return (uint32_t)((double)d->p * 4294967296.0);
}

/* dropout_scale — returns the factor of a kept element. */
static inline float dropout_scale(const struct dropout *d)
{
    return (float)(1.0 / (1.0 - (double)d->p));
}

/* dropout_factor — returns the factor of element i: 0 or 1/(1-p); 1 when dropout is off. */
static inline float dropout_factor(const struct dropout *d, int64_t i)
{
    if (d->p <= 0)
        return 1.0f;
    return rand_u32(d->seed, d->stream, d->offset + (uint64_t)i) < dropout_threshold(d)
               ? 0.0f
               : dropout_scale(d);
}

/* drop — out  y (n)  may be x | in  x (n). The element index is its number. Exact. */
struct drop {
    struct tensor y, x;
    int64_t n;
    struct dropout dropout;
};
#endif
