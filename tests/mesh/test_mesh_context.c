/* test_mesh_context — ranks that share samples train as one rank does, but for the rounding of
 * sums: losses of 20 steps, gradients, checkpoints, logits, a number that is not finite; with
 * groups of data, tensor groups and stages beside. */
#include "mesh/axes.h"

#include "train/step/memory.h"

static const struct axes_mesh meshes[] = {
    {2, 2, 1, 1, LAYOUT_SHARD_NONE},      {4, 4, 1, 1, LAYOUT_SHARD_FULL},
    {4, 2, 1, 1, LAYOUT_SHARD_NONE},      {4, 2, 1, 1, LAYOUT_SHARD_OPTIMIZER},
    {4, 2, 1, 1, LAYOUT_SHARD_GRADIENTS}, {4, 2, 1, 1, LAYOUT_SHARD_FULL},
    {4, 2, 2, 1, LAYOUT_SHARD_NONE},      {4, 2, 1, 2, LAYOUT_SHARD_NONE},
    {8, 2, 2, 1, LAYOUT_SHARD_FULL},      {8, 2, 2, 2, LAYOUT_SHARD_FULL},
};
#define MESHES_N ((int)(sizeof meshes / sizeof *meshes))
static const struct axes axes = {
    .meshes_n = MESHES_N,
    .meshes = meshes,
    .recompute_meshes = {0, 9, 0, 9},
    .logits_meshes = {0, 3, 6, 9},
    .save_mesh = 9,
    .nan_mesh = 6,
};
AXES_TESTS

static void equal_losses(struct trial like, const char *what, int first, int every)
{
    axes_equal_losses(like, what, meshes, MESHES_N, first, every);
}

TEST(test_equal)
{
    for (int i = 0; i < AXES_MODELS_N; i++)
        equal_losses(axes_trial(&axes_models[i]), axes_models[i].name, i % 2, i < 2 ? 1 : 3);
}

/* Two logits a position, which every rank of a group gathers. */
TEST(test_equal_qa)
{
    struct trial like = axes_trial(&axes_models[0]);
    like.config.dims.task = MODEL_TASK_QA;
    equal_losses(like, "questions", 0, 2);
}

/* Attention within documents, which first keys cut: positions of whole samples on every rank. */
TEST(test_equal_documents)
{
    for (int i = 0; i < AXES_MODELS_N; i++) {
        struct trial like = axes_trial(&axes_models[i]);
        like.config.masks_documents = true;
        equal_losses(like, axes_models[i].name, i < 2 ? i : 6 + i % 2, i < 2 ? 3 : 4);
    }
}

TEST(test_equal_dropout)
{
    for (int i = 0; i < AXES_MODELS_N; i++) {
        struct trial like = axes_trial(&axes_models[i]);
        like.config.dropout = 0.1f;
        equal_losses(like, axes_models[i].name, i, 3);
    }
}

TEST(test_equal_accumulation)
{
    struct trial like = axes_trial(&axes_models[0]);
    like.config.batch_samples = 1;
    equal_losses(like, "gpt2, 6 to 12 micro-batches", 0, 3);
}

/* A long sample: what a rank keeps of it is half, and so is nearly all of its memory. */
TEST(test_memory)
{
    struct step_memory memory[2];
    for (int i = 0; i < 2; i++) {
        struct trial like = axes_trial(&axes_models[1]);
        like.config.dims.layers = 16;
        like.config.dims.context = like.config.seq_tokens = 8192;
        like.config.batch_samples = 1;
        like.config.axis_ranks[MESH_AXIS_CONTEXT] = 1 + i;
        const struct step_place place = {.rank = 0, .ranks = 1 + i};
        assert_int_equal(step_plan(&like.config, &place, &memory[i]), ST_OK);
    }
    print_message("# CP=1: activations %lld, passes %lld; CP=2: %lld, %lld\n",
                  (long long)memory[0].activations, (long long)memory[0].passes,
                  (long long)memory[1].activations, (long long)memory[1].passes);
    assert_true(memory[1].activations * 2 <= memory[0].activations + 4096);
    assert_true((double)memory[1].passes < 0.55 * (double)memory[0].passes);
}

HARNESS_RUN_ALL()
