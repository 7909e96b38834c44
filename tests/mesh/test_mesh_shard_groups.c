/* test_mesh_shard_groups — EXACT=layout with TP, CP and PP: a virtual shard that two groups of
 * ranks compute. One bit of any gradient of any rank, or of what it gives to other ranks of its
 * group, is found, and that rank is named; equal results are never called different. A step that
 * failed is done again, and at the end the state has the bits of a run without comparisons and
 * faults. FLIPS=n flips in all (default 96), CHECKS=n comparisons of equal results (default
 * 96). */
#define RANKS_MAX 12
#include "mesh/checks.h"

static const struct kind {
    const char *name;
    int axis_ranks[MESH_AXES], chunks;
    bool is_tied; /* with PP; the others of PP have an output layer of its own */
} kinds[] = {
    {"TP=2", {[MESH_AXIS_TENSOR] = 2}, .chunks = 1},
    {"CP=2", {[MESH_AXIS_CONTEXT] = 2}, .chunks = 1},
    {"TP=2 CP=2", {[MESH_AXIS_TENSOR] = 2, [MESH_AXIS_CONTEXT] = 2}, .chunks = 1},
    {"PP=2", {[MESH_AXIS_PIPELINE] = 2}, .chunks = 1},
    {"PP=2 in two chunks", {[MESH_AXIS_PIPELINE] = 2}, .chunks = 2},
    {"TP=2 PP=2", {[MESH_AXIS_TENSOR] = 2, [MESH_AXIS_PIPELINE] = 2}, .chunks = 1},
    {"PP=3, tied", {[MESH_AXIS_PIPELINE] = 3}, .chunks = 1, .is_tied = true},
    {"PP=2 in two chunks, tied", {[MESH_AXIS_PIPELINE] = 2}, .chunks = 2, .is_tied = true},
    {"TP=2 PP=2, tied",
     {[MESH_AXIS_TENSOR] = 2, [MESH_AXIS_PIPELINE] = 2},
     .chunks = 1,
     .is_tied = true},
    {"TP=2 PP=2 in two chunks, tied",
     {[MESH_AXIS_TENSOR] = 2, [MESH_AXIS_PIPELINE] = 2},
     .chunks = 2,
     .is_tied = true},
};
#define KINDS (int)(sizeof kinds / sizeof *kinds)
#define GROUPS 2 /* two, or three */
#define SHARDS 2 /* of one micro-batch, of two */
#define GROUP_RUNS (KINDS * GROUPS * SHARDS)

static int group_ranks(const struct kind *kind)
{
    int ranks = 1;
    for (int axis = 0; axis < MESH_AXES; axis++)
        ranks *= kind->axis_ranks[axis] > 0 ? kind->axis_ranks[axis] : 1;
    return ranks;
}

static struct checks_job job_of_groups(const struct kind *kind, enum layout_shard shard, int shards)
{
    struct checks_job job = {
        .trial = trial_of(MODEL_TASK_LM, 12, 24), .in_gives = true, .flip_first = 1};
    struct step_config *c = &job.trial.config;
    const bool has_stages = kind->axis_ranks[MESH_AXIS_PIPELINE] > 1;
    c->dims.heads = 4;
    c->dims.embed = 48;
    c->dims.layers = has_stages ? 4 : 2;
    c->dims.features.is_untied = has_stages && !kind->is_tied;
    memcpy(c->axis_ranks, kind->axis_ranks, sizeof c->axis_ranks);
    c->pipe_chunks = kind->chunks;
    c->store.shard = shard;
    c->shards = kind->is_tied ? 12 : shards; /* of one micro-batch */
    c->dropout = 0.1f;
    return job;
}

TEST(test_groups)
{
    struct checks_totals all = {0};
    for (int i = 0; i < GROUP_RUNS; i++) {
        const struct kind *kind = &kinds[i / SHARDS / GROUPS];
        const int ranks = group_ranks(kind) * (2 + i / SHARDS % GROUPS),
                  flips = harness_number("FLIPS", 96);
        struct checks_job like = job_of_groups(
            kind, (enum layout_shard)(i % (LAYOUT_SHARD_FULL + 1)), i % SHARDS ? 6 : 12);
        like.draw_first = flips * i / GROUP_RUNS;
        like.flips = checks_share(flips, i, GROUP_RUNS);
        like.trial.steps =
            1 + like.flips + checks_share(harness_number("CHECKS", 96), i, GROUP_RUNS);
        const struct checks_job *job = checks_compare(like, ranks, kind->name);
        const struct checks_totals one =
            (struct checks_totals){job->found, job->named, job->compared};
        all.found += one.found;
        all.named += one.named;
        all.compared += one.compared;
    }
    print_message("# groups: %d flips found, %d named; %d comparisons of equal results\n",
                  all.found, all.named, all.compared);
}

