/* cast — the same numbers as another floating type: 32-bit masters to the 16-bit weights that
 * passes read, and back. */
#ifndef CONVOY_KERNELS_CAST_H
#define CONVOY_KERNELS_CAST_H
#include "kernels/tensor.h"

/* cast — y ← x, rounded to nearest, ties to even; too large is infinite, not a number stays so. Any
 * two of f32, bf16,
 * f16. out y (n), must not overlap x | in x (n). Exact: the same bits on every level but for which
 *   NaN. */
struct cast {
    struct tensor y, x;
    int64_t n;
};
#endif
