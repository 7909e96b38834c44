/* gelu — GELU in its tanh form as an operation: for a forward value that was not kept and is
 * computed again. Must not know layers. */
#ifndef CONVOY_KERNELS_GELU_H
#define CONVOY_KERNELS_GELU_H
#include "kernels/tensor.h"

/* gelu_fwd — y = 0.5x(1+tanh(√(2/π)(x+0.044715x³))).
 * out  y (n)  may be x | in  x (n). Tolerance to plain: nmse 1e-12. */
struct gelu_fwd {
    struct tensor y, x;
    int64_t n;
};

/* gelu_bwd — dx = dy · gelu'(x).
 * out  dx (n)  replaced; may be dy | in  dy, x (n) */
struct gelu_bwd {
    struct tensor dx, dy, x;
    int64_t n;
};
#endif
