/* test_mesh_muon — OPTIMIZER=muon: the bits depend neither on SHARD nor on the number of ranks, a
 * run goes on with other ranks, and hidden matrices have one moment. */
#include "mesh/trial.h"

#include "architectures.h"
#include "model/model.h"

static struct trial muon_of(const struct model_dims *dims, int64_t t)
{
    struct trial like = trial_of(MODEL_TASK_LM, 12, t);
    if (dims) {
        like.config.dims = *dims;
        like.config.dims.context = t + 3;
        like.config.dims.vocab = 211;
    }
    like.config.optim.kind = OPTIM_KIND_MUON;
    like.config.optim.momentum = 0.95;
    return like;
}

static void same_bits(struct trial like, int nodes, int locals, const char *what)
{
    like.steps = 4;
    like.config.store.shard = LAYOUT_SHARD_NONE;
    struct trial want = trial_run(&like, nodes, locals);
    for (int shard = LAYOUT_SHARD_OPTIMIZER; shard <= LAYOUT_SHARD_FULL; shard++) {
        like.config.store.shard = (enum layout_shard)shard;
        struct trial got = trial_run(&like, nodes, locals);
        trial_same(&got, &want, what);
        trial_free(&got);
    }
    trial_free(&want);
}

/* Buckets of one unit and of all, with and without accumulation, on 2 to 4 ranks. */
TEST(test_shards)
{
    for (int form = 0; form < 4; form++) {
        struct trial like = muon_of(NULL, 8);
        like.config.store.bucket_elems_min = form & 1 ? 0 : 1;
        like.config.batch_samples = form & 2 ? 1 : 4;
        same_bits(like, 1, 3, "three ranks");
        like.config.batch_samples = form & 2 ? 1 : 3;
        same_bits(like, 2, 2, "two nodes of two ranks");
    }
}

/* Fused and separate projections, by heads and not, fewer key heads, SwiGLU. */
TEST(test_architectures)
{
    for (int i = 0; i < ARCHITECTURES_N; i++)
        same_bits(muon_of(&architectures[i], 8), 1, 2, architectures[i].name);
}

/* Where one rank alone has a gradient, sums of ranks are exact. Without clipping, which the norm's
 * rounding would reach, every number of ranks then has the same bits. */
TEST(test_ranks)
{
    struct trial like = muon_of(NULL, 8);
    like.first_only = true;
    like.config.optim.grad_clip = 0;
    like.steps = 4;
    struct trial want = trial_run(&like, 1, 1);
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
            like.config.store.shard = (enum layout_shard)shard;
            struct trial got = trial_run(&like, 1, ranks);
            memcpy(got.norm, want.norm, sizeof got.norm); /* rounds in another order */
            trial_same(&got, &want, shard == LAYOUT_SHARD_NONE ? "replicated" : "sharded");
            trial_free(&got);
        }
    trial_free(&want);
}

/* Groups and stages round their sums otherwise. */
TEST(test_other_meshes)
{
    struct trial like = muon_of(NULL, 8);
    like.steps = 4;
    like.lr = 3e-4;
    struct trial want = trial_run(&like, 1, 1);
    for (int form = 0; form < 3; form++) {
        struct trial one = like;
        if (form == 0) {
            one.config.store.shard = LAYOUT_SHARD_HYBRID;
            one.config.store.group_ranks = 2;
        } else {
            one.config.axis_ranks[form == 1 ? MESH_AXIS_PIPELINE : MESH_AXIS_CONTEXT] = 2;
            one.config.store.shard = LAYOUT_SHARD_FULL;
        }
        struct trial got = trial_run(&one, 2, 2);
        double apart = trial_apart(&got, &want);
        print_message("# form %d: losses differ by at most %.1e\n", form, apart);
        assert_true(apart < 2e-6);
        trial_free(&got);
    }
    trial_free(&want);
}

/* Saves a run and loads it with other ranks and another SHARD. */
static void resume(enum layout_shard from, int from_ranks, enum layout_shard to, int to_ranks)
{
    struct trial like = muon_of(NULL, 11), next;
    like.lr = 3e-4;
    like.config.store.shard = from;
    next = like;
    next.config.store.shard = to;
    trial_resume(like, from_ranks, next, to_ranks, from_ranks == to_ranks);
}

/* Three steps on two stages of two ranks, then three on one rank: each stage has the moments of
 * its own layers. */
