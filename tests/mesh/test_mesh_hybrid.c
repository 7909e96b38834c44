/* test_mesh_hybrid — SHARD=hybrid: the losses of SHARD=none within rounding, and the same bits
 * each time; a checkpoint that every SHARD reads; what a rank holds; a stalled rank that is
 * named. */
#include "mesh/trial.h"

#include "cluster/straggler.h"
#include "train/step/memory.h"

#define SEQ 6

static struct trial trial_with(enum model_task task, int ranks, int64_t batch,
                               enum layout_shard shard, int group)
{
    struct trial like = trial_of(task, 2 * ranks, SEQ);
    like.steps = 4;
    like.config.batch_samples = batch;
    like.config.dropout = 0.1f;
    like.config.store.shard = shard;
    like.config.store.group_ranks = group;
    return like;
}

/* On `nodes` nodes of `group` ranks; batch 2: one micro-batch, 1: two. */
static void agrees(enum model_task task, int nodes, int group, int64_t batch)
{
    int ranks = nodes * group;
    struct trial none = trial_with(task, ranks, batch, LAYOUT_SHARD_NONE, 0);
    struct trial hybrid = trial_with(task, ranks, batch, LAYOUT_SHARD_HYBRID, group);
    char name[64];
    struct trial again = trial_run(&hybrid, nodes, group);
    none = trial_run(&none, nodes, group);
    hybrid = trial_run(&hybrid, nodes, group);
    text_format(name, sizeof name, "task %d, %d x %d ranks, batch %lld", (int)task, nodes, group,
                (long long)batch);
    print_message("# %s: losses differ by at most %.1e\n", name, trial_apart(&hybrid, &none));
    assert_true(trial_apart(&hybrid, &none) <= 1e-6);
    assert_true(fabs(hybrid.norm[0] / none.norm[0] - 1) <= 1e-6);
    trial_same(&again, &hybrid, name);
    trial_free(&none);
    trial_free(&again);
    trial_free(&hybrid);
}

TEST(test_agrees)
{
    agrees(MODEL_TASK_LM, 2, 2, 2);
    agrees(MODEL_TASK_LM, 2, 2, 1);
    agrees(MODEL_TASK_LM, 2, 3, 2);
    agrees(MODEL_TASK_LM, 3, 2, 2);
    agrees(MODEL_TASK_QA, 2, 2, 2);
    agrees(MODEL_TASK_QA, 2, 4, 1);
}

/* Groups inside a node: another order of sums, so bits may differ, within rounding. */
TEST(test_groups_of_a_node)
{
    struct trial none = trial_with(MODEL_TASK_LM, 6, 2, LAYOUT_SHARD_NONE, 0);
    struct trial hybrid = trial_with(MODEL_TASK_LM, 6, 2, LAYOUT_SHARD_HYBRID, 2);
    none = trial_run(&none, 1, 6);
    hybrid = trial_run(&hybrid, 1, 6);
    print_message("# 3 groups of 2: losses differ by %.1e\n", trial_apart(&hybrid, &none));
    assert_true(trial_apart(&hybrid, &none) <= 1e-6);
    trial_free(&none);
    trial_free(&hybrid);
}

/* Four steps from `from`'s state, under `shard`. */
static struct trial second(const struct trial *from, enum layout_shard shard, int nodes, int locals)
{
    struct trial like = trial_with(MODEL_TASK_LM, 4, 8 / (nodes * locals), shard, locals);
    like.first_step = from->steps;
    memcpy(like.load, from->state, sizeof like.load);
    return trial_run(&like, nodes, locals);
}

TEST(test_checkpoints)
{
    struct trial first = trial_with(MODEL_TASK_LM, 4, 2, LAYOUT_SHARD_HYBRID, 2);
    first = trial_run(&first, 2, 2);
    struct trial want = second(&first, LAYOUT_SHARD_HYBRID, 2, 2);
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        struct trial got = second(&first, (enum layout_shard)shard, 2, 2);
        assert_true(trial_apart(&got, &want) <= 1e-6);
        trial_free(&got);
    }
    struct trial alone = second(&first, LAYOUT_SHARD_NONE, 1, 1);
    assert_true(trial_apart(&alone, &want) <= 1e-5);
    struct trial full = trial_with(MODEL_TASK_LM, 4, 2, LAYOUT_SHARD_FULL, 0);
    full = trial_run(&full, 2, 2);
    struct trial back = second(&full, LAYOUT_SHARD_HYBRID, 2, 2);
    assert_true(trial_apart(&back, &want) <= 1e-6);
    trial_free(&alone);
    trial_free(&first);
    trial_free(&want);
    trial_free(&full);
    trial_free(&back);
}

