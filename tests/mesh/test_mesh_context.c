/* test_mesh_context — ranks that share samples train as one rank does, but for the rounding of
 * sums: losses of 20 steps, gradients, checkpoints, logits, a number that is not finite; with
 * groups of data, tensor groups and stages beside. */
#include "mesh/ask.h"
#include "mesh/trial.h"

#define ROPE .position = MODEL_POSITION_ROPE, .rope.theta = 10000, .rope.fraction = 1
#define LLAMA .norm = MODEL_NORM_RMS, .mlp = MODEL_MLP_SWIGLU, .bias = MODEL_BIAS_NONE

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
     .parts = {ROPE, LLAMA}},
    {.name = "qwen3, 4 heads, 1 key head",
     .arch = MODEL_ARCH_QWEN3,
     .layers = 4,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 8,
     .embed = 20,
     .ffn = 12,
     .vocab = 37,
     .parts = {ROPE, LLAMA, .has_qk_norm = true, .is_untied = true}},
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

struct mesh_row {
    int ranks, context, tensor, stages;
    enum layout_shard shard;
};
static const struct mesh_row meshes[] = {
    {2, 2, 1, 1, LAYOUT_SHARD_NONE},      {4, 4, 1, 1, LAYOUT_SHARD_FULL},
    {4, 2, 1, 1, LAYOUT_SHARD_NONE},      {4, 2, 1, 1, LAYOUT_SHARD_OPTIMIZER},
    {4, 2, 1, 1, LAYOUT_SHARD_GRADIENTS}, {4, 2, 1, 1, LAYOUT_SHARD_FULL},
    {4, 2, 2, 1, LAYOUT_SHARD_NONE},      {4, 2, 1, 2, LAYOUT_SHARD_NONE},
    {8, 2, 2, 1, LAYOUT_SHARD_FULL},      {8, 2, 2, 2, LAYOUT_SHARD_FULL},
};
#define MESHES_N ((int)(sizeof meshes / sizeof *meshes))
enum { MESH_ALONE = 0, MESH_TENSOR = 6, MESH_STAGES = 7, MESH_ALL = 9 };

static struct trial with_mesh(struct trial like, const struct mesh_row *mesh)
{
    like.config.axis_ranks[MESH_AXIS_CONTEXT] = mesh->context;
    like.config.axis_ranks[MESH_AXIS_TENSOR] = mesh->tensor;
    like.config.axis_ranks[MESH_AXIS_PIPELINE] = mesh->stages;
    like.config.store.shard = mesh->shard;
    return like;
}

static const char *text_of(const struct mesh_row *m)
{
    static const char *const shards[] = {"none", "optimizer", "gradients", "full"};
    static char text[96];
    snprintf(text, sizeof text, "data %d x CP=%d x TP=%d x PP=%d, SHARD=%s",
             m->ranks / (m->context * m->tensor * m->stages), m->context, m->tensor, m->stages,
             shards[m->shard]);
    return text;
}

static void equal_losses(struct trial like, const char *what, int first, int every)
{
    struct trial alone = trial_run(&like, 1, 1);
    for (int i = first; i < MESHES_N; i += every) {
        struct trial one = with_mesh(like, &meshes[i]), many = trial_run(&one, 1, meshes[i].ranks);
        double apart = trial_apart(&many, &alone), norms = 0;
        for (int step = 0; step < like.steps; step++)
            norms = fmax(norms, fabs(many.norm[step] / alone.norm[step] - 1));
        print_message("# %s, %s: losses of 20 steps differ by at most %.1e, norms by %.1e\n", what,
                      text_of(&meshes[i]), apart, norms);
        assert_true(apart < 2e-6);
        assert_true(norms < 2e-5);
    }
}

static void test_equal(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS_N; i++)
        equal_losses(trial_of_model(i), models[i].name, i % 2, i < 2 ? 1 : 3);
}

/* Two logits a position, which every rank of a group gathers. */
static void test_equal_qa(void **state)
{
    (void)state;
    struct trial like = trial_of_model(0);
    like.config.dims.task = MODEL_TASK_QA;
    for (int i = 0; i < MESHES_N; i += 2) {
        struct trial alone = trial_run(&like, 1, 1), one = with_mesh(like, &meshes[i]);
        struct trial many = trial_run(&one, 1, meshes[i].ranks);
        print_message("# questions, %s: %.1e\n", text_of(&meshes[i]), trial_apart(&many, &alone));
        assert_true(trial_apart(&many, &alone) < 2e-6);
    }
}

/* Attention within documents, which first keys cut: positions of whole samples on every rank. */
static void test_equal_documents(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = trial_of_model(i);
        like.config.masks_documents = true;
        equal_losses(like, models[i].name, i < 2 ? i : 6 + i % 2, i < 2 ? 3 : 4);
    }
}

static void test_equal_dropout(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS_N; i++) {
        struct trial like = trial_of_model(i);
        like.config.dropout = 0.1f;
        equal_losses(like, models[i].name, i, 3);
    }
}

static void test_equal_accumulation(void **state)
{
    (void)state;
    struct trial like = trial_of_model(0);
    like.config.batch_samples = 1;
    equal_losses(like, "gpt2, 6 to 12 micro-batches", 0, 3);
}