static void resume_stages(void)
{
    struct trial like = muon_of(NULL, 11);
    like.lr = 3e-4;
    like.steps = 6;
    struct trial whole = trial_run(&like, 1, 1);
    like.steps = 3;
    struct trial staged = like;
    staged.config.axis_ranks[MESH_AXIS_PIPELINE] = 2;
    staged.config.store.shard = LAYOUT_SHARD_FULL;
    struct trial first = trial_run(&staged, 2, 2);
    for (int to = 0; to < 2; to++) {
        struct trial next = to ? staged : like;
        next.first_step = 3;
        next.config.is_loaded = true;
        trial_load_of(&next, &first);
        struct trial second = trial_run(&next, to ? 2 : 1, to ? 2 : 1);
        for (int i = 0; i < 3; i++)
            assert_true(fabs(second.loss[i] / whole.loss[3 + i] - 1) < 2e-6);
        trial_free(&second);
        next.steps = 0;
        second = trial_run(&next, to ? 2 : 1, to ? 2 : 1);
        trial_same_state(&second, &first, "loaded");
        trial_free(&second);
    }
    trial_free(&first);
    trial_free(&whole);
}

TEST(test_resume)
{
    resume_stages();
    resume(LAYOUT_SHARD_NONE, 1, LAYOUT_SHARD_NONE, 1);
    resume(LAYOUT_SHARD_FULL, 4, LAYOUT_SHARD_NONE, 1);
    resume(LAYOUT_SHARD_NONE, 1, LAYOUT_SHARD_FULL, 3);
    resume(LAYOUT_SHARD_OPTIMIZER, 2, LAYOUT_SHARD_GRADIENTS, 4);
    resume(LAYOUT_SHARD_FULL, 3, LAYOUT_SHARD_FULL, 3);
    resume(LAYOUT_SHARD_GRADIENTS, 2, LAYOUT_SHARD_NONE, 2);
}

/* Hidden matrices have no second moment; all other tensors have one, and memory is as large as
 * that. step_open asserts that it is the planned memory. */
TEST(test_moments)
{
    struct trial like = muon_of(NULL, 8);
    struct param_table t;
    int64_t at = 0;
    like.steps = 1;
    struct trial got = trial_run(&like, 1, 1);
    assert_int_equal(model_ops(&like.config.dims)->describe(&like.config.dims, &t), ST_OK);
    for (int i = 0; i < t.params_n; at += t.param[i++].elems) {
        const struct param *p = &t.param[i];
        bool is_any = false;
        for (int64_t j = 0; j < p->elems; j++)
            is_any |= got.state[2][at + j] != 0;
        if (is_any == p->is_hidden)
            fail_msg("%s: a second moment: %d", p->name, is_any);
    }
    assert_int_equal(got.memory.store.moments,
                     4 * (t.total_elems + param_rest(&t, 0, t.total_elems)));
    assert_true(param_rest(&t, 0, t.total_elems) < t.total_elems / 2);
    param_table_free(&t);
    trial_free(&got);
}

/* A NaN on one rank, in the last step: parameters and moments are as the step before left them. */
TEST(test_kept)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        struct trial like = muon_of(NULL, 8);
        like.config.store.shard = (enum layout_shard)shard;
        like.steps = 2;
        struct trial want = trial_run(&like, 1, 3);
        like.steps = 3;
        like.nan_step = 2;
        like.nan_rank = 1;
        struct trial got = trial_run(&like, 1, 3);
        assert_true(isnan(got.loss[2]));
        trial_same_state(&got, &want, "a NaN");
        trial_free(&got);
        trial_free(&want);
    }
}

/* A NaN on one rank: parameters and moments stay finite, and training goes on. */
TEST(test_not_finite)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        struct trial like = muon_of(NULL, 8);
        like.config.store.shard = (enum layout_shard)shard;
        like.steps = 3;
        like.nan_step = 1;
        like.nan_rank = 2;
        struct trial got = trial_run(&like, 1, 3);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]) && isfinite(got.loss[2]));
        for (int64_t i = 0; i < got.elems; i++)
            assert_true(isfinite(got.state[0][i]) && isfinite(got.state[1][i]) &&
                        isfinite(got.state[2][i]));
        trial_free(&got);
    }
}

HARNESS_RUN_ALL()
