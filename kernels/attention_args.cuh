/* attention_args — the arguments of attention's kernels: addresses of one launch, and the position
 * of a head in them. Must not know how a kernel works.
 *
 * Letters: B samples · H query heads · K key heads · T tokens · R rows of queries of a sample · D
 * head width (`d`; kernels are compiled for a padded D) · C = H·D · bh = b·H + h.
 *
 * OWN: a kernel for own queries over the keys of all positions (kv, own of attention.h), and for
 * calls with first keys. Row r of a sample's queries has position r + run_ahead, so positions grow
 * with rows. Kernels for whole calls are compiled without it: there a row is its position, and R is
 * T. In a whole call with first keys, all positions are own queries, and kv is qkv. */
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
    /* backward's scratch: (heads of this launch, R), (splits, heads of this launch, R padded, D) */
    float *delta, *acc;
    int t, h, d;
    int group;                    /* H/K: query heads of a key head */
    int row, head, k, v;          /* struct attention_row; OWN: k, v: positions in rows of kv */
    int bh_first, bh_n, splits_n; /* backward: heads of this launch, and splits of each */
    float scale;                  /* 1/√D */
    struct drop_args drop;
    int rows; /* R */
    /* only OWN, else NULL and 0 */
    const T *kv;
    T *dkv;
    const int32_t *first_key; /* (B,T); NULL: 0 */
    int kv_row, kv_head;      /* struct attention_row */
    /* rows of the first run; position minus row, in the first run and in the second */
    int run_n, run_ahead[2];
};

/* For use in kernels with arguments `a`: R; the tensors of keys and values and of their gradients.
 * Macros, so that the front end folds them and kernels for whole calls compile to the same code as
 * without OWN. */
#define ATTENTION_R (OWN ? a.rows : a.t)
#define ATTENTION_KV (OWN ? a.kv : a.qkv)
#define ATTENTION_DKV (OWN ? a.dkv : a.dqkv)

/* attention_position_at — returns the position of a row (only OWN). */
template <typename T>
__device__ static inline int attention_position_at(const attention_args<T> &x, int row)
{
    return row + (row < x.run_n ? x.run_ahead[0] : x.run_ahead[1]);
}
/* attention_row_from — returns the first row at or after a position, R or more if there is none
 * (only OWN). */
template <typename T>
__device__ static inline int attention_row_from(const attention_args<T> &x, int position)
{
    int first = position - x.run_ahead[0];
    return first < x.run_n ? max(first, 0) : max(position - x.run_ahead[1], x.run_n);
}
/* Returns the first row of the queries at or after a key, in tiles of `tile` rows; R: none (only
 * OWN). */
template <typename T>
__device__ static inline int attention_tile_from(const attention_args<T> &x, int key, int tile)
{
    int row = attention_row_from(x, key);
    return row < x.rows ? row / tile * tile : x.rows;
}

/* Returns the first key that a row's query may see; beyond R, the last row's (only OWN). */
template <typename T>
__device__ static inline int attention_first_key(const attention_args<T> &x, int64_t b, int row)
{
    return x.first_key ? x.first_key[b * x.t + attention_position_at(x, min(row, x.rows - 1))] : 0;
}
/* Returns the number of rows with a first key below `key`, which come before the others (only
 * OWN). */
template <typename T>
__device__ static inline int attention_rows_below(const attention_args<T> &x, int64_t b, int key)
{
    int low = x.first_key ? 0 : x.rows, high = x.rows;
    while (low < high) {
        int mid = (low + high) / 2;
        if (attention_first_key(x, b, mid) < key)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Return the first element of sample b's rows: of query head h in qkv; of key head n (its values
 * follow at x.v - x.k) in kv, or in qkv for a whole call; of head h in out. */
template <bool OWN, typename T>
__device__ static inline int64_t attention_query_at(const attention_args<T> &x, int64_t b,
                                                    int64_t h)
{
    return b * (OWN ? x.rows : x.t) * x.row + h * x.head;
}
template <bool OWN, typename T>
__device__ static inline int64_t attention_key_at(const attention_args<T> &x, int64_t b, int64_t n)
{
    return b * x.t * (OWN ? x.kv_row : x.row) + x.k + n * (OWN ? x.kv_head : x.head);
}
template <bool OWN, typename T>
__device__ static inline int64_t attention_out_at(const attention_args<T> &x, int64_t b, int64_t h)
{
    return b * (OWN ? x.rows : x.t) * x.h * x.d + h * x.d;
}
/* Returns true if key j, at or before the query, is hidden by the mask or lies beyond T. */
template <typename T>
__device__ static inline bool attention_is_hidden(const attention_args<T> &x, int64_t b, int j)
{
    return j >= x.t || (x.mask && !x.mask[b * x.t + j]);
}
/* Returns the element index of dropout; i, j are positions. */
template <typename T>
__device__ static inline uint64_t attention_drop_at(const attention_args<T> &x, int64_t bh, int i,
                                                    int j)
{
    return (uint64_t)((bh * x.t + i) * x.t + j);
}

/* attention_sizes — sets shape and rows, from the arguments of any of the operations, checked
 * before. */
template <typename T, typename A>
static inline void attention_sizes(attention_args<T> *x, const A *a)
{
    struct attention_row row = attention_row_of(a->layout, a->h, a->hk, a->d);
    x->t = (int)a->t, x->h = (int)a->h, x->d = (int)a->d, x->group = (int)(a->h / a->hk);
    x->row = (int)row.row, x->head = (int)row.head, x->k = (int)row.k, x->v = (int)row.v;
    x->rows = x->t;
    x->scale = 1.0f / sqrtf((float)a->d);
}

/* attention_own — sets the additional arguments of own queries and first keys; without both it does
 * nothing. The caller has checked the runs (dev_check.c). */
template <typename T, typename A> static inline void attention_own(attention_args<T> *x, const A *a)
{
    const struct attention_runs *own = &a->own;
    struct attention_row row = a->kv.data ? attention_kv_row_of(a->layout, a->hk, a->d)
                                          : attention_row_of(a->layout, a->h, a->hk, a->d);
    if (!a->kv.data && !a->first_key.data)
        return;
    x->kv = (const T *)(a->kv.data ? a->kv.data : a->qkv.data);
    x->first_key = (const int32_t *)a->first_key.data, x->rows = (int)attention_rows(own, a->t);
    x->kv_row = (int)row.row, x->kv_head = (int)row.head, x->k = (int)row.k, x->v = (int)row.v;
    x->run_n = own->n[0] ? (int)own->n[0] : x->t, x->run_ahead[0] = (int)own->first[0];
    x->run_ahead[1] = own->n[1] ? (int)(own->first[1] - own->n[0]) : x->run_ahead[0];
}

/* attention_draws — returns true if the kernels can draw the numbers of dropout. If a call draws
 * them for some of the heads of a model, it is launched sample by sample (attention_sample.h). */
template <typename A> static inline bool attention_draws(const A *a)
{
    return !attention_is_by_sample(&a->dropout, a->heads_whole);
}

/* Returns true if the numbers of heads fit: key heads divide the query heads, and with
 * ATTENTION_LAYOUT_HEADS both are equal. */
template <typename A> static inline bool attention_is_heads(const A *a)
{
    return a->hk >= 1 && a->hk <= a->h && a->h % a->hk == 0 &&
           (a->layout == ATTENTION_LAYOUT_QKV ||
            (a->layout == ATTENTION_LAYOUT_HEADS && a->hk == a->h));
}

#endif
