/* test_mesh_tensor — ranks that share matrices train as one rank does, but for the rounding of
 * sums: losses of 20 steps, gradients, checkpoints, evaluation, a number that is not finite. */
#include "mesh/axes.h"

static const struct axes_mesh meshes[] = {
    {2, 1, 2, 1, LAYOUT_SHARD_NONE},      {4, 1, 4, 1, LAYOUT_SHARD_NONE},
    {4, 1, 2, 1, LAYOUT_SHARD_NONE},      {4, 1, 2, 1, LAYOUT_SHARD_OPTIMIZER},
    {4, 1, 2, 1, LAYOUT_SHARD_GRADIENTS}, {4, 1, 2, 1, LAYOUT_SHARD_FULL},
};
#define MESHES_N ((int)(sizeof meshes / sizeof *meshes))
static const struct axes axes = {
    .meshes_n = MESHES_N,
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
    for (int i = 0; i < AXES_MODELS_N; i++)
        equal_losses(axes_trial(&axes_models[i]), axes_models[i].name, 1);
}

/* Two logits a position, which every rank makes of all rows. */
TEST(test_equal_qa)
{
    struct trial like = axes_trial(&axes_models[0]);
    like.config.dims.task = MODEL_TASK_QA;
    equal_losses(like, "gpt2, questions", 1);
}

TEST(test_equal_dropout)
{
    for (int i = 0; i < AXES_MODELS_N; i++) {
        struct trial like = axes_trial(&axes_models[i]);
        like.config.dropout = 0.1f;
        equal_losses(like, axes_models[i].name, 2);
    }
}

TEST(test_equal_accumulation)
{
    struct trial like = axes_trial(&axes_models[0]);
    like.config.batch_samples = 1;
    equal_losses(like, "gpt2, 6 to 12 micro-batches", 1);
}

/* Stages of a pipeline, each of them a tensor group; alone, and in two groups with other
 * samples. */
TEST(test_equal_stages)
{
    static const struct axes_mesh staged[] = {{4, 1, 2, 2, LAYOUT_SHARD_FULL},
                                              {8, 1, 2, 2, LAYOUT_SHARD_FULL}};
    for (int i = 0; i < AXES_MODELS_N; i++) {
        struct trial like = axes_trial(&axes_models[i]);
        like.config.dims.layers = 4;
        axes_equal_losses(like, axes_models[i].name, staged, 2, 0, 1);
    }
}

HARNESS_RUN_ALL()
