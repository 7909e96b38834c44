/* attention — causal softmax attention with a key mask, and with a first key of each query. It
 * never stores T×T scores: it goes over tiles of keys with a running maximum (FlashAttention, Dao
 * et al. 2022). Must not know layers or models. On a CPU D is at most 4000. */
#ifndef CONVOY_KERNELS_ATTENTION_H
#define CONVOY_KERNELS_ATTENTION_H
#include "kernels/tensor.h"

/* The contents of a row of qkv and of dqkv, with H query heads and K key heads. K divides H, and
 * query head h attends to key head h / (H/K): grouped-query attention (Ainslie et al. 2023); K = H
 * is multi-head attention. A value head has the number of its key head. */
enum attention_layout {
    ATTENTION_LAYOUT_QKV,  /* [q: H·D | k: K·D | v: K·D] */
    ATTENTION_LAYOUT_HEADS /* for each head [q: D | k: D | v: D], as GPT-NeoX; K = H */
};

/* Positions of heads in a row, in elements: query head h at h·head, key head n at k + n·head, value
 * head n at v + n·head; rows are `row` apart. */
struct attention_row {
    int64_t row, head, k, v;
};

static inline struct attention_row attention_row_of(enum attention_layout layout, int64_t h,
                                                    int64_t hk, int64_t d)
{
    bool is_heads = layout == ATTENTION_LAYOUT_HEADS;
    struct attention_row x = {(h + 2 * hk) * d, is_heads ? 3 * d : d, is_heads ? d : h * d,
                              is_heads ? 2 * d : (h + hk) * d};
    return x;
}

/* The rows of kv and dkv, if keys are stored apart from queries: [k: K·D | v: K·D], or, with
 * ATTENTION_LAYOUT_HEADS, for each head [k: D | v: D]. */
static inline struct attention_row attention_kv_row_of(enum attention_layout layout, int64_t hk,
                                                       int64_t d)
{
    bool is_heads = layout == ATTENTION_LAYOUT_HEADS;
    struct attention_row x = {2 * hk * d, is_heads ? 2 * d : d, 0, is_heads ? d : hk * d};
    return x;
}

/* The positions of a call's own queries, if the call also has keys of other positions (kv): rows 0
 * … n[0]-1 of a sample are the positions from first[0] on, the next n[1] rows are the positions
 * from first[1] on. All zero: row i is position i. */
struct attention_runs {
    int64_t first[2], n[2];
};

static inline int64_t attention_rows(const struct attention_runs *own, int64_t t)
{
    return own->n[0] ? own->n[0] + own->n[1] : t;
}
static inline int64_t attention_position(const struct attention_runs *own, int64_t row)
{
    return row < own->n[0] ? own->first[0] + row : own->first[1] + row - own->n[0];
}

/* attention_drop_head — returns the number of head bh % h of sample bh / h in the element index of
 * dropout, counted over the heads of all samples. */
static inline int64_t attention_drop_head(int64_t bh, int64_t h, int64_t head_first,
                                          int64_t heads_whole)
{
    return heads_whole ? bh / h * heads_whole + head_first + bh % h : bh;
}

/* attention_fwd — for each sample b, head h and query i, over the keys first_key[b,i] ≤ j ≤ i with
 * mask[b,j] != 0:
 *   p = softmax_j(q_i·k_j / √D);  out_i = Σ_j drop(p_j)·v_j
 * A query without any key gets zeros, and lse = -inf.
 * out  out (B,T,H·D)  must not overlap qkv
 *      lse (B,H,T) f32  log Σ_j exp(q_i·k_j / √D), kept for attention_bwd
 * in   qkv (B,T,(H+2K)·D)  rows as `layout` says
 *      mask (B,T) u8  or NULL: every key counts
 *      first_key (B,T) i32  of the query at each position, or NULL: 0. 0 ≤ first_key[b,i] ≤ i, and
 *      no less than first_key[b,i-1]. So each document of a sample has attention to its own
 *      tokens only (document masking); tiles of hidden keys are skipped
 *      dropout  of probabilities; element index ((b·W+head_first+h)·T+i)·T+j
 *      head_first, heads_whole  the heads are [head_first, head_first + H) of W = heads_whole
 *      heads, so that a shard of a model draws the numbers of the whole; heads_whole 0: W = H
 *      hk  K; divides h
 * in   kv (B,T,2K·D)  NULL: keys and values are in qkv. Else qkv, out and lse have the rows of the
 *      R = own.n[0] + own.n[1] own queries: qkv (B,R,(H+2K)·D), and only q is read,
 *      out (B,R,H·D), lse (B,H,R); mask, first_key and dropout's index go on counting positions
 *      own  the positions of the own queries: two runs, the second after the first, or one
 *      (n[1] 0). Only with kv
 * Tolerance to plain: nmse 1e-12. The rows of own queries have the bits of a whole call. */
struct attention_fwd {
    struct tensor out, lse, qkv, mask, first_key;
    int64_t b, t, h, hk, d;
    enum attention_layout layout;
    struct dropout dropout;
    int64_t head_first, heads_whole;
    struct tensor kv;
    struct attention_runs own;
};

/* attention_decode — computes only the last row of attention_fwd, for text that grows by one token
 * at a time: for each sample, query T-1 over the keys 0 … T-1. No mask, no dropout.
 * out  out (B,H·D)  must not overlap qkv
 * in   qkv (B,T,(H+2K)·D)  as in attention_fwd; of rows before the last, only k and v are read
 * Needs T ≤ 2,000,000 on a CPU. Tolerance to plain: nmse 1e-12. */
struct attention_decode {
    struct tensor out, qkv;
    int64_t b, t, h, hk, d;
    enum attention_layout layout;
};

/* attention_bwd — the gradient of attention_fwd with respect to qkv. Probabilities are computed
 * again from lse.
 * out  dqkv (B,T,(H+2K)·D)  replaced, rows as in qkv; a query without any key gets dq = 0. dk and
 *      dv of a key head are sums over its query heads
 *      dkv (B,T,2K·D)  with kv: dk and dv of the own queries, replaced, all T rows. Of
 *      dqkv (B,R,(H+2K)·D) only dq is written
 * in   dout, out (B,T,H·D) · qkv · lse · mask · first_key · dropout · head_first, heads_whole ·
 *      hk · layout · kv · own  as in attention_fwd
 * Sums over queries and heads have a fixed order. A GPU's scratch limits H/K · T. */
struct attention_bwd {
    struct tensor dqkv, dout, out, qkv, lse, mask, first_key;
    int64_t b, t, h, hk, d;
    enum attention_layout layout;
    struct dropout dropout;
    int64_t head_first, heads_whole;
    struct tensor kv, dkv;
    struct attention_runs own;
};
#endif