/* Two nodes of two: a rank holds what it would with full on one node, and the padding of four
 * ranks. step_open asserts that it is what was planned. */
TEST(test_memory)
{
    struct trial hybrid = trial_with(MODEL_TASK_LM, 4, 2, LAYOUT_SHARD_HYBRID, 2);
    struct trial full = trial_with(MODEL_TASK_LM, 4, 2, LAYOUT_SHARD_FULL, 0);
    struct step_memory half;
    full.config.global_samples = 4;
    assert_int_equal(step_plan(&full.config, &(struct step_place){.ranks = 2}, &half), ST_OK);
    hybrid = trial_run(&hybrid, 2, 2);
    assert_in_range(hybrid.memory.store.params, half.store.params, half.store.params * 5 / 4);
    assert_in_range(hybrid.memory.store.grads, half.store.grads, half.store.grads * 5 / 4);
    assert_in_range(hybrid.memory.store.moments, half.store.moments, half.store.moments * 5 / 4);
    trial_free(&hybrid);
}

/* ---- a stalled rank ---- */

#define STALLED 3
static struct comm_activity seen[4];
static atomic_int entered;

/* One step's calls of hybrid; the stalled rank stays out of the last calls, and takes a picture of
 * all when the others are in them. */
static enum status stall(struct ranks_one *one)
{
    struct comm *within = NULL, *across = NULL;
    float x[64] = {0};
    struct tensor t = {x, DTYPE_F32};
    int first = one->rank / 2 * 2;
    static struct comm *all[4];
    all[one->rank] = one->comm;
    TRY(comm_split(one->comm, (int[]){first, first + 1}, 2, &within));
    TRY(comm_split(one->comm, (int[]){one->rank % 2, one->rank % 2 + 2}, 2, &across));
    for (int i = 0; i < 3; i++) {
        TRY(comm_all_reduce(within, t, t, 64));
        TRY(comm_all_reduce(across, t, t, 64));
    }
    TRY(comm_all_reduce(one->comm, t, t, 64));
    atomic_fetch_add(&entered, 1);
    while (one->rank == STALLED && atomic_load(&entered) < 4)
        clock_sleep_ms(1);
    if (one->rank == STALLED) {
        /* The activity of all ranks, once each but the stalled one is in its last call. */
        static const int64_t last[4] = {9, 9, 8}; /* rank 2 waits within its node */
        const int64_t until_ms = clock_ms() + RANKS_TIMEOUT_MS / 2;
        bool are_in = false;
        while (!are_in && clock_ms() < until_ms) {
            are_in = true;
            for (int rank = 0; rank < 4; rank++) {
                comm_activity(all[rank], &seen[rank]);
                are_in = are_in && (rank == STALLED ||
                                    (seen[rank].call[0] != 0 && seen[rank].sequence == last[rank]));
            }
            clock_sleep_ms(1);
        }
    }
    TRY(comm_all_reduce(within, t, t, 64));
    TRY(comm_all_reduce(across, t, t, 64));
    comm_close(within);
    comm_close(across);
    return ST_OK;
}

TEST(test_stalled_rank_is_named)
{
    char sentence[256];
    struct cluster_rank ranks[4] = {{0}};
    struct ranks_none {
        char unused;
    } none[4];
    ranks_run(2, 2, stall, none, sizeof *none);
    for (int rank = 0; rank < 4; rank++) {
        ranks[rank].rank = rank;
        text_copy(ranks[rank].call, sizeof ranks[rank].call, seen[rank].call);
        ranks[rank].call_sequence = seen[rank].sequence;
        ranks[rank].call_age_ms = 60000;
    }
    struct cluster_node nodes[2] = {{.node_id = 0, .ranks = ranks, .ranks_n = 2},
                                    {.node_id = 1, .ranks = ranks + 2, .ranks_n = 2}};
    assert_true(straggler_find(nodes, 2, 1000, NULL, sentence, sizeof sentence));
    print_message("# %s\n", sentence);
    assert_non_null(strstr(sentence, "node 1 rank 3 and 1 more have not entered all_reduce 9"));
}

HARNESS_RUN_ALL()
