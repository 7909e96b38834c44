/* Models and samples divided over ranks (TP, CP, PP, and several) on the CUDA device without a GPU
 * (guarded.h): the losses of one rank, within rounding, in fp32, bf16 and fp16. Ranks are
 * threads. */
#include "mesh/trial.h"

#include "kernel_test.h"
#include "tests/cuda/rank_devices.h"

#define ROPE .position = MODEL_POSITION_ROPE, .rope.theta = 10000
/* Few and small, for the emulation; the tied one's vocabulary is cut unevenly. */
#define GPT2(n) .name = n, .layers = 2, .heads = 2, .embed = 16, .vocab = 47, .context = 8
#define LLAMA(n)                                                                                \
    .name = n, .arch = MODEL_ARCH_LLAMA, .layers = 2, .heads = 4, .kv_heads = 1, .head_dim = 8, \
    .embed = 16, .ffn = 24, .vocab = 47, .context = 8,                                          \
    .features = {ROPE,                                                                          \
                 .rope.fraction = 1,                                                            \
                 .norm = MODEL_NORM_RMS,                                                        \
                 .mlp = MODEL_MLP_SWIGLU,                                                       \
                 .bias = MODEL_BIAS_NONE,                                                       \
                 .is_untied = true}
#define ADAPTER .adapter = {.r = 4, .alpha = 8, .targets = MODEL_TARGETS_ALL}
static const struct model_dims models[] = {
    {GPT2("gpt2")},
    {LLAMA("llama")},
    {GPT2("gpt2 with an adapter"), ADAPTER},
    {LLAMA("llama with an adapter"), ADAPTER},
    {.name = "neox",
     .arch = MODEL_ARCH_NEOX,
     .layers = 2,
     .heads = 2,
     .embed = 16,
     .vocab = 48,
     .context = 8,
     .features = {ROPE, .rope.fraction = 0.5, .mlp = MODEL_MLP_GELU_ERF, .is_parallel = true,
                  .is_untied = true}},
};
#define MODELS_N ((int)(sizeof models / sizeof *models))

static struct trial tiny(int model, enum dtype dtype)
{
    struct trial like = trial_of(MODEL_TASK_LM, 2, 8);
    like.steps = 3; /* from the third on as CUDA graphs, where work is recorded */
    like.reads_state = false;
    like.config.dims = models[model];
    like.config.store.dtype = dtype;
    like.config.dropout = 0.1f;
    return like;
}

/* Stages change no arithmetic, but for the sum of a tied embedding's two gradients. With TP and CP,
 * partial sums are added, in 16 bits after they are rounded. */
static double most_apart(int model, enum dtype dtype, int tensor, int context)
{
    if (tensor * context == 1 && models[model].features.is_untied)
        return 0;
    return dtype == DTYPE_F32 ? 1e-6 : 3e-3;
}

static void equals_one(int model, enum dtype dtype, int tensor, int context, int stages)
{
    struct trial like = tiny(model, dtype), alone = trial_run(&like, 1, 1);
    like.config.axis_ranks[MESH_AXIS_TENSOR] = tensor;
    like.config.axis_ranks[MESH_AXIS_CONTEXT] = context;
    like.config.axis_ranks[MESH_AXIS_PIPELINE] = stages;
    struct trial divided = trial_run(&like, 1, tensor * context * stages);
    double apart = trial_apart(&divided, &alone);
    print_message("# %s, dtype %d, TP=%d CP=%d PP=%d: losses differ by %.1e\n", models[model].name,
                  (int)dtype, tensor, context, stages, apart);
    assert_true(isfinite(divided.norm[0]) && apart <= most_apart(model, dtype, tensor, context));
    assert_true(tensor * context == 1 || divided.memory.activations < alone.memory.activations);
    assert_true(tensor * stages == 1 || divided.memory.store.params < alone.memory.store.params);
    trial_free(&divided);
    trial_free(&alone);
}

TEST(tensor_groups_have_the_losses_of_one)
{
    for (int model = 0; model < MODELS_N; model++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
            equals_one(model, (enum dtype)dtype, 2, 1, 1);
}

TEST(stages_have_the_losses_of_one)
{
    for (int model = 0; model < MODELS_N; model++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
            equals_one(model, (enum dtype)dtype, 1, 1, 2);
}

TEST(both_have_the_losses_of_one)
{
    equals_one(0, DTYPE_F32, 2, 1, 2);
    equals_one(1, DTYPE_BF16, 2, 1, 2);
    equals_one(3, DTYPE_F16, 2, 1, 2);
    equals_one(4, DTYPE_F16, 2, 1, 2);
}

TEST(context_groups_have_the_losses_of_one)
{
    for (int model = 0; model < MODELS_N; model++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
            equals_one(model, (enum dtype)dtype, 1, 2, 1);
    equals_one(0, DTYPE_F16, 2, 2, 1);
    equals_one(1, DTYPE_F32, 1, 2, 2);
}

/* How often each rank's own thread waited for a stream, up to the end of each step. */
static int syncs[2][2];
static void count_syncs(const struct ranks_one *one, int step)
{
    if (step < 2)
        syncs[one->rank][step] = runtime_mine.syncs;
}

/* The waits of a step of two stages with so many micro-batches. */
static int syncs_of_step(int rank, int64_t micros)
{
    struct trial like = tiny(0, DTYPE_F32);
    like.config.axis_ranks[MESH_AXIS_PIPELINE] = 2;
    like.config.global_samples = micros;
    like.stepped = count_syncs;
    struct trial divided = trial_run(&like, 1, 2);
    trial_free(&divided);
    return syncs[rank][1] - syncs[rank][0];
}

/* More messages, as many waits of the thread that computes: they wait for events. */
TEST(messages_do_not_wait_for_the_stream)
{
    for (int rank = 0; rank < 2; rank++) {
        int few = syncs_of_step(rank, 2), many = syncs_of_step(rank, 6);
        print_message("# rank %d: %d waits with 2 micro-batches, %d with 6\n", rank, few, many);
        assert_int_equal(few, many);
    }
}

int main(void)
{
    harness_quiet();
    rank_devices_open();
    int failed = harness_run_all(__FILE__, NULL, NULL);
    rank_devices_close();
    return failed;
}
