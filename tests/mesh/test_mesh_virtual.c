/* test_mesh_virtual — VIRTUAL_TP: losses, norms and the whole state are those of as many tensor
 * ranks, to the bit, on fewer ranks and on one, with every SHARD, wherever they are. */
#define RANKS_MAX 12
#include "mesh/ask.h"
#include "mesh/virtual.h"

/* On one, two and four tensor ranks, alone and in several groups, with each SHARD. */
static void same_everywhere(struct trial like, const struct trial *want)
{
    static const struct {
        int tensor;
        struct world world;
    } row[] = {{1, {1, 1}}, {1, {1, 2}}, {1, {2, 2}}, {2, {1, 2}},
               {2, {2, 1}}, {2, {2, 2}}, {4, {1, 4}}, {4, {2, 4}}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        like.config.axis_ranks[MESH_AXIS_TENSOR] = row[i].tensor;
        like.config.store.shard = i % 2 ? LAYOUT_SHARD_NONE : LAYOUT_SHARD_FULL;
        same(&like, want, row[i].world);
    }
}

static void test_models(void **state)
{
    (void)state;
    for (int model = 0; model < MODELS_N; model++) {
        struct trial like = trial_like(model, PARTS, 0), want = trial_run(&like, 1, PARTS);
        assert_true(isfinite(want.norm[1]) && want.norm[1] > 0);
        same_everywhere(trial_like(model, 1, PARTS), &want);
        trial_free(&want);
    }
}

/* What `like` computes with PARTS ranks of each group, and then with fewer, in other worlds. */
static void same_on_fewer(struct trial like)
{
    const int context = like.config.axis_ranks[MESH_AXIS_CONTEXT] > 1
                            ? like.config.axis_ranks[MESH_AXIS_CONTEXT]
                            : 1;
    like.config.axis_ranks[MESH_AXIS_TENSOR] = PARTS;
    struct trial want = trial_run(&like, 1, PARTS * context);
    like.config.tensor_parts = PARTS;
    for (int tensor = 1; tensor <= 2; tensor *= 2) {
        like.config.axis_ranks[MESH_AXIS_TENSOR] = tensor;
        same(&like, &want, (struct world){1, tensor * context});
        same(&like, &want, (struct world){3 - tensor, 2 * context});
    }
    trial_free(&want);
}

static void test_context(void **state)
{
    (void)state;
    for (int model = 0; model < MODELS_N; model++) {
        struct trial like = trial_like(model, 1, 0);
        like.config.axis_ranks[MESH_AXIS_CONTEXT] = 2;
        if (models[model].task == MODEL_TASK_LM)
            same_on_fewer(like);
    }
}

/* Every way of recomputing; shards of several micro-batches, in unequal runs; documents. */
static void test_ways(void **state)
{
    (void)state;
    for (int way = 0; way <= MODEL_RECOMPUTE_BLOCK; way++)
        for (int model = LLAMA_TWO; model <= NEOX; model += NEOX - LLAMA_TWO) {
            struct trial like = trial_like(model, 1, 0);
            like.config.recompute.way = (enum model_recompute)way;
            like.config.masks_documents = way % 2;
            same_on_fewer(like);
        }
    struct trial like = trial_like(GPT2, PARTS, 0);
    like.config.global_samples = 20;
    like.config.shards = 5;
    like.config.batch_samples = 2;
    struct trial want = trial_run(&like, 1, PARTS);
    like.config.tensor_parts = PARTS;
    like.config.axis_ranks[MESH_AXIS_TENSOR] = 1;
    same(&like, &want, (struct world){1, 3});
    like.config.axis_ranks[MESH_AXIS_TENSOR] = 2;
    same(&like, &want, (struct world){3, 2});
    trial_free(&want);
}

/* Numbers of parts that are no powers of two, on one rank; eight of them, on two ranks. */
static void test_numbers(void **state)
{
    static const int parts[] = {2, 3, 6, 8};
    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct trial like = trial_like(LLAMA_TWO, parts[i], 0);
        like.config.seq_tokens = 24;
        like.config.dims.context = 27;
        like.config.dims.heads = like.config.dims.ffn = 24;
        like.config.dims.kv_heads = parts[i] == 8 ? 4 : 3;
        like.config.dims.kv_heads = parts[i] == 2 ? 1 : like.config.dims.kv_heads;
        struct trial want = trial_run(&like, 1, parts[i]);
        like.config.tensor_parts = parts[i];
        like.config.axis_ranks[MESH_AXIS_TENSOR] = parts[i] == 8 ? 2 : 1;
        same(&like, &want, (struct world){1, parts[i] == 8 ? 2 : 1});
        trial_free(&want);
    }
}