/* What is computed again asks the other ranks again: the same bits. */
static void test_recompute(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS_N; i++) {
        const struct mesh_row *mesh = &meshes[i % 2 ? MESH_ALL : MESH_ALONE];
        struct trial like = with_mesh(trial_of_model(i), mesh);
        like.config.dropout = 0.1f;
        like.steps = 3;
        struct trial want = trial_run(&like, 1, mesh->ranks);
        int64_t layers = like.config.dims.layers;
        for (int64_t how = 1; how <= MODEL_RECOMPUTE_BLOCK * layers; how += layers - 1) {
            like.config.recompute = model_recompute_nth(layers, how);
            struct trial got = trial_run(&like, 1, mesh->ranks);
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
            struct trial one = with_mesh(like, &meshes[mesh]);
            struct trial many = trial_run(&one, 1, meshes[mesh].ranks);
            double most = 0;
            assert_int_equal(many.elems, alone.elems);
            for (int64_t k = 0; k < alone.elems; k++)
                most = fmax(most, fabs((double)many.state[0][k] - (double)alone.state[0][k]));
            print_message("# %s, %s: gradients differ by at most %.1e of the norm\n",
                          models[i].name, text_of(&meshes[mesh]), most / alone.norm[0]);
            assert_true(most < 1e-6 * alone.norm[0]);
            trial_free(&many);
        }
        trial_free(&alone);
    }
}

/* The state of one mesh is that of another. */
static void test_state(void **state)
{
    (void)state;
    struct trial like = trial_of_model(1);
    like.takes_state = true;
    like.steps = 3;
    struct trial all = with_mesh(like, &meshes[MESH_ALL]), first = trial_run(&all, 1, 8);
    like.first_step = 3;
    for (int part = 0; part < TRIAL_PARTS; part++)
        like.load[part] = first.state[part];
    struct trial alone = trial_run(&like, 1, 1);
    for (int mesh = 0; mesh < MESHES_N; mesh++) {
        struct trial one = with_mesh(like, &meshes[mesh]);
        struct trial many = trial_run(&one, 1, meshes[mesh].ranks);
        assert_true(trial_apart(&many, &alone) < 1e-6);
        trial_free(&many);
    }
    like.steps = 0;
    struct trial same = with_mesh(like, &meshes[1]), back = trial_run(&same, 1, 4);
    for (int part = 0; part < TRIAL_PARTS; part++)
        assert_memory_equal(back.state[part], first.state[part],
                            (size_t)first.elems * sizeof(float));
    trial_free(&back);
    trial_free(&alone);
    trial_free(&first);
}

/* NaN in one rank's gradient: every rank has the same loss and norm, and none updates. */
static void test_nan(void **state)
{
    (void)state;
    struct trial like = with_mesh(trial_of_model(0), &meshes[MESH_TENSOR]);
    like.steps = 2;
    for (int rank = 0; rank < 4; rank++) {
        like.nan_step = 1;
        like.nan_rank = rank;
        struct trial got = trial_run(&like, 1, 4);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]) && isnan(got.norm[1]));
        assert_int_equal(got.step_st, ST_NOT_FINITE);
    }
}

/* A long sample: what a rank keeps of it is half, and so is nearly all of its memory. */
static void test_memory(void **state)
{
    (void)state;
    struct step_memory memory[2];
    for (int i = 0; i < 2; i++) {
        struct trial like = trial_of_model(1);
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

/* ---- logits ---- */

/* Every rank gets all logits, the same bits, whichever rank has the last token. */
static void test_logits(void **state)
{
    (void)state;
    static struct ask alone, many[8];
    for (int i = 0; i < MODELS_N; i++)
        for (int64_t n = 1; n <= SEQ_TOKENS; n += 5) {
            const struct mesh_row *mesh = &meshes[i * 3 % MESHES_N];
            size_t bytes = (size_t)models[i].vocab * sizeof(float);
            struct trial like = trial_of_model(i);
            alone = (struct ask){.config = like.config, .n = n};
            ranks_run(1, 1, ask_rank, &alone, sizeof alone);
            for (int rank = 0; rank < mesh->ranks; rank++)
                many[rank] = (struct ask){.config = with_mesh(like, mesh).config, .n = n};
            ranks_run(1, mesh->ranks, ask_rank, many, sizeof *many);
            for (int rank = 0; rank < mesh->ranks; rank++)
                assert_memory_equal(many[rank].logits, many[0].logits, bytes);
            for (int64_t k = 0; k < models[i].vocab; k++)
                assert_float_equal(many[0].logits[k], alone.logits[k], 1e-5f);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_memory),        cmocka_unit_test(test_equal),
    cmocka_unit_test(test_equal_qa),      cmocka_unit_test(test_equal_documents),
    cmocka_unit_test(test_equal_dropout), cmocka_unit_test(test_equal_accumulation),
    cmocka_unit_test(test_recompute),     cmocka_unit_test(test_gradients),
    cmocka_unit_test(test_state),         cmocka_unit_test(test_nan),
    cmocka_unit_test(test_logits)};
HARNESS_MAIN(tests)
