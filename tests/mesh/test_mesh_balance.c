/* BALANCE=auto on the ranks of a mesh: units of a step are dealt by speed. With virtual shards no
 * bit changes; without them losses are those of equal numbers of micro-batches within rounding,
 * with every SHARD, form of gradients, task and axis. */
#include "mesh/trial.h"

#include "base/clock.h"

#define UNITS 12
#define STEPS (2 * STEP_BALANCE_STEPS + 4)

/* Rank 1 is slow at first; later rank 0 is slower still. */
static double unlike_ms(const struct ranks_one *one, int step)
{
    return one->rank == 1 ? 2.5 : one->rank == 0 && step > STEP_BALANCE_STEPS ? 8 : 1;
}

static struct trial balanced_of(enum model_task task)
{
    struct trial like = trial_tiny(UNITS, 6);
    like.config.dims.task = task;
    like.steps = STEPS;
    like.config.balances = true;
    like.compute_ms = unlike_ms;
    return like;
}

/* Rank 0 has fewer than others; in the lockstep of SHARD=full so may rank 1. */
static void is_dealt(const struct trial *t)
{
    assert_true(t->deal[0] < t->deal[1] || t->deal[0] < t->deal[2]);
}

TEST(virtual_shards_keep_their_bits)
{
    struct trial like = balanced_of(MODEL_TASK_LM);
    like.config.shards = UNITS;
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int ranks = 2; ranks <= 3; ranks++) {
            like.config.store.shard = (enum layout_shard)shard;
            like.config.balances = false;
            struct trial want = trial_run(&like, 1, 1);
            like.config.balances = true;
            struct trial got = trial_run(&like, 1, ranks);
            trial_same(&got, &want, "dealt by speed");
            is_dealt(&got);
            trial_free(&got);
            trial_free(&want);
        }
}

/* Losses of a deal by speed, and of equal numbers. */
static void agrees(struct trial like, int ranks, double most, const char *what)
{
    struct trial got = trial_run(&like, 1, ranks);
    like.config.balances = false;
    struct trial want = trial_run(&like, 1, ranks);
    const double apart = trial_apart(&got, &want);
    print_message("# %s, %d ranks, SHARD %d: deal %d %d, losses differ by at most %.1e\n", what,
                  ranks, (int)like.config.store.shard, got.deal[0], got.deal[1], apart);
    assert_true(apart <= most);
    is_dealt(&got);
    trial_free(&got);
    trial_free(&want);
}

TEST(micro_batches_agree_with_equal_numbers)
{
    for (int task = MODEL_TASK_LM; task <= MODEL_TASK_QA; task++)
        for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
            struct trial like = balanced_of((enum model_task)task);
            like.config.store.shard = (enum layout_shard)shard;
            agrees(like, 2 + shard % 2, 1e-6, task == MODEL_TASK_LM ? "lm" : "qa");
        }
}

TEST(compressed_gradients_agree)
{
    for (int kind = GRAD_COMPRESS_KIND_BF16; kind <= GRAD_COMPRESS_KIND_INT8; kind++) {
        struct trial like = balanced_of(MODEL_TASK_LM);
        like.config.store.compress = (enum grad_compress_kind)kind;
        agrees(like, 2, 2e-2, "compressed");
    }
}

/* A batch that grows, documents apart, and an update of whole matrices. */
TEST(other_settings_agree)
{
    struct trial like = balanced_of(MODEL_TASK_LM);
    like.config.batch_warmup = (struct warmup){.from = 3, .steps = 8};
    like.config.masks_documents = true;
    agrees(like, 3, 1e-6, "growing");
    like = balanced_of(MODEL_TASK_LM);
    like.config.optim.kind = OPTIM_KIND_MUON;
    like.config.optim.momentum = 0.9;
    like.config.batch_samples = 2;
    agrees(like, 2, 1e-5, "muon");
}

/* One rank of the first group is slow, so all of it is. */
static double one_slow_ms(const struct ranks_one *one, int step)
{
    (void)step;
    return one->rank == 1 ? 3 : 1;
}

TEST(a_group_is_as_slow_as_its_slowest_rank)
{
    for (int axis = MESH_AXIS_TENSOR; axis <= MESH_AXIS_CONTEXT; axis++) {
        struct trial like = balanced_of(MODEL_TASK_LM);
        if (axis != MESH_AXIS_TENSOR && axis != MESH_AXIS_CONTEXT)
            continue;
        like.config.dims.heads = 2;
        like.config.dims.embed = 16;
        like.config.seq_tokens = 16;
        like.config.dims.context = 16;
        like.config.axis_ranks[axis] = 2;
        like.compute_ms = one_slow_ms;
        like.steps = STEP_BALANCE_STEPS + 3;
        agrees(like, 4, 1e-6, axis == MESH_AXIS_TENSOR ? "tensor" : "context");
    }
}

/* ---- measured ---- */

/* Passes of rank 0 are slow: it sleeps after each block. */
static void sleep_in_block(void *arg)
{
    if (((const struct ranks_one *)arg)->rank == 0)
        clock_sleep_ms(4);
}

static enum status slow_rank(struct ranks_one *one)
{
    struct trial *t = one->arg;
    t->config.heartbeat = sleep_in_block;
    t->config.heartbeat_arg = one;
    return trial_rank(one);
}

/* A rank's own passes are measured, and not its waits for the slow one: with SHARD=full both ranks'
 * passes end together. */
TEST(waits_do_not_count)
{
    static struct trial all[2];
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += LAYOUT_SHARD_FULL) {
        struct trial like = balanced_of(MODEL_TASK_LM);
        like.compute_ms = NULL;
        like.steps = STEP_BALANCE_STEPS + 3;
        like.reads_state = false;
        like.config.store.shard = (enum layout_shard)shard;
        all[0] = all[1] = like;
        ranks_run(1, 2, slow_rank, all, sizeof *all);
        print_message("# SHARD %d: deal %d %d\n", shard, all[0].deal[0], all[0].deal[1]);
        assert_int_equal(all[0].deal[0], all[1].deal[0]);
        assert_true(all[0].deal[0] < all[0].deal[1]);
    }
}

HARNESS_RUN_ALL()
