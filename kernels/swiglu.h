/* swiglu — the gated activation of Llama's and Qwen's MLP. Must not know layers. */
#ifndef CONVOY_KERNELS_SWIGLU_H
#define CONVOY_KERNELS_SWIGLU_H
#include "kernels/tensor.h"

/* swiglu_fwd — y = silu(g)·u,  silu(g) = g/(1+exp(-g)).
 * out  y (N,F)
 * in   gu (N,2F)  a row is [g | u]
 * Finite wherever silu(g)·u is. Tolerance to plain: nmse 1e-12. Source Shazeer 2020; same as
 * act_fn(gate_proj(x))·up_proj(x) of transformers' LlamaMLP. */
struct swiglu_fwd {
    struct tensor y, gu;
    int64_t n, f;
};

/* swiglu_bwd — with s = 1/(1+exp(-g)):  dg = dy·u·s·(1 + g·(1-s));  du = dy·silu(g).
 * out  dgu (N,2F)  replaced; must not overlap gu or dy
 * in   dy (N,F) · gu (N,2F)
 * Tolerance to plain: nmse 1e-12. */
struct swiglu_bwd {
    struct tensor dgu, dy, gu;
    int64_t n, f;
};
#endif
