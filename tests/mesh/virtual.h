/* virtual — for tests of VIRTUAL_TP: models whose layers are cut in PARTS parts, trained on fewer
 * ranks than parts. */
#ifndef CONVOY_TESTS_VIRTUAL_H
#define CONVOY_TESTS_VIRTUAL_H

#include "mesh/models.h"
#include "mesh/trial.h"

#define PARTS 4

/* Key heads are as many as parts, and fewer; the vocabulary is cut unevenly. */
enum { GPT2, GPT2_QA, GPT2_MODERN, LLAMA_TWO, QWEN_ONE, NEOX, MODELS_N };
static const struct model_dims models[MODELS_N] = {
    MODELS_GPT2,
    {.name = "gpt2, questions",
     .task = MODEL_TASK_QA,
     .layers = 2,
     .heads = 4,
     .embed = 48,
     .vocab = 211},
    {.name = "modern gpt2",
     .layers = 2,
     .heads = 4,
     .embed = 48,
     .vocab = 211,
     .parts = {MODELS_ROPE, .mlp = MODEL_MLP_RELU2, .has_qk_norm = true, .is_untied = true,
               .logit_cap = 15, .has_zero_init = true}},
    {.name = "llama, 8 heads, 4 key heads",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 2,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 12,
     .embed = 96,
     .ffn = 44,
     .vocab = 211,
     .parts = {MODELS_LLAMA, .is_untied = true}},
    MODELS_QWEN_ONE,
    {.name = "neox, parallel halves",
     .arch = MODEL_ARCH_NEOX,
     .layers = 2,
     .heads = 4,
     .embed = 48,
     .ffn = 64,
     .vocab = 211,
     .parts = {MODELS_ROPE, .mlp = MODEL_MLP_GELU_ERF, .is_parallel = true, .is_untied = true}},
};

static inline struct trial trial_like(int model, int tensor, int parts)
{
    struct trial like = trial_of(models[model].task, 4, 16);
    like.steps = 2;
    like.config.dims = models[model];
    like.config.dims.context = 19;
    like.config.shards = 4;
    like.config.dropout = 0.1f;
    like.config.axis_ranks[MESH_AXIS_TENSOR] = tensor;
    like.config.tensor_parts = parts;
    return like;
}

struct world {
    int nodes, locals;
};

static inline void same(const struct trial *like, const struct trial *want, struct world world)
{
    char what[160];
    const int *ranks = like->config.axis_ranks;
    snprintf(what, sizeof what,
             "%s: %d x %d ranks, TP %d of %d, CP %d, PP %d in %d chunks, shard %d, way %d",
             like->config.dims.name, world.nodes, world.locals, ranks[MESH_AXIS_TENSOR],
             like->config.tensor_parts, ranks[MESH_AXIS_CONTEXT], ranks[MESH_AXIS_PIPELINE],
             like->config.pipe_chunks, (int)like->config.store.shard,
             (int)like->config.recompute.way);
    struct trial got = trial_run(like, world.nodes, world.locals);
    assert_int_equal(got.done, like->steps);
    trial_same(&got, want, what);
    trial_free(&got);
}

#endif
