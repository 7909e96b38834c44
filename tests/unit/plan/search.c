/* search — MESH=auto against every way tried one by one; what is fixed stays; what a job on
 * more or fewer nodes is; the report as text and JSON. */
#include "harness.h"

#include "base/json.h"
#include "plan/plan_search.h"
#include "plan/plan_report.h"

static struct plan_cluster cluster;

/* A model of 24 layers that 8 devices of so much memory train together. */
static struct plan_job job_of(double memory_bytes, int64_t samples)
{
    struct plan_job job = {.cluster = &cluster,
                           .at = {.ranks = 8, .nodes = 2, .locals = 4},
                           .precision = PLAN_PRECISION_BF16,
                           .stays_on_device = true};
    struct step_config *s = &job.config.step;
    assert_int_equal(plan_cluster_open("a100-80", &cluster), ST_OK);
    cluster.locals = 4;
    cluster.memory_bytes = memory_bytes;
    assert_true(model_preset("gpt2-medium", &s->dims));
    model_resolve(&s->dims);
    s->store.dtype = DTYPE_BF16;
    s->store.group_ranks = 4;
    s->batch_samples = 1;
    s->global_samples = samples;
    s->seq_tokens = 1024;
    s->optim.kind = OPTIM_KIND_ADAMW;
    for (int axis = 0; axis < MESH_AXES; axis++)
        s->axis_ranks[axis] = 1;
    job.config.checkpoint_dir = "";
    return job;
}

static double time_of(struct plan_job *job)
{
    struct plan_estimate estimate;
    bool is_made = plan_job_fits(job) && plan_estimate_make(job, &estimate) == ST_OK;
    status_clear();
    return is_made ? estimate.time.step_ms : INFINITY;
}

/* every_batch — with all micro-batches, SHARD and words of RECOMPUTE on one mesh. */
static double every_batch(struct plan_job *job)
{
    static const enum layout_shard shards[] = {LAYOUT_SHARD_NONE, LAYOUT_SHARD_OPTIMIZER,
                                               LAYOUT_SHARD_FULL};
    double least = INFINITY;
    struct step_config *s = &job->config.step;
    for (int way = MODEL_RECOMPUTE_NONE; way <= MODEL_RECOMPUTE_BLOCK; way++)
        for (int i = 0; i < 3; i++)
            for (s->batch_samples = 1; s->batch_samples <= 16; s->batch_samples *= 2) {
                s->recompute = (struct model_recomputed){.way = (enum model_recompute)way};
                s->store.shard = shards[i];
                least = fmin(least, time_of(job));
            }
    return least;
}

static double every_way(struct plan_job job)
{
    double least = INFINITY;
    int *ranks = job.config.step.axis_ranks;
    for (ranks[MESH_AXIS_TENSOR] = 1; ranks[MESH_AXIS_TENSOR] <= 4; ranks[MESH_AXIS_TENSOR] *= 2)
        for (int stages = 1; stages <= 8 / ranks[MESH_AXIS_TENSOR]; stages *= 2) {
            ranks[MESH_AXIS_PIPELINE] = stages;
            least = fmin(least, every_batch(&job));
        }
    return least;
}

static int axes_of(const struct plan_job *job)
{
    const int *ranks = job->config.step.axis_ranks;
    return (ranks[MESH_AXIS_TENSOR] > 1) + (ranks[MESH_AXIS_CONTEXT] > 1) +
           (ranks[MESH_AXIS_PIPELINE] > 1);
}

/* check_order — of way k and those before it: another mesh; up to `near` milliseconds the simpler
 * first, then the faster. */
static void check_order(const struct plan_search *found, int k, double near)
{
    const size_t bytes = sizeof found->job[0].config.step.axis_ranks;
    for (int i = 0; i < k; i++) {
        assert_memory_not_equal(found->job[i].config.step.axis_ranks,
                                found->job[k].config.step.axis_ranks, bytes);
        if (found->estimate[k].time.step_ms <= near)
            assert_true(axes_of(&found->job[i]) <= axes_of(&found->job[k]));
        else
            assert_true(found->estimate[i].time.step_ms <= found->estimate[k].time.step_ms);
    }
}

TEST(test_against_every_way)
{
    static const struct plan_search_fixed nothing = {.chunks = false};
    static const double memories[] = {8e9, 12e9, 44e9};
    static struct plan_search found;
    static struct plan_memory memory;
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++) {
        struct plan_job job = job_of(memories[i], 32);
        plan_search_make(&job, &nothing, &found);
        assert_true(found.found_n > 0);
        double least = 1e3 / found.fastest_tokens_per_second * found.estimate[0].tokens,
               near = (1 + PLAN_SEARCH_NEAR) * least;
        assert_true(least <= 1.001 * every_way(job));
        assert_true(found.estimate[0].time.step_ms <= near * 1.000001);
        for (int k = 0; k < found.found_n; k++) {
            assert_int_equal(plan_job_memory(&found.job[k], &memory), ST_OK);
            assert_true(plan_job_memory_over(&found.job[k], &memory) <= 0);
            check_order(&found, k, near);
        }
    }
}