TEST(test_weights)
{
    for (int i = 0; i < KINDS; i++)
        for (int groups = 2; groups <= 3; groups++) {
            /* A weight that is wrong makes all that follows from it wrong, in all ranks of the
             * group. Of three groups the rank that has it is named; of two the ranks at its place
             * are. */
            const int ranks = groups * group_ranks(&kinds[i]);
            struct checks_job like = job_of_groups(&kinds[i], LAYOUT_SHARD_NONE, 6);
            like.asks = like.in_weights = true;
            like.flips = 8;
            like.trial.steps = 9;
            checks_run(&like, ranks);
            trial_free(&checks_jobs[0].trial);
            for (int rank = 0; rank < ranks; rank++) {
                assert_int_equal(checks_jobs[rank].found, 8);
                assert_int_equal(checks_jobs[rank].once, 0);
                assert_int_equal(checks_jobs[rank].named, groups > 2 ? 8 : 0);
                assert_int_equal(checks_jobs[rank].paired, groups > 2 ? 0 : 8);
            }
        }
}

TEST(test_together)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].axis_ranks[MESH_AXIS_PIPELINE] == 0) {
            /* All ranks of a group are wrong at once, as after a wrong sum: no rank is named, the
             * group is. */
            const int ranks = 3 * group_ranks(&kinds[i]);
            struct checks_job like = job_of_groups(&kinds[i], LAYOUT_SHARD_NONE, 6);
            like.asks = like.in_all = true;
            like.flips = 4;
            like.trial.steps = 5;
            checks_run(&like, ranks);
            trial_free(&checks_jobs[0].trial);
            for (int rank = 0; rank < ranks; rank++) {
                assert_int_equal(checks_jobs[rank].found, 4);
                assert_int_equal(checks_jobs[rank].once, 4);
                assert_int_equal(checks_jobs[rank].grouped, 4);
                assert_int_equal(checks_jobs[rank].named, 0);
            }
        }
}

enum { INPUT_QA, INPUT_WINDOW, INPUT_BALANCE, INPUTS_N };

static void group_input(const struct kind *kind, int input)
{
    struct checks_job like = job_of_groups(kind, LAYOUT_SHARD_FULL, 12);
    struct step_config *c = &like.trial.config;
    const int groups = input == INPUT_BALANCE ? 3 : 2;
    like.flips = 2;
    like.trial.steps = input == INPUT_BALANCE ? 12 : 4;
    c->balances = input == INPUT_BALANCE;
    if (input == INPUT_WINDOW)
        c->window_warmup = (struct warmup){.from = 3, .steps = 3};
    if (input == INPUT_QA) {
        c->dims.task = MODEL_TASK_QA;
        c->dims.features.is_untied = false;
        c->seq_tokens = 16; /* parts of two numbers for each position are aligned */
    }
    checks_compare(like, groups * group_ranks(kind), kind->name);
}

/* What passes read besides tokens, with groups: answers and masks, a window. Shards dealt by speed,
 * which pipelines do not take. */
TEST(test_group_inputs)
{
    for (int i = 0; i < KINDS; i++)
        for (int input = 0; input < INPUTS_N; input++)
            if (input != INPUT_BALANCE || kinds[i].axis_ranks[MESH_AXIS_PIPELINE] == 0)
                group_input(&kinds[i], input);
}

/* One group has nothing to compare. */
TEST(test_one_group)
{
    for (int i = 0; i < KINDS; i++) {
        struct checks_job like = job_of_groups(&kinds[i], LAYOUT_SHARD_NONE, 12);
        like.asks = true;
        like.trial.steps = 2;
        struct checks_job *job = checks_run(&like, group_ranks(&kinds[i]));
        trial_free(&job->trial);
        assert_int_equal(job->compared, 0);
    }
}

HARNESS_RUN_ALL()
