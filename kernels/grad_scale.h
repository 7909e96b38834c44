/* grad_scale — the factor for gradients in the optimiser: it clips their norm and removes the loss
 * scale. The same function computes it on the host and on the device; must not know where the sum
 * of squares comes from. For C and C++. */
#ifndef CONVOY_KERNELS_GRAD_SCALE_H
#define CONVOY_KERNELS_GRAD_SCALE_H

#include <math.h>

#include "kernels/tensor.h"

/* grad_scale — checks that loss and gradients are finite, and computes the gradients' factor, for a
 * device that goes on without waiting for the host.
 *   out[1] ← Σ squares[i], added from the last to the first
 *   out[0] ← NaN when loss is not finite, else grad_scale_of(out[1], clip, loss_scale)
 * out  out (2) f64
 * in   squares (squares_n) f64 · loss (1) f64
 * In double; the bits are the same on every device. */
struct grad_scale {
    struct tensor out, squares, loss;
    int64_t squares_n;
    double clip;       /* largest norm; ≤ 0: no clipping */
    double loss_scale; /* a power of two; 0: none */
};

#if defined(__CUDACC__) || defined(__HIP__)
#define GRAD_SCALE_INLINE __host__ __device__ static inline
#else
#define GRAD_SCALE_INLINE static inline
#endif

/* grad_scale_of — returns min(1, clip/(norm + 1e-6)) / loss_scale, as
 * torch.nn.utils.clip_grad_norm_, with norm = √norm_sq / loss_scale; NaN when norm_sq is not
 * finite. Each operation is rounded once: no product is added to anything, so no compiler can
 * contract two operations into one. The factor is 1 / (loss_scale / keep), not keep / loss_scale.
 * The two can differ in the last bit, and this form keeps the bits of earlier runs. */
GRAD_SCALE_INLINE double grad_scale_of(double norm_sq, double clip, double loss_scale)
{
    double norm = sqrt(norm_sq), keep = 1;
    if (!(norm < (double)INFINITY))
        return (double)NAN;
    if (loss_scale > 0)
        norm /= loss_scale;
    if (clip > 0 && norm + 1e-6 > clip)
        keep = clip / (norm + 1e-6);
    return loss_scale > 0 ? 1 / (loss_scale / keep) : keep;
}

/* grad_scale_get — returns the factor at an address; NULL: 1. */
GRAD_SCALE_INLINE double grad_scale_get(const double *grad_scale)
{
    return grad_scale ? *grad_scale : 1;
}

#endif
