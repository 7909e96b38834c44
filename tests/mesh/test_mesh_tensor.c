/* test_mesh_tensor — ranks that share matrices train as one rank does, but for the rounding of
 * sums: losses of 20 steps, gradients, checkpoints, evaluation, a number that is not finite. */
#include "mesh/ask.h"
#include "mesh/trial.h"

#define ROPE .position = MODEL_POSITION_ROPE, .rope.theta = 10000

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
     .parts = {ROPE, .rope.fraction = 1, .norm = MODEL_NORM_RMS, .mlp = MODEL_MLP_SWIGLU,
               .bias = MODEL_BIAS_NONE}},
    {.name = "qwen3, 4 heads, 1 key head",
     .arch = MODEL_ARCH_QWEN3,
     .layers = 2,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 6,
     .embed = 20,
     .ffn = 12,
     .vocab = 37,
     .parts = {ROPE, .rope.fraction = 1, .norm = MODEL_NORM_RMS, .mlp = MODEL_MLP_SWIGLU,
               .bias = MODEL_BIAS_NONE, .has_qk_norm = true, .is_untied = true}},
    {.name = "neox",
     .arch = MODEL_ARCH_NEOX,
     .layers = 3,
     .heads = 4,
     .embed = 32,
     .vocab = 211,
     .parts = {ROPE, .rope.fraction = 0.25, .mlp = MODEL_MLP_GELU_ERF, .is_parallel = true,
               .is_untied = true}},
};
#define MODELS_N ((int)(sizeof models / sizeof *models))
#define SEQ_TOKENS 16

static struct trial trial_of_model(int i)
{
    struct trial like = trial_of(MODEL_TASK_LM, 12, SEQ_TOKENS);
    like.config.dims = models[i];
    like.config.dims.context = SEQ_TOKENS + 3;
    like.config.batch_samples = 3;
    like.lr = 3e-4;
    like.steps = 20;
    like.takes_state = false;
    return like;
}

static struct trial with_mesh(struct trial like, int tensor, enum layout_shard shard)
{
    like.config.axis_ranks[MESH_AXIS_TENSOR] = tensor;
    like.config.store.shard = shard;
    return like;
}

/* Ranks, TP, SHARD. */
static const struct {
    int ranks, tensor;
    enum layout_shard shard;
    const char *text;
} meshes[] = {
    {2, 2, LAYOUT_SHARD_NONE, "TP=2"},
    {4, 4, LAYOUT_SHARD_NONE, "TP=4"},
    {4, 2, LAYOUT_SHARD_NONE, "data 2 x TP=2"},
    {4, 2, LAYOUT_SHARD_OPTIMIZER, "data 2 x TP=2, SHARD=optimizer"},
    {4, 2, LAYOUT_SHARD_GRADIENTS, "data 2 x TP=2, SHARD=gradients"},
    {4, 2, LAYOUT_SHARD_FULL, "data 2 x TP=2, SHARD=full"},
};
#define MESHES_N ((int)(sizeof meshes / sizeof *meshes))

static void equal_losses(struct trial like, const char *what, int every)
{
    struct trial alone = trial_run(&like, 1, 1);
    for (int i = 0; i < MESHES_N; i += every) {
        struct trial one = with_mesh(like, meshes[i].tensor, meshes[i].shard);
        struct trial many = trial_run(&one, 1, meshes[i].ranks);
        double apart = trial_apart(&many, &alone), norms = 0;
        for (int step = 0; step < like.steps; step++)
            norms = fmax(norms, fabs(many.norm[step] / alone.norm[step] - 1));
        print_message("# %s, %s: losses of 20 steps differ by at most %.1e, norms by %.1e\n", what,
                      meshes[i].text, apart, norms);
        assert_true(apart < 2e-6);
        assert_true(norms < 2e-5);
    }
}

static void test_equal(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS_N; i++)
        equal_losses(trial_of_model(i), models[i].name, 1);
}

/* Two logits a position, which every rank makes of all rows. */
static void test_equal_qa(void **state)
{
    (void)state;
    struct trial like = trial_of_model(0);
    like.config.dims.task = MODEL_TASK_QA;
    equal_losses(like, "gpt2, questions", 1);
}

static void test_equal_dropout(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = trial_of_model(i);
        like.config.dropout = 0.1f;
        equal_losses(like, models[i].name, 2);
    }
}

static void test_equal_accumulation(void **state)
{
    (void)state;
    struct trial like = trial_of_model(0);
    like.config.batch_samples = 1;
    equal_losses(like, "gpt2, 6 to 12 micro-batches", 1);
}

/* Stages of a pipeline, each of them a tensor group; alone, and in two groups with other
 * samples. */
static void test_equal_stages(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = trial_of_model(i);
        like.config.dims.layers = 4;
        struct trial alone = trial_run(&like, 1, 1), one = with_mesh(like, 2, LAYOUT_SHARD_FULL);
        one.config.axis_ranks[MESH_AXIS_PIPELINE] = 2;
        for (int ranks = 4; ranks <= 8; ranks += 4) {
            struct trial many = trial_run(&one, 1, ranks);
            double apart = trial_apart(&many, &alone);
            print_message(
                "# %s, data %d x TP=2 x PP=2: losses of 20 steps differ by at most %.1e\n",
                models[i].name, ranks / 4, apart);
            assert_true(apart < 2e-6);
        }
    }
}

