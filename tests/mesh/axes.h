/* axes — models that ranks along the axes of a mesh train, compared with one rank: losses of 20
 * steps, RECOMPUTE, gradients, state, a number that is not finite, logits. */
#ifndef CONVOY_TESTS_AXES_H
#define CONVOY_TESTS_AXES_H

#include "mesh/ask.h"
#include "mesh/models.h"
#include "mesh/trial.h"

#define AXES_SEQ_TOKENS 16
#define AXES_MODELS_N 4

/* Key heads are more than, as many as and fewer than ranks; the vocabulary is cut unevenly. */
static const struct model_dims axes_models[AXES_MODELS_N] = {
    {.name = "gpt2", .layers = 3, .heads = 4, .embed = 24, .vocab = 211},
    {.name = "llama, 4 heads, 2 key heads",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 3,
     .heads = 4,
     .kv_heads = 2,
     .embed = 32,
     .ffn = 44,
     .vocab = 211,
     .features = {MODELS_LLAMA}},
    {.name = "qwen3, 4 heads, 1 key head",
     .arch = MODEL_ARCH_QWEN3,
     .layers = 2,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 6,
     .embed = 20,
     .ffn = 12,
     .vocab = 37,
     .features = {MODELS_LLAMA, .has_qk_norm = true, .is_untied = true}},
    {.name = "neox",
     .arch = MODEL_ARCH_NEOX,
     .layers = 3,
     .heads = 4,
     .embed = 32,
     .vocab = 211,
     .features = {.position = MODEL_POSITION_ROPE,
                  .rope.theta = 10000,
                  .rope.fraction = 0.25,
                  .mlp = MODEL_MLP_GELU_ERF,
                  .is_parallel = true,
                  .is_untied = true}},
};

struct axes_mesh {
    int ranks, context, tensor, stages;
    enum layout_shard shard;
};

static inline struct trial axes_trial(const struct model_dims *dims)
{
    struct trial like = trial_of(MODEL_TASK_LM, 12, AXES_SEQ_TOKENS);
    like.config.dims = *dims;
    like.config.dims.context = AXES_SEQ_TOKENS + 3;
    like.config.batch_samples = 3;
    like.lr = 3e-4;
    like.steps = 20;
    like.reads_state = false;
    return like;
}

static inline struct trial axes_with_mesh(struct trial like, const struct axes_mesh *mesh)
{
    like.config.axis_ranks[MESH_AXIS_CONTEXT] = mesh->context;
    like.config.axis_ranks[MESH_AXIS_TENSOR] = mesh->tensor;
    like.config.axis_ranks[MESH_AXIS_PIPELINE] = mesh->stages;
    like.config.store.shard = mesh->shard;
    return like;
}

static inline struct trial axes_run(const struct trial *like, const struct axes_mesh *mesh)
{
    struct trial one = axes_with_mesh(*like, mesh);
    return trial_run(&one, 1, mesh->ranks);
}

static inline const char *axes_text(const struct axes_mesh *m)
{
    static const char *const shards[] = {"none", "optimizer", "gradients", "full"};
    static char text[96];
    snprintf(text, sizeof text, "data %d x CP=%d x TP=%d x PP=%d, SHARD=%s",
             m->ranks / (m->context * m->tensor * m->stages), m->context, m->tensor, m->stages,
             shards[m->shard]);
    return text;
}

/* The meshes of a test. Arrays have a mesh for each model. */
struct axes {
    int meshes_n;
    const struct axes_mesh *meshes;
    int recompute_meshes[AXES_MODELS_N], logits_meshes[AXES_MODELS_N];
    int save_mesh; /* whose state the other meshes read; meshes[1] writes it back */
    int nan_mesh;  /* of four ranks */
};

/* Compares the losses and norms of one rank with those of meshes first, first + every … */
static inline void axes_equal_losses(struct trial like, const char *what,
                                     const struct axes_mesh *meshes, int n, int first, int every)
{
    struct trial alone = trial_run(&like, 1, 1);
    for (int i = first; i < n; i += every) {
        struct trial many = axes_run(&like, &meshes[i]);
        double apart = trial_apart(&many, &alone), norms = 0;
        for (int step = 0; step < like.steps; step++)
            norms = fmax(norms, fabs(many.norm[step] / alone.norm[step] - 1));
        print_message("# %s, %s: losses of 20 steps differ by at most %.1e, norms by %.1e\n", what,
                      axes_text(&meshes[i]), apart, norms);
        assert_true(apart < 2e-6);
        assert_true(norms < 2e-5);
    }
}

