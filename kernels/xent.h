/* xent — cross-entropy of the LM head and of the QA head: the loss and, in the same pass, its
 * gradient. Losses are sums; the caller divides. Must not know models. */
#ifndef CONVOY_KERNELS_XENT_H
#define CONVOY_KERNELS_XENT_H
#include "kernels/tensor.h"

/* xent — a row of logits against one target.
 *   loss[n] = log Σ_v exp(logit[n,v]) - logit[n,target[n]]
 *   dlogit[n,v] = scale·(softmax[n,v] - [v == target[n]])
 * out  losses (N) f32  0 where target < 0: that row is ignored, and its gradient is 0 too
 * i/o  logits (N,V)  row stride `stride` ≥ V; replaced by dlogits when want_grad; the padding V …
 *      stride-1 is not touched
 * in   targets (N) i32  < V
 * Tolerance to plain: nmse 1e-12. Same as torch.nn.functional.cross_entropy with reduction='sum',
 * times scale. */
struct xent {
    struct tensor logits, losses, targets;
    int64_t n, v, stride;
    float scale;
    bool want_grad;
};

/* qa_xent — start and end of an answer span: two softmaxes over the T positions of each sample.
 * logits[b,t,0] is the start, logits[b,t,1] the end. A label is clamped to [0,T]; label T is
 * ignored: its loss and gradient are 0. out losses (B,2) f32
 *      dlogits (B,T,2)  replaced; may be logits; NULL: not wanted
 * in   logits (B,T,2) · starts, ends (B) i32
 *      scale_start, scale_end  factors of the gradients: e.g. ½ / number of labels not ignored */
struct qa_xent {
    struct tensor losses, dlogits, logits, starts, ends;
    int64_t b, t;
    float scale_start, scale_end;
};
#endif
