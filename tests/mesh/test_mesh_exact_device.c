/* test_mesh_exact_device — EXACT=layout where gradients lie in a device's own memory
 * (fake_device.h): the bits of one rank in host memory on any number of ranks, with every SHARD,
 * over transports of host memory and over the tests' own NCCL, which adds around a ring. */
#include "mesh/trial.h"

#include "mesh/ways.h"
#include "train/step/dry.h"

static struct trial run_on(const struct trial *like, int nodes, int locals, enum way way)
{
    ways_choose(way, nodes * locals);
    struct trial got = trial_run(like, nodes, locals);
    ways_done();
    return got;
}

static struct trial exact_of(int shards)
{
    struct trial like = trial_of(MODEL_TASK_LM, 12, 8);
    like.steps = 2;
    like.config.shards = shards;
    like.config.dropout = 0.1f;
    like.config.dims.vocab = 256; /* no rows of zeros on devices: the same table everywhere */
    return like;
}

struct world {
    int nodes, locals;
};
static const struct world worlds[] = {{1, 1}, {1, 2}, {3, 1}, {2, 2}, {1, 4}, {2, 3}, {1, 8}},
                          few[] = {{1, 3}, {1, 4}};

/* want: on one rank in host memory. */
static void same_in_world(struct trial like, const struct trial *want, struct world world)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int way = WAY_STAGED; way < WAY_N; way++) {
            char what[96];
            like.config.store.shard = (enum layout_shard)shard;
            struct trial got = run_on(&like, world.nodes, world.locals, (enum way)way);
            text_format(what, sizeof what, "%d x %d ranks, shard %d, %d virtual shards, %s",
                        world.nodes, world.locals, shard, like.config.shards, way_name[way]);
            trial_same(&got, want, what);
            trial_free(&got);
        }
}

static void same_in_worlds(struct trial like, const struct world *world, size_t n)
{
    struct trial want = run_on(&like, 1, 1, WAY_HOST);
    assert_true(isfinite(want.loss[like.steps - 1]));
    for (size_t i = 0; i < n; i++)
        same_in_world(like, &want, world[i]);
    trial_free(&want);
}
#define SAME_IN_WORLDS(like, world) same_in_worlds((like), (world), sizeof(world) / sizeof *(world))

/* Shards of one micro-batch and of two; runs of unequal numbers of shards. */
TEST(test_ranks)
{
    struct trial like = exact_of(12);
    SAME_IN_WORLDS(like, worlds);
    like.config.store.bucket_elems_min = 0;
    like.config.global_samples = 14;
    like.config.shards = 7;
    SAME_IN_WORLDS(like, few);
}

/* One shard on each rank: with SHARD=gradients and full a rank holds buckets, not all gradients. */
TEST(test_one_shard)
{
    static const int ranks[] = {2, 3, 5, 6, 8};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        struct trial like = exact_of(ranks[i]);
        like.config.global_samples = ranks[i];
        const struct world world[] = {{1, ranks[i]}};
        SAME_IN_WORLDS(like, world);
    }
}

/* Muon; two tensors for the embedding and the output layer; recomputed activations; an adapter. */
TEST(test_forms)
{
    struct trial like = exact_of(12);
    const struct model_adapter adapter = {.r = 4, .alpha = 8, .targets = MODEL_TARGETS_ALL};
    for (int form = 0; form < 4; form++) {
        like.config.optim.kind = form == 0 ? OPTIM_KIND_MUON : OPTIM_KIND_ADAMW;
        like.config.optim.momentum = 0.9;
        like.config.dims.features.is_untied = form == 1;
        like.config.recompute.way = form == 2 ? MODEL_RECOMPUTE_BLOCK : MODEL_RECOMPUTE_NONE;
        like.config.dims.adapter = form == 3 ? adapter : (struct model_adapter){0};
        SAME_IN_WORLDS(like, few);
    }
}

/* Two tensor ranks, two ranks for the positions of a sample, two stages: in one group and in
 * three. */
TEST(test_axes)
{
    for (int axis = 0; axis < MESH_AXES; axis++) {
        if (axis == MESH_AXIS_DATA)
            continue;
        struct trial like = exact_of(12);
        like.config.dims.layers = 2;
        like.config.axis_ranks[axis] = 2;
        struct trial want = run_on(&like, 1, 2, WAY_HOST);
        same_in_world(like, &want, (struct world){1, 2});
        same_in_world(like, &want, (struct world){1, 6});
        trial_free(&want);
    }
}

/* NCCL adds the numbers of four tensor ranks in an order of its own. */
TEST(test_refused)
{
    struct step_config config[4];
    struct ranks_one one[RANKS_MAX];
    for (int rank = 0; rank < 4; rank++) {
        config[rank] = exact_of(12).config;
        config[rank].dims.heads = 4;
        config[rank].axis_ranks[MESH_AXIS_TENSOR] = 4;
    }
    ways_choose(WAY_NCCL, 4);
    ranks_try(1, 4, RANKS_TIMEOUT_MS, trial_open, config, sizeof *config, one);
    ways_done();
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(one[rank].st, ST_BAD_SETTING);
        assert_non_null(strstr(one[rank].message, "set both to at most 2"));
    }
}

/* Rank 1 is slow, later rank 0: the deal changes twice, and no bit does. */
static double unlike_ms(const struct ranks_one *one, int step)
{
    return one->rank == 1 ? 2.5 : one->rank == 0 && step > STEP_BALANCE_STEPS ? 8 : 1;
}

