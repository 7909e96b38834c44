/* adamw — the optimisers: one pass over parameters that lie together, 28 bytes a parameter. */
#ifndef CONVOY_KERNELS_ADAMW_H
#define CONVOY_KERNELS_ADAMW_H
#include "kernels/tensor.h"

/* A run of elements with one weight decay. Runs are in order, do not overlap, and cover what is to be updated. */
struct optim_span {
    int64_t offset, elems;
    float weight_decay;
};

/* How gradients are scaled first: g ← g · min(1, clip/(√norm_sq + 1e-6)). norm_sq (1) f64 on the device;
 * clip ≤ 0: no scaling. */
struct optim_clip {
    struct tensor norm_sq;
    float clip;
};

/* adamw — decoupled weight decay (Loshchilov, Hutter 2019); same as torch.optim.AdamW.
 *   p ← p·(1 - lr·wd);  m ← β1 m + (1-β1) g;  v ← β2 v + (1-β2) g²
 *   p ← p - lr·(m/(1-β1^step)) / (√(v/(1-β2^step)) + eps)
 * i/o  p, m, v, over `spans` of the arrays' elements | in  g | step counts from 1. Bias corrections are computed in double.
 * Tolerance to plain (double arithmetic): nmse 1e-13 on p. */
struct adamw {
    struct tensor p, g, m, v;
    const struct optim_span *spans; /* host memory */
    int64_t spans_n;
    struct optim_clip clip;
    double lr, beta1, beta2, eps;
    int64_t step;
};

/* sgd — with momentum and coupled weight decay; same as torch.optim.SGD (dampening 0):
 *   g ← g + wd·p;  m ← momentum·m + g (step 1: m ← g);  p ← p - lr·m
 * momentum 0: m is not touched and may be NULL. */
struct sgd {
    struct tensor p, g, m;
    const struct optim_span *spans;
    int64_t spans_n;
    struct optim_clip clip;
    double lr, momentum;
    int64_t step;
};
#endif
