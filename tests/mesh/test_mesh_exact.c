/* test_mesh_exact — EXACT=layout: losses, norms and the whole state have the same bits on any
 * number of ranks, nodes and stages, with every SHARD and way of recomputing, whether a shard is
 * one micro-batch or several. */
#include "mesh/trial.h"

#include "architectures.h"
#include "model/model.h"

static const struct {
    int nodes, locals;
} worlds[] = {{1, 1}, {1, 2}, {2, 1}, {3, 1}, {1, 3}, {2, 2}, {4, 1}, {2, 3}, {3, 2}, {6, 1}};
#define WORLDS (int)(sizeof worlds / sizeof *worlds)

static struct trial exact_of(enum model_task task, int shards)
{
    struct trial like = trial_of(task, 12, 8);
    like.steps = 3;
    like.config.shards = shards;
    like.config.dropout = 0.1f;
    return like;
}

/* want: on one rank, replicated. */
static void same_in_world(struct trial like, const struct trial *want, int world)
{
    char what[64];
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        like.config.store.shard = (enum layout_shard)shard;
        snprintf(what, sizeof what, "%d x %d ranks, shard %d, %d virtual shards",
                 worlds[world].nodes, worlds[world].locals, shard, like.config.shards);
        struct trial got = trial_run(&like, worlds[world].nodes, worlds[world].locals);
        trial_same(&got, want, what);
        trial_free(&got);
    }
}

static void same_everywhere(struct trial like)
{
    struct trial want = trial_run(&like, 1, 1);
    assert_true(isfinite(want.loss[like.steps - 1]));
    for (int world = 0; world < WORLDS; world++)
        same_in_world(like, &want, world);
    trial_free(&want);
}

/* Shards of one micro-batch, of two; buckets of a unit, and of all. */
TEST(test_ranks)
{
    struct trial like = exact_of(MODEL_TASK_LM, 12);
    same_everywhere(like);
    like.config.store.bucket_elems_min = 0;
    like.config.shards = 6;
    same_everywhere(like);
    like.config.global_samples = 14; /* of seven shards ranks have unequal numbers */
    like.config.shards = 7;
    same_everywhere(like);
    like.config.global_samples = 12;
    like.config.shards = 6;
    like.config.batch_samples = 2;
    same_everywhere(like);
}

TEST(test_questions) { same_everywhere(exact_of(MODEL_TASK_QA, 12)); }

/* Fused, packed and untied tensors. */
TEST(test_architectures)
{
    for (int i = 0; i < ARCHITECTURES_N; i++) {
        struct trial like = exact_of(MODEL_TASK_LM, 12);
        like.config.dims = architectures[i];
        like.config.dims.context = 11;
        like.config.dims.vocab = 211;
        struct trial want = trial_run(&like, 1, 1);
        same_in_world(like, &want, 4);
        same_in_world(like, &want, 6);
        trial_free(&want);
    }
}

TEST(test_optimizers)
{
    static const enum optim_kind kinds[] = {OPTIM_KIND_SGD, OPTIM_KIND_MUON};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct trial like = exact_of(MODEL_TASK_LM, 6);
        like.config.optim.kind = kinds[i];
        like.config.optim.momentum = 0.9;
        struct trial want = trial_run(&like, 1, 1);
        same_in_world(like, &want, 4);
        same_in_world(like, &want, 8);
        trial_free(&want);
    }
}

TEST(test_recompute)
{
    struct trial like = exact_of(MODEL_TASK_LM, 6), want = trial_run(&like, 1, 1);
    for (int way = 0; way <= MODEL_RECOMPUTE_BLOCK; way++) {
        like.config.recompute.way = (enum model_recompute)way;
        same_in_world(like, &want, 1);
    }
    trial_free(&want);
}

/* Stages of a model whose embedding and output layer are two tensors. */
TEST(test_stages)
{
    struct trial like = exact_of(MODEL_TASK_LM, 6);
    like.config.dims.features.is_untied = true;
    like.config.dims.layers = 4;
    struct trial want = trial_run(&like, 1, 1);
    for (int chunks = 1; chunks <= 2; chunks++) {
        like.config.axis_ranks[MESH_AXIS_PIPELINE] = 2;
        like.config.pipe_chunks = chunks;
        same_in_world(like, &want, 1); /* one pipeline */
        same_in_world(like, &want, 8); /* three */
    }
    trial_free(&want);
}

/* A gradient that is not finite anywhere stops the step everywhere. */
TEST(test_nan)
{
    for (int world = 0; world < WORLDS; world += 4) {
        struct trial like = exact_of(MODEL_TASK_LM, 12);
        like.nan_step = 1;
        like.nan_rank = worlds[world].nodes * worlds[world].locals - 1;
        struct trial got = trial_run(&like, worlds[world].nodes, worlds[world].locals);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]) && isfinite(got.loss[2]));
        trial_free(&got);
    }
}

/* That the tests above can fail: without virtual shards three ranks round otherwise than one. And
 * the order of shards is close to that of ranks. */
TEST(test_without)
{
    struct trial like = exact_of(MODEL_TASK_LM, 12), exact = trial_run(&like, 1, 1);
    like.config.shards = 0;
    struct trial one = trial_run(&like, 1, 1), three = trial_run(&like, 1, 3);
    assert_memory_not_equal(one.state[0], three.state[0], (size_t)one.elems * sizeof(float));
    assert_true(trial_apart(&one, &exact) < 1e-6);
    trial_free(&one);
    trial_free(&three);
    trial_free(&exact);
}

/* Shards that do not divide the batch. */
TEST(test_refused)
{
    struct trial like = exact_of(MODEL_TASK_LM, 9);
    struct step *step = NULL;
    like.config.dev = ranks_dev(0);
    assert_int_equal(step_open(&like.config, &step), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "VIRTUAL_SHARDS=9"));
}

HARNESS_RUN_ALL()