TEST(test_balance)
{
    struct trial like = exact_of(12);
    like.steps = 2 * STEP_BALANCE_STEPS + 3;
    struct trial want = run_on(&like, 1, 1, WAY_HOST);
    like.config.balances = true;
    like.compute_ms = unlike_ms;
    for (int way = WAY_STAGED; way < WAY_N; way++)
        for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL;
             shard += LAYOUT_SHARD_FULL) {
            like.config.store.shard = (enum layout_shard)shard;
            struct trial got = run_on(&like, 1, 2, way);
            trial_same(&got, &want, "dealt by speed");
            assert_true(got.deal[0] < got.deal[1]);
            trial_free(&got);
        }
    trial_free(&want);
}

/* A gradient that is not finite on one rank stops the step on all. */
TEST(test_nan)
{
    for (int way = WAY_STAGED; way < WAY_N; way++) {
        struct trial like = exact_of(12);
        like.nan_step = 1;
        like.nan_rank = 2;
        struct trial got = run_on(&like, 1, 3, (enum way)way);
        assert_true(isfinite(got.loss[0]) && isnan(got.loss[1]));
        trial_free(&got);
    }
}

/* A rank ends before the second step: the others fail, and no call of theirs stays. */
TEST(test_lost)
{
    static struct trial all[4];
    struct ranks_one one[RANKS_MAX];
    for (int way = WAY_STAGED; way < WAY_N; way++) {
        for (int rank = 0; rank < 4; rank++) {
            all[rank] = exact_of(12);
            all[rank].reads_state = false;
            all[rank].leave_step = 1;
            all[rank].leave_rank = 1;
        }
        ways_choose((enum way)way, 4);
        ranks_try(1, 4, RANKS_TIMEOUT_MS, trial_rank, all, sizeof *all, one);
        ways_done();
        for (int rank = 0; rank < 4; rank++) {
            assert_int_equal(one[rank].st, rank == 1 ? ST_RETRY : ST_PEER);
            assert_int_equal(all[rank].done, 1);
        }
    }
    assert_int_equal(atomic_load(&ways_nccl->open_n), 0);
    assert_int_equal(atomic_load(&ways_nccl->misused_n), 0);
}

/* A rank sends as much as in a ring's reduce-scatter, and parameters as without virtual shards; the
 * rest, under one in a hundred, are sums of blocks. */
TEST(test_bytes)
{
    struct trial like = exact_of(4);
    like.config.store.shard = LAYOUT_SHARD_OPTIMIZER;
    struct trial got = run_on(&like, 1, 4, WAY_NCCL);
    const int64_t bytes = got.last.sent_bytes, each = got.memory.store.params / 4 * 3;
    print_message("# %lld bytes sent in a step; %lld in a reduce-scatter of gradients\n",
                  (long long)bytes, (long long)each);
    assert_in_range(bytes, 2 * each, 2 * each + 2 * each / 100);
    trial_free(&got);
}

/* The cost that a plan states. */
struct planned {
    double exchanged, reduced, adds;
};

static void on_op(void *arg, const struct step_dry_op *op)
{
    ((struct planned *)arg)->adds += op->op == OP_KIND_combine ? op->times : 0;
}

static void on_call(void *arg, const struct step_dry_call *call)
{
    struct planned *p = arg;
    const double bytes = call->times * (double)call->bytes;
    p->exchanged += call->kind == STEP_DRY_CALL_ALL_TO_ALL ? bytes : 0;
    p->reduced += call->kind == STEP_DRY_CALL_REDUCE_SCATTER ? bytes : 0;
}

/* A step exchanges its gradients once for each partial sum of the rank with most of them, and has
 * memory for the sums that it receives of the largest tensor. */
TEST(test_plan)
{
    static const struct {
        int shards, ranks, partials, slots;
    } rows[] = {{4, 4, 1, 1}, {12, 4, 1, 2}, {12, 3, 3, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct step_place place = {
            .ranks = rows[i].ranks, .is_discrete = true, .stays_on_device = true};
        struct trial like = exact_of(rows[i].shards);
        like.config.batch_samples = 12 / rows[i].shards;
        like.config.store.shard = LAYOUT_SHARD_OPTIMIZER;
        struct planned plan = {0};
        const struct step_dry_listener listener = {
            .on_op = on_op, .on_call = on_call, .arg = &plan};
        struct step_dry_about about;
        struct step_memory memory;
        assert_int_equal(step_dry_run(&like.config, &place, &listener, &about), ST_OK);
        assert_int_equal(step_plan(&like.config, &place, &memory), ST_OK);
        const int64_t each = memory.store.params, received = memory.store.unsharded;
        assert_true(plan.reduced == 0);
        assert_true(plan.exchanged == (double)(rows[i].partials * each));
        assert_int_equal(memory.store.grads, rows[i].slots * each);
        assert_true(received > 0 && received < rows[i].partials * each);
        assert_true(plan.adds >= 4);
    }
}

/* That the tests above can fail: without virtual shards the ring's order is in the bits. */
TEST(test_without)
{
    struct trial like = exact_of(12);
    like.config.shards = 0;
    struct trial tree = run_on(&like, 1, 3, WAY_STAGED), ring = run_on(&like, 1, 3, WAY_NCCL);
    assert_memory_not_equal(tree.state[0], ring.state[0], (size_t)ring.elems * sizeof(float));
    assert_true(trial_apart(&tree, &ring) < 1e-6);
    trial_free(&tree);
    trial_free(&ring);
}

int main(void)
{
    harness_quiet();
    ways_begin();
    atomic_store(&ways_nccl->adds_in_ring, 1);
    int failed = harness_run_all(__FILE__, NULL, NULL);
    ways_end();
    return failed;
}
