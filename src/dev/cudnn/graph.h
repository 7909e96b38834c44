/* cudnn_graph — causal attention as a graph of cuDNN's operations, and the plan that cuDNN proposes
 * for it. For src/dev only: cudnn.c owns library and plans. Must not know streams or settings.
 *
 * cuDNN matches a graph against the patterns of its engines; this graph is the pattern of its own
 * documentation (scaled dot product attention): products, pointwise operations and reductions whose
 * results between are virtual, that is never stored.
 *
 * The form of a backward graph decides whether its results have the same bits each time. In the
 * deterministic form the gradient of the queries is a product; cuDNN then stores the gradient of
 * all scores. In the atomic form blocks add to an f32 sum in any order. Notes do not decide: cuDNN
 * 9.19 proposes engines for the atomic form without the note NONDETERMINISTIC. For the
 * deterministic form an engine is passed over if it has that note, or too little workspace to store
 * the gradient of the scores. */
#ifndef CONVOY_DEV_CUDNN_GRAPH_H
#define CONVOY_DEV_CUDNN_GRAPH_H

#include <stdbool.h>

#include "dev/cudnn/abi.h"
#include "kernels/attention.h"

/* All of it is the key of a plan, and its padding is zero. B, T, H, K, D and the rows of qkv and
 * dqkv are as in kernels/attention.h. */
struct cudnn_shape {
    int64_t b, t, h, hk, d;
    int64_t layout; /* enum attention_layout */
    int64_t dtype;  /* enum dtype: bf16 or f16 */
    int64_t is_backward;
    int64_t is_atomic; /* backward in the atomic form */
};

/* The tensors that are not virtual; their numbers are cuDNN's unique identifiers. */
enum cudnn_tensor {
    CUDNN_Q = 1,
    CUDNN_K,
    CUDNN_V,
    CUDNN_O,
    CUDNN_LSE,
    CUDNN_SCALE,  /* host memory: 1/√D */
    CUDNN_HIDDEN, /* host memory: the score of a hidden key, -inf */
    CUDNN_DO,     /* backward, as all below */
    CUDNN_DQ,
    CUDNN_DK,
    CUDNN_DV,
    CUDNN_ONE,    /* host memory: 1 */
    CUDNN_DELTA,  /* (B,H,T) f32: Σ dout·out, which cuDNN keeps between its kernels */
    CUDNN_DQ_SUM, /* is_atomic: (B,H,T,D) f32, need not be zero from cuDNN 9.6 on */
    CUDNN_TENSORS
};

#define CUDNN_DESCS_MAX 128
struct cudnn_plan {
    struct cudnn_shape shape;
    dnn_desc desc;           /* NULL: cuDNN cannot compute it */
    int64_t workspace_bytes; /* without delta and dq_sum; is_too_large: bytes the engine needs */
    int64_t engine;          /* cuDNN's number of the engine */
    int64_t proposal;        /* number of the engine in the list of proposed engines, from 1 */
    int64_t proposed;        /* engines that cuDNN proposes, the best first */
    int passed_over;         /* proposed engines that are not deterministic */
    bool is_too_large; /* no plan: the workspace of engine `proposal` is larger than allowed */
    dnn_desc descs[CUDNN_DESCS_MAX];
    int descs_n;
    dnn_status status; /* status of the first call that failed; 0: none */
    const char *stage; /* the purpose of that call */
};

/* The target of a plan: the device of `handle`, or, if that is NULL, the device in `prop`, a
 * finalized DEVICEPROP descriptor. */
struct cudnn_target {
    dnn_handle handle;
    dnn_desc prop;
    int64_t workspace_max; /* bytes */
    int64_t first;         /* proposed engines at the head of the list that are passed over */
};

/* cudnn_graph_plan — makes the plan for shape. It uses the first engine that keeps the determinism
 * of the graph and can be compiled, and waits for that. An engine that needs more workspace than
 * allowed ends the search, so that the caller can retry with fewer samples. An engine that reports
 * its workspace only after it is compiled is passed over. false: plan->status and plan->stage hold
 * the reason; release the plan also then. */
bool cudnn_graph_plan(const struct dnn_table *dnn, const struct cudnn_target *target,
                      const struct cudnn_shape *shape, struct cudnn_plan *plan);
/* cudnn_graph_release — frees its descriptors; accepts a zeroed plan. */
void cudnn_graph_release(const struct dnn_table *dnn, struct cudnn_plan *plan);

#endif
