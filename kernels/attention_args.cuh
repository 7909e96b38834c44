/* attention_args — the arguments of attention's kernels: addresses of one launch, and where a head
 * lies in them. Must not know how a kernel works.
 *
 * Letters: B samples · H heads · T tokens · D head width (`d`; kernels are compiled for a padded D)
 * · C = H·D · bh = b·H + h. */
#ifndef CONVOY_KERNELS_ATTENTION_ARGS_CUH
#define CONVOY_KERNELS_ATTENTION_ARGS_CUH

#include "kernels/attention.h"
#include "kernels/common.cuh"

constexpr float ATTENTION_LOG2E = 1.44269504088896341f, ATTENTION_LN2 = 0.693147180559945309f;

template <typename T> struct attention_args {
    const T *qkv, *dout, *out_in;
    T *out, *dqkv;
    float *lse;
    const float *lse_in;
    const uint8_t *mask; /* NULL: every key counts */
    /* backward's scratch: (heads of this launch, T), (splits, heads of this launch, T padded, D) */
    float *delta, *acc;
    int t, h, d;
    int bh_first, bh_n, splits_n; /* backward: heads of this launch, in how many parts each */
    float scale;                  /* 1/√D */
    struct drop_args drop;
};

/* The first element of sample b's rows of head h: of qkv (k and v follow at C and 2C), of out. */
template <typename T>
__device__ static inline int64_t attention_qkv_at(const attention_args<T> &x, int64_t b, int64_t h)
{
    return b * x.t * 3 * x.h * x.d + h * x.d;
}
template <typename T>
__device__ static inline int64_t attention_out_at(const attention_args<T> &x, int64_t b, int64_t h)
{
    return b * x.t * x.h * x.d + h * x.d;
}
/* Key j, at or before the query, is hidden by the mask or lies beyond T. */
template <typename T>
__device__ static inline bool attention_is_hidden(const attention_args<T> &x, int64_t b, int j)
{
    return j >= x.t || (x.mask && !x.mask[b * x.t + j]);
}
/* The element index of dropout. */
template <typename T>
__device__ static inline uint64_t attention_drop_at(const attention_args<T> &x, int64_t bh, int i,
                                                    int j)
{
    return (uint64_t)((bh * x.t + i) * x.t + j);
}

#endif
