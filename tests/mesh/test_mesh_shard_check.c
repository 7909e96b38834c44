/* test_mesh_shard_check — EXACT=layout: a virtual shard that two ranks compute. One bit of any
 * gradient of any rank, in its own passes or in those for another rank, is found, and that rank is
 * named; equal results are never called different. A step that failed is done again, and at the end
 * the state has the bits of a run without comparisons and faults. FLIPS=n flips in all (default
 * 96), CHECKS=n comparisons of equal results (default 96). */
#include "mesh/checks.h"

#define LAYOUTS 4
#define WORLDS 3 /* 2, 3 and 4 ranks */
#define RUNS (WORLDS * (LAYOUT_SHARD_FULL + 1) * LAYOUTS)

/* job_of — shards of one micro-batch, of two, unequal runs of them, and one for each rank. */
static struct checks_job job_of(int ranks, enum layout_shard shard, int layout)
{
    const int samples[LAYOUTS] = {12, 12, 14, ranks}, shards[LAYOUTS] = {12, 6, 7, ranks};
    struct checks_job job = {.trial = trial_of(MODEL_TASK_LM, samples[layout], 11)};
    job.trial.config.store.shard = shard;
    job.trial.config.shards = shards[layout];
    job.trial.config.dropout = 0.1f;
    return job;
}

TEST(test_flips)
{
    struct checks_totals sum = {0};
    for (int i = 0; i < RUNS; i++) {
        const int ranks = 2 + i / LAYOUTS % WORLDS, flips = harness_number("FLIPS", 96);
        struct checks_job like =
            job_of(ranks, (enum layout_shard)(i / LAYOUTS / WORLDS), i % LAYOUTS);
        like.draw_first = flips * i / RUNS;
        like.flips = checks_share(flips, i, RUNS);
        like.trial.steps = like.flips + checks_share(harness_number("CHECKS", 96), i, RUNS);
        const struct checks_job *job = checks_compare(like, ranks, "random flips");
        sum.found += job->found;
        sum.named += job->named;
        sum.compared += job->compared;
    }
    print_message("# gradients: %d flips found, %d named; %d comparisons of equal results\n",
                  sum.found, sum.named, sum.compared);
}

/* What passes read besides tokens is that of the shard, too: answers and masks, a window. Shards
 * are dealt by speed, or activations recomputed. */
TEST(test_inputs)
{
    struct checks_job job[4];
    for (int i = 0; i < 4; i++) {
        job[i] = job_of(3, i % 2 ? LAYOUT_SHARD_FULL : LAYOUT_SHARD_NONE, i % 2 ? 0 : 2);
        job[i].flips = 2;
        job[i].trial.steps = 14;
    }
    job[0].trial.config.dims.task = MODEL_TASK_QA;
    job[1].trial.config.window_warmup = (struct warmup){.from = 3, .steps = 10};
    job[2].trial.config.balances = true;
    job[3].trial.config.recompute = model_recompute_nth(3, 9);
    for (int i = 0; i < 4; i++)
        checks_compare(job[i], 3, "inputs");
}

/* A copy of parameters is gathered anew before the shard is computed again: the state is right. */
TEST(test_copy)
{
    for (int ranks = 2; ranks <= 4; ranks++) {
        struct checks_job like = job_of(ranks, LAYOUT_SHARD_FULL, 1);
        like.in_copy = true;
        like.flips = like.trial.steps = 4;
        checks_compare(like, ranks, "a flip in what passes read");
    }
}

/* A rank that is wrong again is named where a majority is right; of two ranks none is named. The
 * state is suspect in both cases. */
TEST(test_lasting)
{
    for (int ranks = 2; ranks <= 4; ranks++) {
        struct checks_job like = job_of(ranks, LAYOUT_SHARD_FULL, 0);
        like.asks = true;
        like.also = STEP_SHARD_PASS_AGAIN;
        like.flips = like.trial.steps = 8;
        checks_run(&like, ranks);
        trial_free(&checks_jobs[0].trial);
        for (int rank = 0; rank < ranks; rank++) {
            assert_int_equal(checks_jobs[rank].found, 8);
            assert_int_equal(checks_jobs[rank].once, 0);
            assert_int_equal(checks_jobs[rank].named, ranks > 2 ? 8 : 0);
            assert_int_equal(checks_jobs[rank].undecided, ranks > 2 ? 0 : 8);
        }
    }
}

/* One rank has nothing to compare, and nothing is in its way. */
TEST(test_alone)
{
    struct checks_job like = job_of(1, LAYOUT_SHARD_NONE, 0);
    like.asks = true;
    like.trial.steps = 2;
    struct checks_job *job = checks_run(&like, 1);
    trial_free(&job->trial);
    assert_int_equal(job->compared, 0);
}

HARNESS_RUN_ALL()
