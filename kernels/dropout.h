/* dropout — alone, where no product folds it in: y = keep(i) ? x/(1-p) : 0. It is its own adjoint
 * (same numbers, on dy). */
#ifndef CONVOY_KERNELS_DROPOUT_H
#define CONVOY_KERNELS_DROPOUT_H
#include "base/rand.h"
#include "kernels/tensor.h"

/* dropout_threshold — words below it drop their element. */
static inline uint32_t dropout_threshold(const struct dropout *d)
{
    return (uint32_t)((double)d->p * 4294967296.0);
}

/* dropout_scale — what a kept element is multiplied by. */
static inline float dropout_scale(const struct dropout *d)
{
    return (float)(1.0 / (1.0 - (double)d->p));
}

/* dropout_factor — what element i of the operation is multiplied by: 0 or 1/(1-p); 1 when dropout
 * is off. */
static inline float dropout_factor(const struct dropout *d, int64_t i)
{
    if (d->p <= 0)
        return 1.0f;
    return rand_u32(d->seed, d->stream, d->offset + (uint64_t)i) < dropout_threshold(d)
               ? 0.0f
               : dropout_scale(d);
}

/* out y (n) may be x | in x (n). Element index = its number. Exact. */
struct drop {
    struct tensor y, x;
    int64_t n;
    struct dropout dropout;
};
#endif
