/* norm — LayerNorm over rows, forward and backward. Must not know layers. */
#ifndef CONVOY_KERNELS_NORM_H
#define CONVOY_KERNELS_NORM_H
#include "kernels/tensor.h"

/* norm_fwd — normalises each row, then scales and shifts it.
 *   y[n,:] = (x[n,:] - mean(x[n,:]))·rstd·w + b,  rstd = 1/√(var + eps), var over C without Bessel
 * out  y (N,C)  may be x
 *      mean, rstd (N) f32  kept for norm_bwd; NULL: not kept
 * in   x (N,C) · w (C) · b (C) · eps > 0
 * Needs  C ≥ 1. Tolerance to plain: nmse 1e-12. Source Ba, Kiros, Hinton 2016 (eq. 3); same as
 * torch.nn.LayerNorm. */
struct norm_fwd {
    struct tensor y, mean, rstd, x, w, b;
    int64_t n, c;
    float eps;
};

/* norm_bwd — the gradients of norm_fwd, plus the gradient of the residual path, in one pass.
 *   x̂ = (x - mean)·rstd;  g = dy·w;  dx = dresidual + rstd·(g - mean_C(g) - x̂·mean_C(g·x̂))
 *   dw (+)= Σ_n dy·x̂;  db (+)= Σ_n dy
 * out  dx (N,C)  replaced; may be dy or dresidual
 *      dw, db (C)  added to when accumulate, else replaced
 * in   dy, x (N,C) · mean, rstd (N) f32 · w (C) · dresidual (N,C) or NULL */
struct norm_bwd {
    struct tensor dx, dw, db, dy, x, mean, rstd, w, dresidual;
    int64_t n, c;
    bool accumulate;
};
#endif
