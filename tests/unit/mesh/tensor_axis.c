/* tensor_axis — the ranks of a tensor group compute what one rank computes: losses and
 * gathered gradients of all architectures, two micro-batches; with dropout; for each RECOMPUTE the
 * same bits (passes.h). */
#define PASSES_T 12
#include "mesh/passes.h"

static void check_model(struct model_dims whole, float dropout)
{
    struct passes how = {.whole = whole, .dropout = dropout};
    struct passes *want = run(how);
    for (how.tensor = 2; how.tensor <= 4; how.tensor *= 2) {
        struct passes *got = run(how);
        check_near(got, want);
        check_ways(how, got);
        run_free(got);
    }
    run_free(want);
}

TEST(test_gpt2)
{
    check_model(dims_of(MODEL_ARCH_GPT2, 0), 0);
    check_model(dims_of(MODEL_ARCH_GPT2, 0), 0.2f);
}

/* Key heads: as many as query heads, one for several of them, fewer than ranks. */
TEST(test_llama)
{
    for (int64_t kv = 1; kv <= 8; kv *= 2)
        check_model(dims_of(MODEL_ARCH_LLAMA, kv), 0);
    check_model(dims_of(MODEL_ARCH_LLAMA, 2), 0.2f);
}

TEST(test_qwen)
{
    check_model(dims_of(MODEL_ARCH_QWEN2, 2), 0);
    check_model(dims_of(MODEL_ARCH_QWEN3, 4), 0);
    check_model(dims_of(MODEL_ARCH_QWEN3, 2), 0.2f);
}

/* Parallel residuals, and serial ones as gpt-neox-2.7b has. */
TEST(test_neox)
{
    struct model_dims serial = dims_of(MODEL_ARCH_NEOX, 0);
    serial.features.is_parallel = false;
    serial.features.mlp = MODEL_MLP_GELU_TANH;
    check_model(dims_of(MODEL_ARCH_NEOX, 0), 0);
    check_model(dims_of(MODEL_ARCH_NEOX, 0), 0.2f);
    check_model(serial, 0.2f);
}

TEST(test_qa)
{
    struct model_dims qa = dims_of(MODEL_ARCH_GPT2, 0);
    qa.task = MODEL_TASK_QA;
    check_model(qa, 0);
    check_model(qa, 0.2f);
}

/* Without gradients: dropout is off, nothing is kept. */
TEST(test_eval)
{
    struct passes how = {.whole = dims_of(MODEL_ARCH_LLAMA, 2), .dropout = 0.2f, .is_eval = true};
    struct passes *want = run(how);
    how.tensor = 4;
    struct passes *got = run(how);
    check_near(got, want);
    run_free(got);
    run_free(want);
}

TEST(test_fast_kernels)
{
    is_fast = true;
    check_model(dims_of(MODEL_ARCH_GPT2, 0), 0.2f);
    check_model(dims_of(MODEL_ARCH_QWEN3, 2), 0.2f);
    check_model(dims_of(MODEL_ARCH_NEOX, 0), 0);
    is_fast = false;
}

HARNESS_RUN_ALL()
