/* Several ranks on the CUDA device without a GPU (guarded.h), with 16-bit compute copies of
 * parameters: the same training whatever each rank holds, from the first step to the last and after
 * a restore; and what a rank holds. Ranks are threads; from the third step on their work runs as
 * CUDA graphs (test_rank_graphs_cuda). */
#include "mesh/checks.h"

#include "kernel_test.h"
#include "tests/cuda/rank_devices.h"
#include "train/step/memory.h"

/* ---- the same training ---- */

/* On three ranks three units share the two slots of a window. */
static struct trial tiny(enum layout_shard shard, enum dtype dtype, int ranks)
{
    struct trial like = trial_of(MODEL_TASK_LM, ranks, 8);
    like.steps = 2;
    like.config.store.shard = shard;
    like.config.store.dtype = dtype;
    like.config.dropout = 0.1f;
    like.config.dims.layers = ranks == 3 ? 2 : 1;
    like.config.dims.heads = 1;
    like.config.dims.embed = 16;
    like.config.dims.vocab = 47;
    return like;
}

static void expect(struct trial like, const struct trial *want, int ranks, const char *what)
{
    char name[96];
    struct trial got = trial_run(&like, 1, ranks);
    text_format(name, sizeof name, "%s, %d ranks, shard %d, dtype %d", what, ranks,
                (int)like.config.store.shard, (int)like.config.store.dtype);
    assert_true(isfinite(got.loss[0]) && isfinite(got.norm[0]));
    trial_same(&got, want, name);
    trial_free(&got);
}

TEST(every_shard_gives_the_same_bits)
{
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++) {
            struct trial none = tiny(LAYOUT_SHARD_NONE, (enum dtype)dtype, ranks);
            struct trial want = trial_run(&none, 1, ranks);
            enum layout_shard other =
                dtype == DTYPE_BF16 ? LAYOUT_SHARD_OPTIMIZER : LAYOUT_SHARD_GRADIENTS;
            expect(tiny(LAYOUT_SHARD_FULL, (enum dtype)dtype, ranks), &want, ranks, "trained");
            if (ranks == 2) /* they part masters as full does, and differ in gradients */
                expect(tiny(other, (enum dtype)dtype, ranks), &want, ranks, "trained");
            trial_free(&want);
        }
}

/* Frozen weights are whole, or gathered in 16 bits. */
TEST(every_shard_of_an_adapter_gives_the_same_bits)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        struct trial like = tiny(LAYOUT_SHARD_NONE, (enum dtype)dtype, 2), want;
        like.config.dims.adapter =
            (struct model_adapter){.r = 4, .alpha = 8, .targets = MODEL_TARGETS_ALL};
        like.config.dims.layers = 2;
        want = trial_run(&like, 1, 2);
        for (int shard = LAYOUT_SHARD_OPTIMIZER; shard <= LAYOUT_SHARD_FULL; shard++) {
            like.config.store.shard = (enum layout_shard)shard;
            expect(like, &want, 2, "an adapter");
        }
        trial_free(&want);
    }
}

/* Groups of two on two nodes of GPUs. */
TEST(hybrid_gives_the_same_losses)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int i = 0; i < 3; i++) {
        struct trial none = tiny(LAYOUT_SHARD_NONE, dtypes[i], 4);
        struct trial hybrid = tiny(LAYOUT_SHARD_HYBRID, dtypes[i], 4);
        hybrid.config.store.group_ranks = 2;
        struct trial want = trial_run(&none, 2, 2), got = trial_run(&hybrid, 2, 2);
        print_message("# hybrid, dtype %d: losses differ by %.1e\n", (int)dtypes[i],
                      trial_apart(&got, &want));
        assert_true(trial_apart(&got, &want) <= (dtypes[i] == DTYPE_F32 ? 1e-6 : 1e-3));
        assert_true(got.memory.store.moments < want.memory.store.moments);
        trial_free(&want);
        trial_free(&got);
    }
}

/* With several micro-batches gradients lie whole, masters do not. */
TEST(accumulation_gives_the_same_bits)
{
    struct trial like = tiny(LAYOUT_SHARD_NONE, DTYPE_BF16, 2);
    like.config.global_samples = 4;
    struct trial want = trial_run(&like, 1, 2);
    like.config.store.shard = LAYOUT_SHARD_GRADIENTS;
    expect(like, &want, 2, "accumulated");
    trial_free(&want);
}

/* One rank has one micro-batch of a step, the other two. */
TEST(unequal_micro_batches_give_the_same_bits)
{
    struct trial like = tiny(LAYOUT_SHARD_NONE, DTYPE_BF16, 2);
    like.config.global_samples = 3;
    struct trial want = trial_run(&like, 1, 2), alone = trial_run(&like, 1, 1);
    print_message("# three micro-batches: losses differ from one rank's by %.1e\n",
                  trial_apart(&want, &alone));
    assert_true(trial_apart(&want, &alone) <= 1e-3);
    for (int shard = LAYOUT_SHARD_OPTIMIZER; shard <= LAYOUT_SHARD_FULL; shard++) {
        like.config.store.shard = (enum layout_shard)shard;
        expect(like, &want, 2, "unequal");
    }
    trial_free(&want);
    trial_free(&alone);
}

/* ---- EXACT=layout ---- */

