/* attention_args — the arguments of attention's kernels: addresses of one launch, and where a head
 * lies in them. Must not know how a kernel works.
 *
 * Letters: B samples · H query heads · K key heads · T tokens · D head width (`d`; kernels are
 * compiled for a padded D) · C = H·D · bh = b·H + h. */
#ifndef CONVOY_KERNELS_ATTENTION_ARGS_CUH
#define CONVOY_KERNELS_ATTENTION_ARGS_CUH

#include "kernels/attention_sample.h"
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
    int group;                    /* H/K: query heads of a key head */
    int row, head, k, v;          /* struct attention_row */
    int bh_first, bh_n, splits_n; /* backward: heads of this launch, in how many parts each */
    float scale;                  /* 1/√D */
    struct drop_args drop;
};

/* The first element of sample b's rows: of query head h, and of key head n (its values follow at
 * x.v - x.k), both in qkv; of head h in out. */
template <typename T>
__device__ static inline int64_t attention_query_at(const attention_args<T> &x, int64_t b,
                                                    int64_t h)
{
    return b * x.t * x.row + h * x.head;
}
template <typename T>
__device__ static inline int64_t attention_key_at(const attention_args<T> &x, int64_t b, int64_t n)
{
    return b * x.t * x.row + x.k + n * x.head;
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

/* attention_sizes — shape and rows, from any of the operations' arguments; checked before. */
template <typename T, typename A>
static inline void attention_sizes(attention_args<T> *x, const A *a)
{
    struct attention_row row = attention_row_of(a->layout, a->h, a->hk, a->d);
    x->t = (int)a->t, x->h = (int)a->h, x->d = (int)a->d, x->group = (int)(a->h / a->hk);
    x->row = (int)row.row, x->head = (int)row.head, x->k = (int)row.k, x->v = (int)row.v;
    x->scale = 1.0f / sqrtf((float)a->d);
}

/* attention_is_own — of a part of a model the kernels have neither own queries (CP) nor dropout's
 * numbers of own heads (attention_sample.h). */
template <typename A> static inline bool attention_is_own(const A *a)
{
    return !a->kv.data && !attention_is_by_sample(&a->dropout, a->heads_whole);
}

/* Key heads divide the query heads, and a row of [q k v] for each head has as many. */
template <typename A> static inline bool attention_is_heads(const A *a)
{
    return a->hk >= 1 && a->hk <= a->h && a->h % a->hk == 0 &&
           (a->layout == ATTENTION_LAYOUT_QKV ||
            (a->layout == ATTENTION_LAYOUT_HEADS && a->hk == a->h));
}

#endif