TEST(test_nothing_fits)
{
    static const struct plan_search_fixed nothing = {.chunks = false};
    static struct plan_search found;
    static struct plan_memory memory;
    struct plan_job job = job_of(1e9, 32);
    plan_search_make(&job, &nothing, &found);
    assert_int_equal(found.found_n, 0);
    assert_int_equal(plan_job_memory(&job, &memory), ST_OK);
    assert_int_equal(plan_job_memory_over(&job, &memory), memory.need_bytes - 1000000000);
}

TEST(test_fixed)
{
    static struct plan_search found;
    const struct plan_search_fixed fixed = {
        .axis = {[MESH_AXIS_PIPELINE] = true}, .batch = true, .shard = true, .recompute = true};
    struct plan_job job = job_of(40e9, 32);
    struct step_config *s = &job.config.step;
    s->axis_ranks[MESH_AXIS_PIPELINE] = 2;
    s->batch_samples = 2;
    s->store.shard = LAYOUT_SHARD_NONE;
    s->recompute.way = MODEL_RECOMPUTE_ATTENTION;
    plan_search_make(&job, &fixed, &found);
    assert_true(found.found_n >= 2);
    for (int i = 0; i < found.found_n; i++) {
        s = &found.job[i].config.step;
        assert_int_equal(s->axis_ranks[MESH_AXIS_PIPELINE], 2);
        assert_int_equal(s->batch_samples, 2);
        assert_int_equal(s->store.shard, LAYOUT_SHARD_NONE);
        assert_int_equal(s->recompute.way, MODEL_RECOMPUTE_ATTENTION);
        assert_int_equal(s->global_samples, 32);
    }
}

/* A third node on a slow link adds little; on a fast one it is worth it. */
TEST(test_nodes)
{
    static const struct plan_search_fixed nothing = {.chunks = false};
    static struct plan_advice advice;
    struct plan_job job = job_of(40e9, 8), other;
    job.follows_ranks = true;
    assert_true(plan_job_nodes(&job, 3, &other));
    assert_int_equal(other.config.step.global_samples, 12);
    assert_int_equal(other.at.ranks, 12);
    job.follows_ranks = false;
    assert_false(plan_job_nodes(&job, 3, &other)); /* 8 samples among 12 ranks */
    job.follows_ranks = true;
    for (int is_slow = 0; is_slow < 2; is_slow++) {
        cluster.across.bytes_per_second = is_slow ? 1e8 : 2e11;
        plan_search_advice(&job, &nothing, NULL, &advice);
        assert_true(advice.search.found_n > 0);
        assert_true(advice.less.is_known && advice.less.nodes == 1);
        assert_true(advice.more.is_known && advice.more.nodes == 3);
        assert_int_equal(plan_search_is_worth(advice.less.speed_ratio, 2), !is_slow);
    }
    assert_true(plan_search_is_worth(1.2, 3));
    assert_false(plan_search_is_worth(1.01, 3));
}

/* 32 samples go with 8 and 16 ranks, not with 12: nothing is known of 3 nodes. Of 4 nodes, the
 * third is left out too. MESH=auto compares the fastest ways. */
TEST(test_nodes_of_auto)
{
    static const struct plan_search_fixed nothing = {.chunks = false};
    static struct plan_search found;
    static struct plan_advice advice;
    struct plan_job job = job_of(40e9, 32);
    plan_search_make(&job, &nothing, &found);
    plan_search_advice(&found.job[0], &nothing, &found, &advice);
    assert_int_equal(advice.search.found_n, 0);
    assert_false(advice.more.is_known);
    assert_true(advice.less.is_known);
    assert_float_equal(advice.less.speed_ratio,
                       found.fastest_tokens_per_second / advice.less.tokens_per_second, 1e-12);
    assert_true(advice.less.speed_ratio > 1.5 && advice.less.speed_ratio < 2.1);
}

TEST(test_lacks)
{
    struct plan_estimate estimate;
    struct plan_job job = job_of(40e9, 32);
    cluster.across.bytes_per_second = 0;
    assert_int_equal(plan_estimate_make(&job, &estimate), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "no link between nodes"));
    cluster.peak[PLAN_PRECISION_BF16] = 0;
    assert_int_equal(plan_estimate_make(&job, &estimate), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "computes nothing in bf16"));
}

