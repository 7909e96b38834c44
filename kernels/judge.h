/* judge — what an optimiser is told of gradients (adamw.h: judge), in one arithmetic for the host and for the device:
 * each operation is rounded once, and no product is added to anything, so no compiler has anything to contract. For C
 * and C++. Must not know where the sum comes from. */
#ifndef CONVOY_KERNELS_JUDGE_H
#define CONVOY_KERNELS_JUDGE_H

#include <math.h>

#ifdef __CUDACC__
#define JUDGE_INLINE __host__ __device__ static inline
#else
#define JUDGE_INLINE static inline
#endif

/* judge_told — of the sum of their squares, all finite. loss_scale 0: the sum itself. */
JUDGE_INLINE double judge_told(double total, double clip, double loss_scale)
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

#endif
