/* attention_args — the arguments of attention's kernels: addresses of one launch, and where a head
 * lies in them. Must not know how a kernel works.
 *
 * Letters: B samples · H query heads · K key heads · T tokens · D head width (`d`; kernels are
 * compiled for a padded D) · C = H·D · bh = b·H + h. */
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
    int group;                    /* H/K: query heads of a key head */
    int row, head, k, v;          /* struct attention_row */
    int bh_first, bh_n, splits_n; /* backward: heads of this launch, in how many parts each */
    int drop_first, drop_skip;    /* head_first; heads of the whole model that are not here */
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
/* The number of head bh of sample b in the element index of dropout, and that index. */
template <typename T>
__device__ static inline int attention_drop_bh(const attention_args<T> &x, int b, int bh)
{
    return bh + b * x.drop_skip + x.drop_first;
}
template <typename T>
__device__ static inline uint64_t attention_drop_at(const attention_args<T> &x, int64_t drop_bh,
                                                    int i, int j)
{
    return (uint64_t)((drop_bh * x.t + i) * x.t + j);
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

/* attention_is_own — what the kernels have of a part of a model: own heads, which are counted in
 * int over all samples; not own queries. */
template <typename A> static inline bool attention_is_own(const A *a)
{
    return !a->kv.data && a->heads_whole <= INT32_MAX / a->b;
}

/* attention_drop — dropout's numbers, and those of its heads; checked before. */
template <typename T, typename A>
static inline void attention_drop(attention_args<T> *x, const struct cuda *cuda, const A *a)
{
    x->drop = drop_args_of(cuda, &a->dropout);
    x->drop_first = a->heads_whole ? (int)a->head_first : 0;
    x->drop_skip = a->heads_whole ? (int)(a->heads_whole - a->h) : 0;
}

/* Key heads divide the query heads, and a row of [q k v] for each head has as many. */
template <typename A> static inline bool attention_is_heads(const A *a)
{
    return a->hk >= 1 && a->hk <= a->h && a->h % a->hk == 0 &&
           (a->layout == ATTENTION_LAYOUT_QKV ||
            (a->layout == ATTENTION_LAYOUT_HEADS && a->hk == a->h));
}

#endif