/* Two samples for each rank, each a virtual shard. */
static struct trial exact(enum layout_shard shard, enum dtype dtype, int ranks)
{
    struct trial like = tiny(shard, dtype, ranks);
    like.config.global_samples = like.config.shards = 2 * ranks;
    return like;
}

TEST(virtual_shards_give_the_bits_of_one_rank)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        const enum dtype dtype = ranks == 2 ? DTYPE_F32 : DTYPE_BF16;
        struct trial one = exact(LAYOUT_SHARD_NONE, dtype, ranks), want = trial_run(&one, 1, 1);
        for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += ranks)
            expect(exact((enum layout_shard)shard, dtype, ranks), &want, ranks, "exact");
        trial_free(&want);
    }
}

/* A bit that flips in any gradient of a shard that two ranks compute is found. */
TEST(a_shard_is_computed_twice)
{
    struct checks_job like = {.trial = exact(LAYOUT_SHARD_FULL, DTYPE_BF16, 3)};
    like.flips = 2;
    like.trial.steps = 3;
    const struct checks_job *job = checks_compare(like, 3, "random flips");
    assert_int_equal(job->found, 2);
    assert_int_equal(job->named, 2);
}

/* ---- going on ---- */

/* The second of two steps, from what a run left after its first. */
static struct trial second_of(const struct trial *half, enum layout_shard shard, enum dtype dtype,
                              int ranks)
{
    struct trial like = tiny(shard, dtype, ranks);
    like.steps = 1;
    like.first_step = 1;
    like.config.is_loaded = true;
    memcpy(like.load, half->state, sizeof like.load);
    return like;
}

/* What one run leaves is where another begins, whatever either holds in parts: the same run, others
 * in another PRECISION, and on another number of ranks. */
TEST(resumes_under_another_shard_and_precision)
{
    struct trial like = tiny(LAYOUT_SHARD_OPTIMIZER, DTYPE_BF16, 2);
    struct trial whole = trial_run(&like, 1, 2);
    like.steps = 1;
    struct trial half = trial_run(&like, 1, 2);
    whole.loss[0] = whole.loss[1];
    whole.norm[0] = whole.norm[1];
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        expect(second_of(&half, (enum layout_shard)shard, DTYPE_BF16, 2), &whole, 2, "gone on");
    trial_free(&whole);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        enum dtype dtype = ranks == 2 ? DTYPE_F16 : DTYPE_BF16;
        like = second_of(&half, LAYOUT_SHARD_NONE, dtype, ranks);
        struct trial other = trial_run(&like, 1, ranks);
        expect(second_of(&half, LAYOUT_SHARD_FULL, dtype, ranks), &other, ranks, "gone on");
        trial_free(&other);
    }
    trial_free(&half);
}

/* ---- beside training ---- */

struct beside {
    struct trial trial;
    float logits[47];
    struct step_evaluation eval;
};

/* A step's end may still be on its way when a text is shown, and the loss of other samples asked
 * for. */
static enum status look_beside(struct ranks_one *one, struct beside *b, struct step *step,
                               struct batch *batch, struct feed *feed)
{
    static const int32_t tokens[] = {3, 41, 7};
    TRY(trial_steps(one, &b->trial, step, batch));
    TRY(step_logits(step, tokens, 3, b->logits));
    TRY(step_eval(step, feed, 3, NULL, NULL, &b->eval));
    b->trial.first_step++;
    return trial_steps(one, &b->trial, step, batch);
}

static enum status beside_rank(struct ranks_one *one)
{
    struct beside *b = one->arg;
    struct step_config *c = &b->trial.config;
    struct feed_config fc = {.data = FEED_SYNTHETIC,
                             .seq_tokens = c->seq_tokens,
                             .global_samples = 3,
                             .vocab = c->dims.vocab};
    struct step *step = NULL;
    struct feed *feed = NULL;
    struct batch batch = {0};
    enum status st;
    c->dev = one->dev;
    c->comm = one->comm;
    TRY_OR(feed_open(&fc, &feed), out_close);
    TRY_OR(step_open(c, &step), out_close);
    TRY_OR(batch_init(&batch, FEED_TASK_LM, c->global_samples / one->ranks, c->seq_tokens),
           out_close);
    TRY_OR(look_beside(one, b, step, &batch, feed), out_close);
    b->trial.memory = step_memory(step);
out_close:
    step_close(step);
    batch_free(&batch);
    if (feed)
        feed_close(feed);
    return st;
}

TEST(a_sample_and_an_evaluation)
{
    static struct beside want[2], got[2];
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += shard == 0 ? 1 : 2) {
        got[0].trial = tiny((enum layout_shard)shard, DTYPE_BF16, 2);
        got[0].trial.steps = 1;
        got[1].trial = got[0].trial;
        ranks_run(1, 2, beside_rank, got, sizeof *got);
        if (shard == LAYOUT_SHARD_NONE)
            memcpy(want, got, sizeof want);
        for (int rank = 0; rank < 2; rank++) {
            assert_memory_equal(got[rank].logits, want[0].logits, sizeof want->logits);
            assert_true(got[rank].eval.loss == want[0].eval.loss && isfinite(got[rank].eval.loss));
            assert_true(got[rank].trial.loss[0] == want[0].trial.loss[0]);
        }
        if (shard != LAYOUT_SHARD_NONE)
            assert_true(got[0].trial.memory.store.params <
                        want[0].trial.memory.store.params * 3 / 5);
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