/* Every RECOMPUTE, for which ranks exchange rows again, has the same bits. */
static inline void axes_check_recompute(const struct axes *a)
{
    for (int i = 0; i < AXES_MODELS_N; i++) {
        const struct axes_mesh *mesh = &a->meshes[a->recompute_meshes[i]];
        struct trial like = axes_trial(&axes_models[i]);
        like.config.dropout = 0.1f;
        like.steps = 3;
        struct trial want = axes_run(&like, mesh);
        int64_t layers = like.config.dims.layers;
        for (int64_t how = 1; how <= MODEL_RECOMPUTE_BLOCK * layers; how += layers - 1) {
            like.config.recompute = model_recompute_nth(layers, how);
            struct trial got = axes_run(&like, mesh);
            trial_same(&got, &want, axes_models[i].name);
        }
    }
}

/* One step of SGD without clipping changes parameters by their gradient: every parameter of the
 * whole model, read through rank 0. */
static inline void axes_check_gradients(const struct axes *a)
{
    for (int i = 0; i < AXES_MODELS_N; i++) {
        struct trial like = axes_trial(&axes_models[i]);
        like.reads_state = true;
        like.steps = 1;
        like.lr = 1;
        like.config.optim =
            (struct optim_config){.kind = OPTIM_KIND_SGD, .grad_clip = 0, .momentum = 0};
        struct trial alone = trial_run(&like, 1, 1);
        for (int mesh = 0; mesh < a->meshes_n; mesh++) {
            struct trial many = axes_run(&like, &a->meshes[mesh]);
            double most = 0;
            assert_int_equal(many.elems, alone.elems);
            for (int64_t k = 0; k < alone.elems; k++)
                most = fmax(most, fabs((double)many.state[0][k] - (double)alone.state[0][k]));
            print_message("# %s, %s: gradients differ by at most %.1e of the norm\n",
                          axes_models[i].name, axes_text(&a->meshes[mesh]), most / alone.norm[0]);
            assert_true(most < 1e-6 * alone.norm[0]);
            trial_free(&many);
        }
        trial_free(&alone);
    }
}

/* Reads the state of one mesh, loads it into one rank and into every mesh, and reads it again. */
static inline void axes_check_state(const struct axes *a)
{
    struct trial like = axes_trial(&axes_models[1]);
    like.reads_state = true;
    like.steps = 3;
    struct trial first = axes_run(&like, &a->meshes[a->save_mesh]);
    like.first_step = 3;
    trial_load_of(&like, &first);
    struct trial alone = trial_run(&like, 1, 1);
    for (int mesh = 0; mesh < a->meshes_n; mesh++) {
        struct trial many = axes_run(&like, &a->meshes[mesh]);
        assert_true(trial_apart(&many, &alone) < 1e-6);
        trial_free(&many);
    }
    like.steps = 0;
    struct trial back = axes_run(&like, &a->meshes[1]);
    trial_same_state(&back, &first, "read again");
    trial_free(&back);
    trial_free(&alone);
    trial_free(&first);
}

/* With NaN in one rank's gradient every rank has the same loss and norm, and none updates. */
static inline void axes_check_nan(const struct axes *a)
{
    struct trial like = axes_with_mesh(axes_trial(&axes_models[0]), &a->meshes[a->nan_mesh]);
    like.steps = 2;
    for (int rank = 0; rank < 4; rank++) {
        like.nan_step = 1;
        like.nan_rank = rank;
        struct trial got = trial_run(&like, 1, 4);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]) && isnan(got.norm[1]));
        assert_int_equal(got.step_st, ST_NOT_FINITE);
    }
}

/* Every rank gets all logits, the same bits, after few tokens too, whichever rank has the last. */
static inline void axes_check_logits(const struct axes *a)
{
    static struct ask alone, many[8];
    for (int i = 0; i < AXES_MODELS_N; i++)
        for (int64_t n = 1; n <= AXES_SEQ_TOKENS; n += 5) {
            const struct axes_mesh *mesh = &a->meshes[a->logits_meshes[i]];
            size_t bytes = (size_t)axes_models[i].vocab * sizeof(float);
            struct trial like = axes_trial(&axes_models[i]);
            alone = (struct ask){.config = like.config, .n = n};
            ranks_run(1, 1, ask_rank, &alone, sizeof alone);
            for (int rank = 0; rank < mesh->ranks; rank++)
                many[rank] = (struct ask){.config = axes_with_mesh(like, mesh).config, .n = n};
            ranks_run(1, mesh->ranks, ask_rank, many, sizeof *many);
            for (int rank = 0; rank < mesh->ranks; rank++)
                assert_memory_equal(many[rank].logits, many[0].logits, bytes);
            for (int64_t k = 0; k < axes_models[i].vocab; k++)
                assert_float_equal(many[0].logits[k], alone.logits[k], 1e-5f);
        }
}

#define AXES_TEST(name) \
    TEST(test_##name) { axes_check_##name(&axes); }
/* AXES_TESTS — defines the tests that every program of axes has, of `static const struct axes
 * axes`. */
#define AXES_TESTS       \
    AXES_TEST(recompute) \
    AXES_TEST(gradients) \
    AXES_TEST(state)     \
    AXES_TEST(nan)       \
    AXES_TEST(logits)

#endif
