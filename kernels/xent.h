/* xent — cross-entropy of the LM head and of the QA head: the loss and, in the same pass, its
 * gradient. Losses are sums; the caller divides. Must not know models or ranks. */
#ifndef CONVOY_KERNELS_XENT_H
#define CONVOY_KERNELS_XENT_H
#include "kernels/tensor.h"

#if defined(__CUDACC__) || defined(__HIP__)
#define XENT_INLINE __host__ __device__ static inline
#else
#define XENT_INLINE static inline
#endif

/* xent — a row of logits against one target.
 *   loss[n] = log Σ_v exp(logit[n,v]) - logit[n,target[n]]
 *   dlogit[n,v] = scale·(softmax[n,v] - [v == target[n]])
 *   With cap > 0, if softcap made the logits, the gradient is for the input of softcap:
 *   dlogit[n,v] is multiplied by 1 - (logit[n,v]/cap)².
 * out  losses (N) f32  0 where target < 0: that row is ignored, and its gradient is 0 too
 *      hits (N) f32, or NULL  1 if the target is the argmax of its row (the first of equal logits),
 *      else 0; 0 where target < 0. Only without want_grad
 * i/o  logits (N,V)  row stride `stride` ≥ V; replaced by dlogits when want_grad; the padding V …
 *      stride-1 is not touched
 * in   targets (N) i32  < V · cap  0: none
 * Tolerance to plain: nmse 1e-12. Same as torch.nn.functional.cross_entropy with reduction='sum',
 * times scale. */
struct xent {
    struct tensor logits, losses, targets;
    int64_t n, v, stride;
    float scale;
    bool want_grad;
    float cap;
    struct tensor hits;
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

/* xent_shard — computes the share of one shard of the vocabulary, columns [v_first, v_first + v_n),
 * in xent: for each row the largest logit, Σ exp(logit - largest), and the target's logit.
 * xent_join makes losses and gradients from the numbers of all shards.
 * out  stats (N,3) f32  (largest, sum, target's logit). The last is -inf if the target lies in
 *      another shard. If target < 0, the row is not read and has (-inf, 0, -inf)
 * in   logits (N,v_n)  row stride `stride` >= v_n; column v of a row is number v_first + v of the
 *      vocabulary
 *      targets (N) i32  numbers of the whole vocabulary
 * Tolerance to plain: nmse 1e-12. A row with NaN has a sum that is NaN. */
struct xent_shard {
    struct tensor stats, logits, targets;
    int64_t n, v_first, v_n, stride;
};

/* xent_join — xent over a vocabulary in `shards` shards; this call has the logits of one shard.
 *   loss[n] = log Σ_v exp(logit[n,v]) - logit[n,target[n]]   over all shards
 *   dlogit[n,v] = scale·(softmax[n,v] - [v_first + v == target[n]])   for the own columns; with
 *   cap as in xent
 * out  losses (N) f32  the same bits for each shard; 0 where target < 0
 *      hits (N) f32, or NULL  as in xent if the target's column is in this shard, else 0, so the
 *      sum over the shards is xent's
 * i/o  logits (N,v_n)  as in xent_shard; replaced by dlogits when want_grad; without it only read
 *      for hits
 * in   stats (shards,N,3) f32  from xent_shard, all shards in one order; shards are `stats_stride`
 *      elements apart, 0: 3·N
 *      targets (N) i32
 * Tolerance to xent over the whole vocabulary: nmse 1e-12. Source Shoeybi et al. 2019,
 * section 3. */
struct xent_join {
    struct tensor logits, losses, stats, targets;
    int64_t n, v_first, v_n, stride;
    int64_t shards, stats_stride;
    float scale;
    bool want_grad;
    float cap;
    struct tensor hits;
};

/* xent_leads — returns true if the logit `hit` of a row's target is larger than all logits of the
 * shards before the target's shard, and not smaller than those of the shards after it. stats: the
 * row's numbers of shard 0; those of the next shard are `step` elements further. */
XENT_INLINE bool xent_leads(const float *stats, int64_t shards, int64_t step, float hit)
{
    bool is_after = false, leads = true;
    for (int64_t i = 0; i < shards; i++, stats += step) {
        const bool is_own = stats[2] == hit;
        leads = leads && (is_own || (is_after ? stats[0] <= hit : stats[0] < hit));
        is_after = is_after || is_own;
    }
    return leads;
}
#endif
