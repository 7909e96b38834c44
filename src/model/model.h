/* model — the mathematics of a model on one device. It must not know how many devices train it, nor
 * how parameters are sharded.
 *
 * An architecture is one struct model_ops in a folder of its own (gpt2/), and a row in model.c.
 *
 * The caller walks the units (param.h) in order for the forward pass and in reverse for the
 * backward pass. Before each unit it may bring the parameters into memory; after each unit's
 * backward it may send the gradients. struct pass says where they lie.
 *
 * Dimensions: B samples, T tokens, C embedding, H heads, D = C/H, V vocabulary, L layers; a row is
 * one of the N = B·T tokens of a pass. */
#ifndef CONVOY_MODEL_MODEL_H
#define CONVOY_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "dev/op.h"
#include "model/param.h"

enum model_arch { MODEL_ARCH_GPT2, MODEL_ARCH_N };
enum model_task { MODEL_TASK_LM, MODEL_TASK_QA, MODEL_TASK_N };
/* What a backward pass computes again, from nothing to most; each includes those before it.
 * LIGHT: outputs of LayerNorm and GELU. ATTENTION: attention and its input. BLOCK: all of a block
 * but its input. */
enum model_recompute {
    MODEL_RECOMPUTE_NONE,
    MODEL_RECOMPUTE_LIGHT,
    MODEL_RECOMPUTE_ATTENTION,
    MODEL_RECOMPUTE_BLOCK,
    MODEL_RECOMPUTE_AUTO /* to be decided before model_plan (node/plan_choice.h) */
};

struct model_dims {
    char name[64];
    enum model_arch arch;
    enum model_task task;
    int64_t layers, heads, embed, context, vocab;
};

/* model_preset — the dimensions of a named model: gpt2-nano (4 layers, 4 heads, 128 wide),
 * gpt2-mini (6, 6, 384), gpt2, gpt2-medium, gpt2-large, gpt2-xl; context 1024, vocab 50257. false:
 * no such name. */
bool model_preset(const char *name, struct model_dims *out);

/* model_check — ST_BAD_SETTING with the value when a dimension is out of bounds, or when heads do
 * not divide embed. */
enum status model_check(const struct model_dims *dims);

struct model_acts; /* the architecture's own (gpt2/gpt2_acts.h) */

/* One micro-batch, forward or backward. */
struct pass {
    const struct model_dims *dims;
    const struct param_table *table;
    int64_t b, t;
    enum model_recompute recompute;
    const struct op_table *op;
    struct stream *stream;

    struct tensor params, grads;          /* where the tables' offsets count from */
    const struct param_table *grad_table; /* offsets of gradients; NULL: those of `table` */
    struct model_acts *acts;              /* from model_plan */

    int64_t past;   /* tokens before these, in the KV cache (model_plan_kv_cache); > 0: b = t = 1 */
    bool want_grad; /* false: evaluation: no dropout, nothing is kept for a backward pass */
    bool accumulate; /* add to gradients; false: write them first */
    float dropout;
    uint64_t dropout_seed; /* of this step */
    int64_t sample_first;  /* number of the first sample within the step, over all ranks */

    struct tensor tokens, targets, mask, starts,
        ends;               /* on the device; feed_batch has the shapes */
    struct tensor losses;   /* LM (B·T) f32, QA (B,2) f32, on the device, not summed */
    float scale, scale_end; /* d loss / d losses: LM 1/tokens; QA of starts, of ends */

    /* LM: head calls it once all work on its part of the token embedding's gradient is on the
     * stream; NULL: not called. */
    enum status (*embedding_grad_ready)(void *arg);
    void *embedding_grad_ready_arg;
};

/* The functions of an architecture; those of model.h with the same name call them. Work goes onto
 * p->stream; nothing waits for it. Units as in param.h.
 * describe         the parameters; the caller frees the table.
 * plan             as model_plan; *out is one block from malloc.
 * plan_kv_cache    as model_plan_kv_cache.
 * flops_per_token  as model_flops_per_token.
 * embed, block     forward and backward of one unit; backward adds to or writes gradients.
 * head             losses and, with want_grad, the gradients of its parameters and of its input.
 * logits           after a forward pass: LM: (V) of one row; QA: (B·T,2) of all rows, row is 0. */
struct model_ops {
    const char *name;
    enum status (*describe)(const struct model_dims *dims, struct param_table *out);
    enum status (*plan)(const struct model_dims *dims, int64_t b, int64_t t,
                        enum model_recompute recompute, bool want_grad, enum dtype dtype,
                        struct arena *acts, struct arena *scratch, struct model_acts **out);
    void (*plan_kv_cache)(const struct model_dims *dims, struct model_acts *plan,
                          struct arena *acts);
    double (*flops_per_token)(const struct model_dims *dims, int64_t t);
    enum status (*embed_fwd)(const struct pass *p);
    enum status (*embed_bwd)(const struct pass *p);
    enum status (*block_fwd)(const struct pass *p, int block);
    enum status (*block_bwd)(const struct pass *p, int block);
    enum status (*head)(const struct pass *p);
    enum status (*logits)(const struct pass *p, int64_t row, struct tensor out);
};
const struct model_ops *model_ops(const struct model_dims *dims);

/* model_flops_per_token — of forward and backward at T = t: matrix products only, causal attention
 * counted as half, recomputation not counted. */
double model_flops_per_token(const struct model_dims *dims, int64_t t);

/* model_plan — takes activations and scratch for passes of up to (b, t) from two arenas; arenas
 * without memory (base NULL) measure only. dtype: of parameters, activations and their gradients,
 * f32 or a 16-bit type. Gradients of parameters, losses and the statistics of LayerNorm and softmax
 * are f32 always. ST_RETRY: out of memory. */
enum status model_plan(const struct model_dims *dims, int64_t b, int64_t t,
                       enum model_recompute recompute, bool want_grad, enum dtype dtype,
                       struct arena *acts, struct arena *scratch, struct model_acts **out);
/* model_plan_kv_cache — gives a plan of one sample without gradients a KV cache: q, k and v of all
 * tokens and blocks stay from pass to pass. A pass with `past` then computes one token. Takes
 * (L-1)·t·3C elements more. q is not read again; it is kept because q, k and v lie side by side. */
void model_plan_kv_cache(const struct model_dims *dims, struct model_acts *plan,
                         struct arena *acts);
void model_plan_free(struct model_acts *acts); /* accepts NULL; the arenas stay */

#endif
