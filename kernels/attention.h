/* attention — causal softmax attention with a key mask, never storing T×T (flash style: Dao et al.
 * 2022, tiles with running maximum). CPU: head width up to 4000. */
#ifndef CONVOY_KERNELS_ATTENTION_H
#define CONVOY_KERNELS_ATTENTION_H
#include "kernels/tensor.h"

/* attention_fwd — for each sample b, head h, query i over keys j ≤ i with mask[b,j] != 0:
 *   p = softmax_j(q_i·k_j / √D);  out_i = Σ_j drop(p_j) v_j. A query that sees no key gets zeros
 *   (lse = -inf).
 * out  out (B,T,H·D) · lse (B,H,T) f32: log Σ exp of the scaled scores, kept for attention_bwd
 * in   qkv (B,T,3·H·D): row = [q | k | v], head h at h·D · mask (B,T) u8 or NULL: all seen
 * Dropout acts on probabilities; element index ((b·H+h)·T+i)·T+j. out must not overlap qkv. nmse to
 * plain 1e-12. */
struct attention_fwd {
    struct tensor out, lse, qkv, mask;
    int64_t b, t, h, d;
    struct dropout dropout;
};

/* attention_decode — the last row of attention_fwd alone, for a text that grows by a token at a
 * time: each sample's query T-1 over all its keys 0 … T-1.
 * out out (B,H·D) | in qkv (B,T,3·H·D) as in attention_fwd; of the rows before the last only k and
 *   v are read. No mask, no dropout. out must not overlap qkv. CPU: up to 2,000,000 tokens. nmse to
 *   plain 1e-12. */
struct attention_decode {
    struct tensor out, qkv;
    int64_t b, t, h, d;
};

/* attention_bwd — gradient of attention_fwd with respect to qkv; probabilities are computed again
 * from lse.
 * out dqkv (B,T,3·H·D) overwritten | in dout, out (B,T,H·D) · qkv · lse · mask. Rows that saw no
 *   key get dq = 0. Sums over queries run in a fixed order. */
struct attention_bwd {
    struct tensor dqkv, dout, out, qkv, lse, mask;
    int64_t b, t, h, d;
    struct dropout dropout;
};
#endif
