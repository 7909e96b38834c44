/* gelu — the tanh form of GELU alone, for recomputing what a forward pass did not keep. */
#ifndef CONVOY_KERNELS_GELU_H
#define CONVOY_KERNELS_GELU_H
#include "kernels/tensor.h"

/* gelu_fwd — y = 0.5x(1+tanh(√(2/π)(x+0.044715x³))). out y (n) may be x | in x (n). nmse to plain
 *   1e-12. */
struct gelu_fwd {
    struct tensor y, x;
    int64_t n;
};

/* gelu_bwd — dx = dy · gelu'(x). out dx (n) overwritten, may be dy | in dy, x (n). */
struct gelu_bwd {
    struct tensor dx, dy, x;
    int64_t n;
};
#endif
