/* test_mesh_tensor — ranks that share matrices train as one rank does, but for the rounding of
 * sums: losses of 20 steps, gradients, checkpoints, evaluation, a number that is not finite. */
#include "mesh/axes.h"

#include "mesh/models.h"

/* Key heads are more than, as many as and fewer than ranks; the vocabulary is cut unevenly. */
static const struct model_dims models[] = {
    {.name = "gpt2", .layers = 3, .heads = 4, .embed = 24, .vocab = 211},
    {.name = "llama, 4 heads, 2 key heads",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 3,
     .heads = 4,
     .kv_heads = 2,
     .embed = 32,
     .ffn = 44,
     .vocab = 211,
     .parts = {MODELS_LLAMA}},
    {.name = "qwen3, 4 heads, 1 key head",
     .arch = MODEL_ARCH_QWEN3,
     .layers = 2,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 6,
     .embed = 20,
     .ffn = 12,
     .vocab = 37,
     .parts = {MODELS_LLAMA, .has_qk_norm = true, .is_untied = true}},
    {.name = "neox",
     .arch = MODEL_ARCH_NEOX,
     .layers = 3,
     .heads = 4,
     .embed = 32,
     .vocab = 211,
     .parts = {.position = MODEL_POSITION_ROPE,
               .rope.theta = 10000,
               .rope.fraction = 0.25,
               .mlp = MODEL_MLP_GELU_ERF,
               .is_parallel = true,
               .is_untied = true}},
};
#define MODELS_N ((int)(sizeof models / sizeof *models))

static const struct axes_mesh meshes[] = {
    {2, 1, 2, 1, LAYOUT_SHARD_NONE},      {4, 1, 4, 1, LAYOUT_SHARD_NONE},
    {4, 1, 2, 1, LAYOUT_SHARD_NONE},      {4, 1, 2, 1, LAYOUT_SHARD_OPTIMIZER},
    {4, 1, 2, 1, LAYOUT_SHARD_GRADIENTS}, {4, 1, 2, 1, LAYOUT_SHARD_FULL},
};
#define MESHES_N ((int)(sizeof meshes / sizeof *meshes))
static const struct axes axes = {
    .models_n = MODELS_N,
    .meshes_n = MESHES_N,
    .models = models,
    .meshes = meshes,
    .logits_meshes = {2, 1, 2, 1},
    .save_mesh = 5,
    .nan_mesh = 2, /* where another rank counts the tensor's squares, too */
};
AXES_TESTS

static void equal_losses(struct trial like, const char *what, int every)
{
    axes_equal_losses(like, what, meshes, MESHES_N, 0, every);
}

TEST(test_equal)
{
    for (int i = 0; i < MODELS_N; i++)
        equal_losses(axes_trial(&models[i]), models[i].name, 1);
}

/* Two logits a position, which every rank makes of all rows. */
TEST(test_equal_qa)
{
    struct trial like = axes_trial(&models[0]);
    like.config.dims.task = MODEL_TASK_QA;
    equal_losses(like, "gpt2, questions", 1);
}

TEST(test_equal_dropout)
{
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = axes_trial(&models[i]);
        like.config.dropout = 0.1f;
        equal_losses(like, models[i].name, 2);
    }
}

TEST(test_equal_accumulation)
{
    struct trial like = axes_trial(&models[0]);
    like.config.batch_samples = 1;
    equal_losses(like, "gpt2, 6 to 12 micro-batches", 1);
}

/* Stages of a pipeline, each of them a tensor group; alone, and in two groups with other
 * samples. */
TEST(test_equal_stages)
{
    static const struct axes_mesh staged[] = {{4, 1, 2, 2, LAYOUT_SHARD_FULL},
                                              {8, 1, 2, 2, LAYOUT_SHARD_FULL}};
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = axes_trial(&models[i]);
        like.config.dims.layers = 4;
        axes_equal_losses(like, models[i].name, staged, 2, 0, 1);
    }
}

HARNESS_RUN_ALL()