/* A run goes on with another TP, from the state that rank 0 has read. */
static void test_goes_on(void **state)
{
    static const int tensor[] = {4, 1, 2, 4};
    (void)state;
    for (int model = 0; model < MODELS_N; model++) {
        struct trial like = trial_like(model, PARTS, 0);
        like.steps = 3;
        struct trial want = trial_run(&like, 1, PARTS), got = {.done = 0};
        like.steps = 1;
        like.config.tensor_parts = PARTS;
        for (int i = 0; i < 3; i++) {
            like.first_step = i;
            like.config.axis_ranks[MESH_AXIS_TENSOR] = tensor[i];
            like.config.store.shard = i % 2 ? LAYOUT_SHARD_FULL : LAYOUT_SHARD_NONE;
            got = trial_run(&like, 1, 4);
            assert_int_equal(got.done, 1);
            trial_free(&like);
            for (int part = 0; part < TRIAL_PARTS; part++)
                like.load[part] = like.state[part] = got.state[part];
            got.loss[2] = got.loss[0];
        }
        for (int part = 0; part < TRIAL_PARTS; part++)
            assert_memory_equal(got.state[part], want.state[part],
                                (size_t)want.elems * sizeof(float));
        assert_memory_equal(&got.loss[0], &want.loss[2], sizeof want.loss[2]);
        trial_free(&got);
        trial_free(&want);
    }
}

static void test_logits(void **state)
{
    static struct ask want[PARTS], got[2];
    (void)state;
    for (int model = 0; model < MODELS_N; model++) {
        if (models[model].task != MODEL_TASK_LM)
            continue;
        const size_t bytes = (size_t)models[model].vocab * sizeof(float);
        for (int rank = 0; rank < PARTS; rank++)
            want[rank] = (struct ask){.config = trial_like(model, PARTS, 0).config, .n = 5};
        ranks_run(1, PARTS, ask_rank, want, sizeof *want);
        for (int tensor = 1; tensor <= 2; tensor++) {
            for (int rank = 0; rank < tensor; rank++)
                got[rank] = (struct ask){.config = trial_like(model, tensor, PARTS).config, .n = 5};
            ranks_run(1, tensor, ask_rank, got, sizeof *got);
            for (int rank = 0; rank < tensor; rank++)
                assert_memory_equal(got[rank].logits, want[0].logits, bytes);
        }
    }
}

/* A gradient that is not finite, in a copy that the norm does not count, too: the first tensor of
 * the first block, or the last of the embedding, whichever it is there. */
static void test_nan(void **state)
{
    (void)state;
    for (int model = GPT2; model <= LLAMA_TWO; model += LLAMA_TWO - GPT2) {
        struct trial like = trial_like(model, 1, PARTS);
        like.nan_step = 1;
        like.nan_rank = 0;
        struct trial got = trial_run(&like, 1, 1);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]));
        assert_int_equal(got.step_st, ST_NOT_FINITE);
        trial_free(&got);
    }
}

/* That the tests above can fail: the number of parts is in the bits. */
static void test_without(void **state)
{
    (void)state;
    for (int model = 0; model < MODELS_N; model++) {
        struct trial like = trial_like(model, 1, PARTS), parts = trial_run(&like, 1, 1);
        const size_t bytes = (size_t)parts.elems * sizeof(float);
        for (int n = 1; n <= 2; n++) {
            like.config.tensor_parts = n;
            struct trial other = trial_run(&like, 1, 1);
            assert_memory_not_equal(other.state[0], parts.state[0], bytes);
            assert_true(trial_apart(&other, &parts) < 1e-5);
            trial_free(&other);
        }
        trial_free(&parts);
    }
}

static void refused(const struct step_config *like, const char *why)
{
    struct step_memory memory;
    const struct step_place place = {.ranks = 2};
    assert_int_equal(step_plan(like, &place, &memory), ST_BAD_SETTING);
    if (!strstr(status_message(), why))
        fail_msg("'%s' is not in '%s'", why, status_message());
}

static void test_refused(void **state)
{
    (void)state;
    struct step_config c = trial_like(GPT2, 2, 3).config;
    refused(&c, "VIRTUAL_TP=3 does not go with TP=2");
    c.tensor_parts = 6;
    refused(&c, "VIRTUAL_TP=6 does not go with TP=2");
    c.tensor_parts = 1;
    refused(&c, "VIRTUAL_TP=1 does not go with TP=2");
    c.tensor_parts = 8;
    refused(&c, "VIRTUAL_TP=8 cuts a model as TP=8 does: TP=8 does not divide HEADS=4");
    c.tensor_parts = 4;
    c.seq_tokens = 14;
    refused(&c, "VIRTUAL_TP=4 cuts a model as TP=4 does: TP=4 does not divide SEQ_LEN=14");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_models),  cmocka_unit_test(test_context), cmocka_unit_test(test_ways),
    cmocka_unit_test(test_numbers), cmocka_unit_test(test_goes_on), cmocka_unit_test(test_logits),
    cmocka_unit_test(test_nan),     cmocka_unit_test(test_without), cmocka_unit_test(test_refused)};

HARNESS_MAIN(tests)