/* What is computed again asks the other ranks again: the same bits. */
static void test_recompute(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = with_mesh(trial_of_model(i), 2, LAYOUT_SHARD_NONE);
        like.config.dropout = 0.1f;
        like.steps = 3;
        struct trial want = trial_run(&like, 1, 2);
        int64_t layers = like.config.dims.layers;
        for (int64_t how = 1; how <= MODEL_RECOMPUTE_BLOCK * layers; how += layers - 1) {
            like.config.recompute = model_recompute_nth(layers, how);
            struct trial got = trial_run(&like, 1, 2);
            trial_same(&got, &want, models[i].name);
        }
    }
}

/* One step of SGD without clipping changes parameters by their gradient: every parameter of the
 * whole model, read through rank 0. */
static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = trial_of_model(i);
        like.takes_state = true;
        like.steps = 1;
        like.lr = 1;
        like.config.optim =
            (struct optim_config){.kind = OPTIM_KIND_SGD, .grad_clip = 0, .momentum = 0};
        struct trial alone = trial_run(&like, 1, 1);
        for (int mesh = 0; mesh < MESHES_N; mesh++) {
            struct trial one = with_mesh(like, meshes[mesh].tensor, meshes[mesh].shard);
            struct trial many = trial_run(&one, 1, meshes[mesh].ranks);
            double most = 0;
            assert_int_equal(many.elems, alone.elems);
            for (int64_t k = 0; k < alone.elems; k++)
                most = fmax(most, fabs((double)many.state[0][k] - (double)alone.state[0][k]));
            print_message("# %s, %s: gradients differ by at most %.1e of the norm\n",
                          models[i].name, meshes[mesh].text, most / alone.norm[0]);
            assert_true(most < 1e-6 * alone.norm[0]);
            trial_free(&many);
        }
        trial_free(&alone);
    }
}

/* The state of one mesh is that of another: read from four ranks, loaded into one, and back. */
static void test_state(void **state)
{
    (void)state;
    struct trial like = trial_of_model(1);
    like.takes_state = true;
    like.steps = 3;
    struct trial four = with_mesh(like, 2, LAYOUT_SHARD_FULL);
    struct trial first = trial_run(&four, 1, 4);
    like.first_step = 3;
    for (int part = 0; part < TRIAL_PARTS; part++)
        like.load[part] = first.state[part];
    struct trial alone = trial_run(&like, 1, 1);
    for (int mesh = 0; mesh < MESHES_N; mesh++) {
        struct trial one = with_mesh(like, meshes[mesh].tensor, meshes[mesh].shard);
        struct trial many = trial_run(&one, 1, meshes[mesh].ranks);
        assert_true(trial_apart(&many, &alone) < 1e-6);
        trial_free(&many);
    }
    like.steps = 0;
    struct trial same = with_mesh(like, 4, LAYOUT_SHARD_NONE), back = trial_run(&same, 1, 4);
    for (int part = 0; part < TRIAL_PARTS; part++)
        assert_memory_equal(back.state[part], first.state[part],
                            (size_t)first.elems * sizeof(float));
    trial_free(&back);
    trial_free(&alone);
    trial_free(&first);
}

/* NaN in one rank's gradient, also where another rank counts the tensor's squares: every rank has
 * the same loss and norm, and none updates. */
static void test_nan(void **state)
{
    (void)state;
    struct trial like = with_mesh(trial_of_model(0), 2, LAYOUT_SHARD_NONE);
    like.steps = 2;
    for (int rank = 0; rank < 4; rank++) {
        like.nan_step = 1;
        like.nan_rank = rank;
        struct trial got = trial_run(&like, 1, 4);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]) && isnan(got.norm[1]));
        assert_int_equal(got.step_st, ST_NOT_FINITE);
    }
}

/* ---- logits ---- */

/* Every rank gets all logits, the same bits, after few tokens too. */
static void test_logits(void **state)
{
    (void)state;
    static struct ask alone, many[4];
    for (int i = 0; i < MODELS_N; i++)
        for (int64_t n = 1; n <= SEQ_TOKENS; n += 5) {
            size_t bytes = (size_t)models[i].vocab * sizeof(float);
            alone = (struct ask){.config = trial_of_model(i).config, .n = n};
            ranks_run(1, 1, ask_rank, &alone, sizeof alone);
            for (int rank = 0; rank < 4; rank++) {
                many[rank] = alone;
                many[rank].config.comm = NULL;
                many[rank].config.axis_ranks[MESH_AXIS_TENSOR] = i % 2 ? 4 : 2;
                memset(many[rank].logits, 0, sizeof many[rank].logits);
            }
            ranks_run(1, 4, ask_rank, many, sizeof *many);
            for (int rank = 0; rank < 4; rank++)
                assert_memory_equal(many[rank].logits, many[0].logits, bytes);
            for (int64_t k = 0; k < models[i].vocab; k++)
                assert_float_equal(many[0].logits[k], alone.logits[k], 1e-5f);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_equal),         cmocka_unit_test(test_equal_qa),
    cmocka_unit_test(test_equal_dropout), cmocka_unit_test(test_equal_accumulation),
    cmocka_unit_test(test_equal_stages),  cmocka_unit_test(test_recompute),
    cmocka_unit_test(test_gradients),     cmocka_unit_test(test_state),
    cmocka_unit_test(test_nan),           cmocka_unit_test(test_logits)};
HARNESS_MAIN(tests)
