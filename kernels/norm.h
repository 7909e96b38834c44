/* norm — LayerNorm and RMSNorm over rows, RMSNorm over each head of a row; forward and backward.
 * Must not know layers. */
#ifndef CONVOY_KERNELS_NORM_H
#define CONVOY_KERNELS_NORM_H
#include "kernels/tensor.h"

/* LAYER: LayerNorm. RMS: RMSNorm, which has no mean and no shift. */
enum norm_kind { NORM_KIND_LAYER, NORM_KIND_RMS };

/* norm_fwd — normalises each row, then scales and shifts it.
 *   LAYER  y[n,:] = (x[n,:] - mean(x[n,:]))·rstd·w + b,  rstd = 1/√(var + eps), var over C without
 *          Bessel
 *   RMS    y[n,:] = w·(x[n,:]·rstd),  rstd = 1/√(mean(x[n,:]²) + eps); x·rstd is rounded to y's
 *          element type before it is multiplied by w
 * out  y (N,C)  may be x
 *      mean, rstd (N) f32  kept for norm_bwd; NULL: not kept; RMS: mean is NULL
 * in   x (N,C) · w (C) · b (C)  or NULL: zeros; RMS: NULL · eps > 0
 * Needs  C ≥ 1; RMS: mean(x²) within f32, as in transformers. Tolerance to plain: nmse 1e-12.
 * Source Ba, Kiros, Hinton 2016 (eq. 3), same as torch.nn.LayerNorm; Zhang, Sennrich 2019 (eq. 4),
 * same as LlamaRMSNorm of transformers. */
struct norm_fwd {
    struct tensor y, mean, rstd, x, w, b;
    int64_t n, c;
    float eps;
    enum norm_kind kind;
};

/* norm_bwd — the gradients of norm_fwd, plus the gradient of the residual path, in one pass.
 *   LAYER  x̂ = (x - mean)·rstd;  g = dy·w
 *          dx = dresidual + rstd·(g - mean_C(g) - x̂·mean_C(g·x̂))
 *   RMS    x̂ = x·rstd;  g = dy·w;  dx = dresidual + rstd·(g - x̂·mean_C(g·x̂))
 *   dw (+)= Σ_n dy·x̂;  db (+)= Σ_n dy
 * out  dx (N,C)  replaced; may be dy or dresidual
 *      dw, db (C)  added to when accumulate, else replaced; db NULL: not wanted; RMS: db is NULL
 * in   dy, x (N,C) · mean, rstd (N) f32 · w (C) · dresidual (N,C) or NULL; RMS: mean is NULL
 * x̂ is not rounded here. Tolerance to plain: nmse 1e-12. */
struct norm_bwd {
    struct tensor dx, dw, db, dy, x, mean, rstd, w, dresidual;
    int64_t n, c;
    bool accumulate;
    enum norm_kind kind;
};

/* head_norm_fwd — RMSNorm over each head of a row: norm_fwd of kind RMS over D elements. Head h of
 * row n is at n·stride + h·D, in x and in y; the elements between heads are not touched.
 *   y[n,h,:] = w·(x[n,h,:]·rstd),  rstd = 1/√(mean(x[n,h,:]²) + eps)
 * out  y  may be x
 * in   x · w (D)  of all heads · eps > 0
 * Needs  stride ≥ heads·D; CUDA: D ≤ 1024, or 256 where a head cannot be read 16 bytes at a time.
 * Tolerance to plain: nmse 1e-12. Source Qwen3's q_norm and k_norm in
 * transformers. */
struct head_norm_fwd {
    struct tensor y, x, w;
    int64_t n, heads, d, stride;
    float eps;
};

/* head_norm_bwd — the gradients of head_norm_fwd; rstd is computed again.
 *   x̂ = x·rstd;  g = dy·w;  dx = rstd·(g - x̂·mean_D(g·x̂));  dw (+)= Σ_n Σ_h dy·x̂
 * out  dx  replaced, at the positions of the heads; may be dy
 *      dw (D)  added to when accumulate, else replaced
 * in   dy, x  at the same positions · w (D) · eps  as in head_norm_fwd
 * The order of the sum depends only on the shape. Tolerance to plain: nmse 1e-12. */
struct head_norm_bwd {
    struct tensor dx, dw, dy, x, w;
    int64_t n, heads, d, stride;
    float eps;
    bool accumulate;
};
#endif
