/* grad_scale — what an optimiser is told of gradients (adamw.h: grad_scale), and what it makes of
 * that (struct optim_clip), in one arithmetic for the host and for the device: each operation is
 * rounded once, and no product is added to anything, so no compiler has anything to contract. For C
 * and C++. Must not know where the sum comes from. */
#ifndef CONVOY_KERNELS_GRAD_SCALE_H
#define CONVOY_KERNELS_GRAD_SCALE_H

#include <math.h>
#include <stdbool.h>

#ifdef __CUDACC__
#define GRAD_SCALE_INLINE __host__ __device__ static inline
#else
#define GRAD_SCALE_INLINE static inline
#endif

/* grad_scale_told — of the sum of their squares, all finite. loss_scale 0: the sum itself. */
GRAD_SCALE_INLINE double grad_scale_told(double total, double clip, double loss_scale)
{
    double norm, keep = 1, root;
    if (loss_scale == 0)
        return total;
    norm = sqrt(total) / loss_scale;
    if (clip > 0 && norm + 1e-6 > clip)
        keep = clip / (norm + 1e-6);
    root = loss_scale / keep - 1e-6;
    return root * root;
}

/* grad_scale_is_fit — may the optimiser change anything? norm_sq NULL: it was told nothing. */
GRAD_SCALE_INLINE bool grad_scale_is_fit(const double *norm_sq)
{
    return !norm_sq || fabs(*norm_sq) < (double)INFINITY;
}

/* grad_scale_clip — min(1, clip/(norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; clip ≤ 0: 1. */
GRAD_SCALE_INLINE double grad_scale_clip(const double *norm_sq, double clip)
{
    double factor;
    if (!(clip > 0))
        return 1;
    factor = clip / (sqrt(*norm_sq) + 1e-6);
    return factor > 1 ? 1 : factor;
}

#endif
