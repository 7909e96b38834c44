/* context_axis — the ranks of a context group compute what one rank computes: losses and
 * summed gradients of all architectures, two micro-batches; with dropout; with a tensor group
 * across; for each RECOMPUTE the same bits (passes.h). */
#define PASSES_T 16
#include "mesh/passes.h"

/* Each rank has its share of what is kept. What is scratch grows by keys and values of whole
 * samples alone, twice. */
static void check_memory(const struct passes *got, const struct passes *want)
{
    double kept = (double)got->acts_bytes * got->context / (double)want->acts_bytes;
    int64_t kv = 2 * model_kv_heads(&want->whole) * model_head_dim(&want->whole) *
                 (got->tensor > 1 ? 1 : 2) * N * (int64_t)sizeof(float);
    print_message("# activations of a rank: %.3f of an equal part; scratch %zu, was %zu\n", kept,
                  got->scratch_bytes, want->scratch_bytes);
    assert_true(kept < 1.05); /* tensors begin at whole lines of a cache */
    assert_true((int64_t)got->scratch_bytes < (int64_t)want->scratch_bytes + kv);
}

/* tensor: ranks of the tensor groups across. */
static void check_model(struct model_dims whole, float dropout, int tensor, int most)
{
    struct passes how = {.whole = whole, .dropout = dropout};
    struct passes *want = run(how);
    how.tensor = tensor;
    for (how.context = 2; how.context <= most; how.context *= 2) {
        struct passes *got = run(how);
        check_near(got, want);
        check_memory(got, want);
        check_ways(how, got);
        run_free(got);
    }
    run_free(want);
}

TEST(test_gpt2)
{
    check_model(dims_of(MODEL_ARCH_GPT2, 0), 0, 1, 4);
    check_model(dims_of(MODEL_ARCH_GPT2, 0), 0.2f, 1, 4);
}

TEST(test_llama)
{
    check_model(dims_of(MODEL_ARCH_LLAMA, 1), 0, 1, 4);
    check_model(dims_of(MODEL_ARCH_LLAMA, 2), 0.2f, 1, 4);
}

TEST(test_qwen)
{
    check_model(dims_of(MODEL_ARCH_QWEN2, 2), 0, 1, 2);
    check_model(dims_of(MODEL_ARCH_QWEN3, 2), 0.2f, 1, 4);
}

/* Rows of q, k and v by heads. */
TEST(test_neox)
{
    check_model(dims_of(MODEL_ARCH_NEOX, 0), 0, 1, 4);
    check_model(dims_of(MODEL_ARCH_NEOX, 0), 0.2f, 1, 2);
}

TEST(test_qa)
{
    struct model_dims qa = dims_of(MODEL_ARCH_GPT2, 0);
    qa.task = MODEL_TASK_QA;
    check_model(qa, 0, 1, 2);
    check_model(qa, 0.2f, 2, 2);
}

/* Own rows of a tensor group then begin anywhere in the runs of positions. */
TEST(test_with_tensor)
{
    check_model(dims_of(MODEL_ARCH_GPT2, 0), 0.2f, 2, 4);
    check_model(dims_of(MODEL_ARCH_LLAMA, 2), 0.2f, 4, 2);
    check_model(dims_of(MODEL_ARCH_NEOX, 0), 0, 2, 2);
}

TEST(test_eval)
{
    struct passes how = {.whole = dims_of(MODEL_ARCH_LLAMA, 2), .dropout = 0.2f, .is_eval = true};
    struct passes *want = run(how);
    how.context = 4;
    struct passes *got = run(how);
    check_near(got, want);
    run_free(got);
    run_free(want);
}

TEST(test_fast_kernels)
{
    is_fast = true;
    check_model(dims_of(MODEL_ARCH_GPT2, 0), 0.2f, 1, 2);
    check_model(dims_of(MODEL_ARCH_QWEN3, 2), 0.2f, 1, 4);
    check_model(dims_of(MODEL_ARCH_NEOX, 0), 0, 1, 2);
    is_fast = false;
}

/* Samples that are not equal runs, or shares too small to exchange. */
TEST(test_refused)
{
    struct model_dims whole = dims_of(MODEL_ARCH_GPT2, 0), dims;
    struct model_shard rank = {.context_ranks = 4};
    struct arena acts, scratch;
    struct model_acts *plan = NULL;
    int64_t t;
    assert_int_equal(model_shard_tokens(20, 4, &t), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "SEQ_LEN=20 is not a multiple of 2 x CP=4"));
    assert_int_equal(model_shard_tokens(24, 4, &t), ST_OK);
    assert_int_equal(t, 6);
    whole.task = MODEL_TASK_QA;
    assert_int_equal(model_shard_dims(&whole, &rank, &dims), ST_OK);
    arena_init(&acts, "acts", NULL, 0);
    arena_init(&scratch, "scratch", NULL, 0);
    assert_int_equal(model_plan(&dims, 1, 4, (struct model_recomputed){0}, true, DTYPE_F32, &acts,
                                &scratch, &plan),
                     ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "CP=4 divides SEQ_LEN=16 into parts of 4 rows of 2"));
}

/* The runs cover the positions, and the pairs of a query and a key that it sees are as many for
 * each rank. */
TEST(test_runs)
{
    for (int ranks = 1; ranks <= 8; ranks++) {
        int64_t seen[2 * 8 * 3] = {0}, pairs[8] = {0};
        for (int rank = 0; rank < ranks; rank++) {
            struct attention_runs own = model_shard_runs(rank, ranks, 2 * ranks * 3);
            for (int64_t row = 0; row < attention_rows(&own, 0); row++) {
                seen[attention_position(&own, row)]++;
                pairs[rank] += attention_position(&own, row) + 1;
            }
        }
        for (int i = 0; i < 2 * ranks * 3; i++)
            assert_int_equal(seen[i], 1);
        for (int rank = 1; rank < ranks; rank++)
            assert_int_equal(pairs[rank], pairs[0]);
    }
}

HARNESS_RUN_ALL()
