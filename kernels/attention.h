/* attention — causal softmax attention with a key mask. It never stores T×T scores: it goes over
 * tiles of keys with a running maximum (FlashAttention, Dao et al. 2022). Must not know layers or
 * models. On a CPU D is at most 4000. */
#ifndef CONVOY_KERNELS_ATTENTION_H
#define CONVOY_KERNELS_ATTENTION_H
#include "kernels/tensor.h"

/* attention_fwd — for each sample b, head h and query i, over the keys j ≤ i with mask[b,j] != 0:
 *   p = softmax_j(q_i·k_j / √D);  out_i = Σ_j drop(p_j)·v_j
 * A query without any key gets zeros, and lse = -inf.
 * out  out (B,T,H·D)  must not overlap qkv
 *      lse (B,H,T) f32  log Σ_j exp(q_i·k_j / √D), kept for attention_bwd
 * in   qkv (B,T,3·H·D)  a row is [q | k | v], head h at h·D
 *      mask (B,T) u8  or NULL: every key counts
 *      dropout  of probabilities; element index ((b·H+h)·T+i)·T+j
 * Tolerance to plain: nmse 1e-12. */
struct attention_fwd {
    struct tensor out, lse, qkv, mask;
    int64_t b, t, h, d;
    struct dropout dropout;
};

/* attention_decode — the last row of attention_fwd alone, for text that grows by one token at a
 * time: for each sample, query T-1 over the keys 0 … T-1. No mask, no dropout.
 * out  out (B,H·D)  must not overlap qkv
 * in   qkv (B,T,3·H·D)  as in attention_fwd; of rows before the last, only k and v are read
 * Needs T ≤ 2,000,000 on a CPU. Tolerance to plain: nmse 1e-12. */
struct attention_decode {
    struct tensor out, qkv;
    int64_t b, t, h, d;
};

/* attention_bwd — the gradient of attention_fwd with respect to qkv. Probabilities are computed
 * again from lse.
 * out  dqkv (B,T,3·H·D)  replaced; a query without any key gets dq = 0
 * in   dout, out (B,T,H·D) · qkv · lse · mask · dropout  as in attention_fwd
 * Sums over queries have a fixed order. */
struct attention_bwd {
    struct tensor dqkv, dout, out, qkv, lse, mask;
    int64_t b, t, h, d;
    struct dropout dropout;
};
#endif
