/* model — the mathematics of one architecture, for one device; it never learns how many stand
 * behind it.
 *
 * An architecture is a table of seven functions. A pass (one micro-batch, forward or backward) is
 * described by struct pass: where parameters, gradients and activations lie. The caller walks units
 * in order (forward) and in reverse (backward) and may move parameters in before, and gradients out
 * after, each unit. Dimensions: B T C H D V L. */
#ifndef CONVOY_MODEL_MODEL_H
#define CONVOY_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "dev/op.h"
#include "model/param.h"

enum model_task { MODEL_TASK_LM, MODEL_TASK_QA };
enum model_recompute { MODEL_RECOMPUTE_NONE, MODEL_RECOMPUTE_ATTENTION, MODEL_RECOMPUTE_BLOCK };

struct model_dims {
    char name[64];
    enum model_task task;
    int64_t layers, heads, embed, context, vocab;
};

/* model_preset — gpt2-nano (4 layers, 4 heads, 128 wide), gpt2-mini (6, 6, 384), gpt2, gpt2-medium,
 * gpt2-large, gpt2-xl; context 1024, vocab 50257. false: no such name. */
bool model_preset(const char *name, struct model_dims *out);
/* model_check — ST_BAD_SETTING with the values: heads do not divide embed, anything < 1 or too
 * large to address. */
enum status model_check(const struct model_dims *dims);
double model_flops_per_token(const struct model_dims *dims,
                             /* fwd+bwd, products really done, causal attention as half */
                             int64_t t);

struct pass {
    /* what */
    const struct model_dims *dims;
    const struct param_table *table;
    int64_t b, t;
    enum model_recompute recompute;
    /* where */
    const struct op_table *op;
    struct stream *stream;
    struct tensor params, grads; /* what the tables' offsets count from */
    /* where gradients lie when not as `table` says; NULL: they do */
    const struct param_table *grad_table;
    /* activations kept between forward and backward, and scratch; from model_plan */
    struct model_acts *acts;
    /* how */
    /* tokens before these, seen by earlier passes over a plan of model_plan_kv_cache; > 0: b = t =
     * 1 */
    int64_t past;
    bool want_grad;  /* false: forward for evaluation; nothing kept for backward, no dropout */
    bool accumulate; /* gradients are added to what is there; false: written first */
    float dropout;
    uint64_t dropout_seed; /* mixed with the step by the caller */
    /* global number of this pass's first sample in the step: dropout's element indices */
    int64_t sample_first;
    /* inputs on the device */
    struct tensor tokens, targets, mask, starts, ends; /* as feed_batch */
    /* losses: LM (B·T) f32, QA (B,2) f32, on the device; sums are the caller's */
    struct tensor losses;
    /* LM: told by head once all of its part of the token embedding's gradient is asked for, before
     * the rest of head; NULL: not told */
    enum status (*embedding_grad_ready)(void *arg);
    void *embedding_grad_ready_arg;
    float scale, scale_end; /* factor of each loss in the gradient: LM 1/tokens; QA start, end */
};

/* The seam: struct model_ops, table in model.c. unit numbers as in param.h. */
struct model_ops {
    const char *name;
    enum status (*describe)(const struct model_dims *dims, struct param_table *out);
    enum status (*embed_fwd)(const struct pass *p);
    enum status (*embed_bwd)(const struct pass *p);
    enum status (*block_fwd)(const struct pass *p, int block);
    enum status (*block_bwd)(const struct pass *p, int block);
    enum status (*head)(
        /* losses and, when want_grad, the gradient of its input and parameters */
        const struct pass *p);
    enum status (*logits)(const struct pass *p, int64_t row,
                          /* after a forward; LM: (V) of one row; QA: (B·T,2) from row 0 on */
                          struct tensor out);
};
const struct model_ops *model_ops(const struct model_dims *dims);

/* model_plan — carve activations and scratch for passes of up to (b, t) from an arena (a measuring
 * arena works: base NULL). dtype: of activations and their gradients, f32 or a 16-bit type; the
 * pass's params are of the same, its grads, losses and the statistics of LayerNorm and softmax
 * always f32. */
enum status model_plan(const struct model_dims *dims, int64_t b, int64_t t,
                       enum model_recompute recompute, bool want_grad, enum dtype dtype,
                       struct arena *acts, struct arena *scratch, struct model_acts **out);
/* model_plan_kv_cache — a plan without gradients for one sample keeps the q, k, v of all tokens and
 * blocks from pass to pass: a pass with `past` then costs one token. Takes (L-1)·t·3C floats more
 * (q is not used again, but so the rows stay where the products write them). */
void model_plan_kv_cache(const struct model_dims *dims, struct model_acts *plan,
                         struct arena *acts);
void model_plan_free(struct model_acts *acts);

#endif
