/* adamw — the optimisers, AdamW and SGD: one pass over the parameters that lie together. AdamW
 * moves 28 bytes for each parameter. Also how gradients are scaled before an update. Must not know
 * where gradients come from. */
#ifndef CONVOY_KERNELS_ADAMW_H
#define CONVOY_KERNELS_ADAMW_H
#include "kernels/tensor.h"

/* A run of elements with one weight decay. Spans are in order, do not overlap, and cover all
 * elements to update. */
struct optim_span {
    int64_t offset, elems;
    float weight_decay;
};

/* How gradients are scaled first: g ← g · min(1, clip/(√norm_sq + 1e-6)). norm_sq (1) f64 on the
 * device; clip ≤ 0: no scaling, and norm_sq may be NULL. A norm_sq that is not finite: the
 * optimiser changes nothing at all. */
struct optim_clip {
    struct tensor norm_sq;
    float clip;
};

/* grad_scale — whether gradients are fit for an update, and what an optimiser is told of them, for
 * a device that goes on without a look by the host. With total = Σ squares[i], added from the last
 * to the first, and norm = √total / loss_scale:
 *   out[1] ← total
 *   out[0] ← NaN when total or loss is not finite;  total when loss_scale is 0;  else, for a clip
 *   of 1 that also
 *            takes the loss scale out of gradients, (loss_scale/keep - 1e-6)² with
 *            keep = clip > 0 ? min(1, clip/(norm + 1e-6)) : 1
 * out out (2) f64 | in squares (squares_n) f64, loss (1) f64. In double, each operation rounded
 *   once: the bits are the same on every device. */
struct grad_scale {
    struct tensor out, squares, loss;
    int64_t squares_n;
    double clip, loss_scale; /* loss_scale: a power of two, or 0: none */
};

/* adamw — AdamW, weight decay decoupled from the gradient.
 *   p ← p·(1 - lr·wd);  m ← β1·m + (1-β1)·g;  v ← β2·v + (1-β2)·g²
 *   p ← p - lr·(m/(1-β1^step)) / (√(v/(1-β2^step)) + eps)
 * i/o  p, m, v  f32, the elements of `spans`
 * in   g  f32 · spans: host memory, used until the call returns · step: counts from 1
 * Bias corrections are computed in double. Tolerance to plain (all in double): nmse 1e-13 on p.
 * Source Loshchilov, Hutter 2019; same as torch.optim.AdamW. */
struct adamw {
    struct tensor p, g, m, v;
    const struct optim_span *spans;
    int64_t spans_n;
    struct optim_clip clip;
    double lr, beta1, beta2, eps;
    int64_t step;
};

/* sgd — SGD with momentum, weight decay coupled to the gradient.
 *   g ← g + wd·p;  m ← momentum·m + g (step 1: m ← g);  p ← p - lr·m
 * i/o  p, m  f32, the elements of `spans`; momentum 0: m is not touched and may be NULL
 * in   g, spans, step  as for adamw
 * Same as torch.optim.SGD with dampening 0. */
struct sgd {
    struct tensor p, g, m;
    const struct optim_span *spans;
    int64_t spans_n;
    struct optim_clip clip;
    double lr, momentum;
    int64_t step;
};
#endif
