/* relu2 — the squared ReLU, an activation of an MLP. Must not know layers. */
#ifndef CONVOY_KERNELS_RELU2_H
#define CONVOY_KERNELS_RELU2_H
#include "kernels/tensor.h"

/* relu2_fwd — y = max(x,0)².
 * out  y (n)  may be x | in  x (n). Tolerance to plain: nmse 1e-12. Source So et al. 2021; same as
 * torch.nn.functional.relu(x).square(). */
struct relu2_fwd {
    struct tensor y, x;
    int64_t n;
};

/* relu2_bwd — dx = dy · 2·max(x,0).
 * out  dx (n)  replaced; may be dy | in  dy, x (n) */
struct relu2_bwd {
    struct tensor dx, dy, x;
    int64_t n;
};
#endif
