/* test_mesh_context — ranks that share samples train as one rank does, but for the rounding of
 * sums: losses of 20 steps, gradients, checkpoints, logits, a number that is not finite; with
 * groups of data, tensor groups and stages beside. */
#include "mesh/axes.h"

#include "mesh/models.h"
#include "train/step/memory.h"

static const struct model_dims models[] = {
    {.name = "gpt2", .layers = 4, .heads = 4, .embed = 32, .vocab = 211},
    {.name = "llama, 4 heads, 2 key heads",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 4,
     .heads = 4,
     .kv_heads = 2,
     .embed = 32,
     .ffn = 44,
     .vocab = 211,
     .parts = {MODELS_LLAMA}},
    {.name = "qwen3, 4 heads, 1 key head",
     .arch = MODEL_ARCH_QWEN3,
     .layers = 4,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 8,
     .embed = 20,
     .ffn = 12,
     .vocab = 37,
     .parts = {MODELS_LLAMA, .has_qk_norm = true, .is_untied = true}},
    {.name = "neox",
     .arch = MODEL_ARCH_NEOX,
     .layers = 4,
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
    {2, 2, 1, 1, LAYOUT_SHARD_NONE},      {4, 4, 1, 1, LAYOUT_SHARD_FULL},
    {4, 2, 1, 1, LAYOUT_SHARD_NONE},      {4, 2, 1, 1, LAYOUT_SHARD_OPTIMIZER},
    {4, 2, 1, 1, LAYOUT_SHARD_GRADIENTS}, {4, 2, 1, 1, LAYOUT_SHARD_FULL},
    {4, 2, 2, 1, LAYOUT_SHARD_NONE},      {4, 2, 1, 2, LAYOUT_SHARD_NONE},
    {8, 2, 2, 1, LAYOUT_SHARD_FULL},      {8, 2, 2, 2, LAYOUT_SHARD_FULL},
};
#define MESHES_N ((int)(sizeof meshes / sizeof *meshes))
static const struct axes axes = {
    .models_n = MODELS_N,
    .meshes_n = MESHES_N,
    .models = models,
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

static void test_equal(void **state)
{
    for (int i = 0; i < MODELS_N; i++)
        equal_losses(axes_trial(&models[i]), models[i].name, i % 2, i < 2 ? 1 : 3);
}

/* Two logits a position, which every rank of a group gathers. */
static void test_equal_qa(void **state)
{
    struct trial like = axes_trial(&models[0]);
    like.config.dims.task = MODEL_TASK_QA;
    equal_losses(like, "questions", 0, 2);
}

/* Attention within documents, which first keys cut: positions of whole samples on every rank. */
static void test_equal_documents(void **state)
{
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = axes_trial(&models[i]);
        like.config.masks_documents = true;
        equal_losses(like, models[i].name, i < 2 ? i : 6 + i % 2, i < 2 ? 3 : 4);
    }
}

static void test_equal_dropout(void **state)
{
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = axes_trial(&models[i]);
        like.config.dropout = 0.1f;
        equal_losses(like, models[i].name, i, 3);
    }
}

static void test_equal_accumulation(void **state)
{
    struct trial like = axes_trial(&models[0]);
    like.config.batch_samples = 1;
    equal_losses(like, "gpt2, 6 to 12 micro-batches", 0, 3);
}

/* A long sample: what a rank keeps of it is half, and so is nearly all of its memory. */
static void test_memory(void **state)
{
    struct step_memory memory[2];
    for (int i = 0; i < 2; i++) {
        struct trial like = axes_trial(&models[1]);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_memory),        cmocka_unit_test(test_equal),
    cmocka_unit_test(test_equal_qa),      cmocka_unit_test(test_equal_documents),
    cmocka_unit_test(test_equal_dropout), cmocka_unit_test(test_equal_accumulation),
    cmocka_unit_test(test_recompute),     cmocka_unit_test(test_gradients),
    cmocka_unit_test(test_state),         cmocka_unit_test(test_nan),
    cmocka_unit_test(test_logits)};
HARNESS_MAIN(tests)
