/* adamw — the optimisers AdamW and SGD: one pass over the contiguous parameters. AdamW moves 28
 * bytes for each parameter, 30 with `copy`. Must not know where gradients come from.
 *
 * Both multiply gradients by grad_scale first: (1) f64 on the device (grad_scale.h); data NULL: 1.
 * NaN: the optimiser changes nothing at all. */
#ifndef CONVOY_KERNELS_ADAMW_H
#define CONVOY_KERNELS_ADAMW_H
#include "kernels/tensor.h"

/* A run of elements with one weight decay. Spans are in order, do not overlap, and cover all
 * elements to update. */
struct optim_span {
    int64_t offset, elems;
    float weight_decay;
};

/* optim_sums — sums of the bit patterns of p, m and v, modulo 2^32: as the update reads them, and
 * as it writes them. A sum is the same in any order, and any single inverted bit changes it.
 * updates: grows with each call that updates elements; a factor of NaN changes nothing here. */
struct optim_sums {
    uint32_t read[3], written[3], updates;
};

/* adamw — AdamW, weight decay decoupled from the gradient.
 *   p ← p·(1 - lr·wd);  m ← β1·m + (1-β1)·g;  v ← β2·v + (1-β2)·g²
 *   p ← p - lr·(m/(1-β1^step)) / (√(v/(1-β2^step)) + eps)
 * i/o  p, m, v  f32, the elements of `spans`
 * out  copy  bf16 or f16, the same elements: p, rounded as in `cast`; NULL: not wanted
 * in   g  f32 · spans: host memory, used until the call returns · step: counts from 1
 * i/o  sums  in the device's memory: the sums of `spans` are added to it; NULL: not wanted
 * Bias corrections are computed in double. Tolerance to plain (all in double): nmse 1e-13 on p.
 * Source Loshchilov, Hutter 2019; same as torch.optim.AdamW. */
struct adamw {
    struct tensor p, g, m, v, copy;
    const struct optim_span *spans;
    int64_t spans_n;
    struct tensor grad_scale;
    double lr, beta1, beta2, eps;
    int64_t step;
    struct optim_sums *sums;
};

/* sgd — SGD with momentum, weight decay coupled to the gradient.
 *   g ← g + wd·p;  m ← momentum·m + g (step 1: m ← g);  p ← p - lr·m
 * i/o  p, m  f32, the elements of `spans`; momentum 0: m is not touched and may be NULL
 * in   g, spans, step  as for adamw
 * i/o  sums  as for adamw, of p and m; the sums of v get 0. Without momentum: of p only
 * Same as torch.optim.SGD with dampening 0. */
struct sgd {
    struct tensor p, g, m;
    const struct optim_span *spans;
    int64_t spans_n;
    struct tensor grad_scale;
    double lr, momentum;
    int64_t step;
    struct optim_sums *sums;
};
#endif