/* Devices that compute nothing in this precision: memory is not why. */
TEST(test_failure)
{
    static const struct plan_search_fixed nothing = {.chunks = false};
    static struct plan_search found;
    struct plan_job job = job_of(40e9, 32);
    cluster.peak[PLAN_PRECISION_BF16] = 0;
    plan_search_make(&job, &nothing, &found);
    assert_int_equal(found.found_n, 0);
    assert_int_equal(found.failure, ST_BAD_SETTING);
    assert_non_null(strstr(found.why.message, "computes nothing in bf16"));
    job = job_of(1e9, 32);
    plan_search_make(&job, &nothing, &found);
    assert_int_equal(found.found_n, 0);
    assert_int_equal(found.failure, ST_OK);
}

/* One rank for each shard of the model: nothing is there to shard. */
TEST(test_no_copies)
{
    static struct plan_search found;
    const struct plan_search_fixed fixed = {
        .axis = {[MESH_AXIS_PIPELINE] = true, [MESH_AXIS_TENSOR] = true}};
    struct plan_job job = job_of(8e9, 32);
    job.config.step.axis_ranks[MESH_AXIS_TENSOR] = 4;
    job.config.step.axis_ranks[MESH_AXIS_PIPELINE] = 2;
    plan_search_make(&job, &fixed, &found);
    assert_int_equal(found.found_n, 1);
    assert_int_equal(found.job[0].config.step.store.shard, LAYOUT_SHARD_NONE);
}

/* LOCAL_STEPS: each device holds the whole model, so there is one mesh without SHARD; a 17th node
 * is not known to help. */
TEST(test_local)
{
    static const struct plan_search_fixed nothing = {.chunks = false};
    static struct plan_search found;
    struct plan_advice advice;
    struct plan_job job = job_of(80e9, 64);
    job.config.step.local =
        (struct step_local_config){.steps = 10, .replica_ranks = 4, .lr = 0.7, .momentum = 0.9};
    plan_search_make(&job, &nothing, &found);
    assert_int_equal(found.found_n, 1);
    assert_int_equal(axes_of(&found.job[0]), 0);
    assert_int_equal(found.job[0].config.step.store.shard, LAYOUT_SHARD_NONE);
    assert_true(plan_job_nodes(&job, 16, &job));
    job.follows_ranks = true;
    plan_search_advice(&job, &nothing, NULL, &advice);
    assert_true(advice.less.is_known);
    assert_int_equal(advice.more.nodes, 17);
    assert_false(advice.more.is_known);
}

/* A checkpoint of four nodes has 14 arrays instead of 3: outer parameters and momentum, and of each
 * node two moments and, between two outer steps, its own parameters. */
TEST(test_local_checkpoint)
{
    struct plan_estimate alone, local;
    struct plan_job job = job_of(80e9, 32);
    job.at = (struct comm_place){.ranks = 4, .nodes = 4, .locals = 1};
    cluster.locals = 1;
    job.config.checkpoint_dir = "here";
    job.config.checkpoint_every = 1;
    job.config.checkpoint_mode = CHECKPOINT_ASYNC_MODE_ON;
    cluster.across.bytes_per_second = 1e13; /* the copy in memory is what takes time */
    assert_int_equal(plan_estimate_make(&job, &alone), ST_OK);
    job.config.step.local =
        (struct step_local_config){.steps = 10, .replica_ranks = 1, .lr = 0.7, .momentum = 0.9};
    assert_int_equal(plan_estimate_make(&job, &local), ST_OK);
    assert_float_equal(local.time.ms[PLAN_TIME_CHECKPOINT] / alone.time.ms[PLAN_TIME_CHECKPOINT],
                       14.0 / 3, 1e-3);
}

TEST(test_report)
{
    static struct plan_memory memory;
    struct plan_estimate estimate;
    struct plan_job job = job_of(40e9, 32);
    struct text text = {0}, json = {0};
    cJSON *root;
    assert_int_equal(plan_job_memory(&job, &memory), ST_OK);
    assert_int_equal(plan_estimate_make(&job, &estimate), ST_OK);
    const struct plan_report report = {
        .job = &job, .memory = &memory, .estimate = &estimate, .tokens = 1e9};
    plan_report_text(&report, &text);
    assert_non_null(
        strstr(text.data, "TP=1 PP=1 CP=1 SHARD=none RECOMPUTE=none BATCH_SIZE=1 GLOBAL_BATCH=32"));
    assert_non_null(strstr(text.data, "products"));
    assert_non_null(strstr(text.data, "1.00G tokens: "));
    assert_int_equal(plan_json_write(&report, &json), ST_OK);
    assert_int_equal(json_parse(json.data, json.len, "plan", &root), ST_OK);
    assert_float_equal(json_number(cJSON_GetObjectItem(root, "step_ms"), "all"),
                       estimate.time.step_ms, 1e-9 * estimate.time.step_ms);
    cJSON_Delete(root);
    text_free(&text);
    text_free(&json);
}

HARNESS_RUN_ALL()
