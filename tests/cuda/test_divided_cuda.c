/* Models divided over ranks (TP, PP, and both) on the CUDA device without a GPU (guarded.h): the
 * losses of one rank, within rounding, in fp32, bf16 and fp16. Ranks are threads. */
#ifndef CONVOY_CUDA
#include "tests/cuda/absent.h"
#else
#include "mesh/trial.h"

#include "kernel_test.h"
#include "tests/cuda/guarded.h"

static struct dev *devs[RANKS_MAX];
static struct dev *dev_of(int rank)
{
    if (!devs[rank])
        devs[rank] = open_device();
    return devs[rank];
}

#define ROPE .position = MODEL_POSITION_ROPE, .rope.theta = 10000
/* Few and small, for the emulation; the tied one's vocabulary is cut unevenly. */
static const struct model_dims models[] = {
    {.name = "gpt2", .layers = 2, .heads = 2, .embed = 16, .vocab = 47, .context = 8},
    {.name = "llama",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 2,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 8,
     .embed = 16,
     .ffn = 24,
     .vocab = 47,
     .context = 8,
     .parts = {ROPE, .rope.fraction = 1, .norm = MODEL_NORM_RMS, .mlp = MODEL_MLP_SWIGLU,
               .bias = MODEL_BIAS_NONE, .is_untied = true}},
    {.name = "neox",
     .arch = MODEL_ARCH_NEOX,
     .layers = 2,
     .heads = 2,
     .embed = 16,
     .vocab = 48,
     .context = 8,
     .parts = {ROPE, .rope.fraction = 0.5, .mlp = MODEL_MLP_GELU_ERF, .is_parallel = true,
               .is_untied = true}},
};
#define MODELS_N ((int)(sizeof models / sizeof *models))

static struct trial tiny(int model, enum dtype dtype)
{
    struct trial like = trial_of(MODEL_TASK_LM, 2, 8);
    like.steps = 3; /* from the third on as CUDA graphs, where work is gathered */
    like.takes_state = false;
    like.config.dims = models[model];
    like.config.store.dtype = dtype;
    like.config.dropout = 0.1f;
    return like;
}

/* Stages change no arithmetic, but for the sum of a tied embedding's two gradients. With TP,
 * partial sums are added, in 16 bits after they are rounded. */
static double most_apart(int model, enum dtype dtype, int tensor)
{
    if (tensor == 1 && models[model].parts.is_untied)
        return 0;
    return dtype == DTYPE_F32 ? 1e-6 : 3e-3;
}

static void equals_one(int model, enum dtype dtype, int tensor, int stages)
{
    struct trial like = tiny(model, dtype), alone = trial_run(&like, 1, 1);
    like.config.axis_ranks[MESH_AXIS_TENSOR] = tensor;
    like.config.axis_ranks[MESH_AXIS_PIPELINE] = stages;
    struct trial divided = trial_run(&like, 1, tensor * stages);
    double apart = trial_apart(&divided, &alone);
    print_message("# %s, dtype %d, TP=%d PP=%d: losses differ by %.1e\n", models[model].name,
                  (int)dtype, tensor, stages, apart);
    assert_true(isfinite(divided.norm[0]) && apart <= most_apart(model, dtype, tensor));
    assert_true(divided.memory.store.params < alone.memory.store.params);
    trial_free(&divided);
    trial_free(&alone);
}

static void tensor_groups_have_the_losses_of_one(void **state)
{
    (void)state;
    for (int model = 0; model < MODELS_N; model++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
            equals_one(model, (enum dtype)dtype, 2, 1);
}

static void stages_have_the_losses_of_one(void **state)
{
    (void)state;
    for (int model = 0; model < MODELS_N; model++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
            equals_one(model, (enum dtype)dtype, 1, 2);
}

static void both_have_the_losses_of_one(void **state)
{
    (void)state;
    equals_one(0, DTYPE_F32, 2, 2);
    equals_one(1, DTYPE_BF16, 2, 2);
    equals_one(2, DTYPE_F16, 2, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tensor_groups_have_the_losses_of_one),
    cmocka_unit_test(stages_have_the_losses_of_one),
    cmocka_unit_test(both_have_the_losses_of_one),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    ranks_own_dev = dev_of;
    open_once(dev_of(0));
    int failed = cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
    for (int i = 0; i < RANKS_MAX; i++)
        dev_close(devs[i]);
    return failed;
}
#endif
