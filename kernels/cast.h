/* cast — converts numbers to another floating type: f32 masters to the 16-bit weights of the
 * forward and backward passes, and back. Must not know the meaning of the numbers. */
#ifndef CONVOY_KERNELS_CAST_H
#define CONVOY_KERNELS_CAST_H
#include "kernels/tensor.h"

/* cast — y ← x, rounded to nearest, ties to even. A value that is too large becomes infinite; a NaN
 * stays a NaN.
 * out  y (n) f32, bf16 or f16  must not overlap x | in  x (n) f32, bf16 or f16
 * Exact, except for which NaN. */
struct cast {
    struct tensor y, x;
    int64_t n;
};
#endif
