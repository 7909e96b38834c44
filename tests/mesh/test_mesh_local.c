/* test_mesh_local — LOCAL_STEPS: replicas that train by themselves against independent steps whose
 * outer update the test makes; all ranks have the same bits after an outer step; the state of all
 * replicas, read and written between two outer steps, continues bit for bit. */
#include "mesh/trial.h"

#include <xxhash.h>

#include "train/feature/step_local.h"
#include "train/step/memory.h"

#define EVERY 3
#define STEPS 14
#define SAMPLES 4

struct job {
    struct trial trial;
    int stop;    /* rank 0 reads the state of all replicas after so many steps … */
    int from;    /* … or all start from it */
    int steps;   /* 0: STEPS */
    bool ends;   /* the last step is followed by an outer step */
    float **all; /* its arrays, of `total` elements each */
    int64_t total;
    int arrays;
    uint64_t hash[STEPS]; /* of this rank's parameters, after each outer step */
    double loss[STEPS];
    float *params; /* rank 0: the outer parameters at the end, `elems` of them */
    int64_t elems;
};

static struct trial like(int locals)
{
    struct trial t = trial_of(MODEL_TASK_LM, SAMPLES, 8);
    t.config.local = (struct step_local_config){
        .steps = EVERY, .replica_ranks = locals, .lr = 0.7, .momentum = 0.9};
    t.config.batch_samples = 1;
    return t;
}

/* move — every array between the step and the job's arrays. */
static enum status move(struct job *job, struct step *step, bool is_put)
{
    enum status st = ST_OK;
    if (!is_put) {
        job->total = step_whole_table(step)->total_elems;
        job->arrays = state_count(step_state(step), step_local_is_apart(step));
    }
    for (int array = 0; st == ST_OK && array < job->arrays; array++) {
        if (!is_put)
            job->all[array] = calloc((size_t)job->total, sizeof(float));
        st = is_put ? state_write(step_state(step), array, 0, job->total, job->all[array])
                    : state_read(step_state(step), array, 0, job->total, job->all[array]);
    }
    return state_end(step_state(step), st);
}

static enum status state(struct ranks_one *one, struct job *job, struct step *step, bool is_put)
{
    return one->rank == 0 ? move(job, step, is_put) : state_serve(step_state(step));
}

static enum status one_step(struct ranks_one *one, struct job *job, struct step *step,
                            struct batch *b, int s)
{
    struct trial *t = &job->trial;
    int64_t first = 0, n = trial_samples(t, one, t->config.global_samples, &first);
    for (int64_t row = 0; row < n; row++)
        trial_sample(t, s, first + row, row, b);
    TRY(step_run_batch(step, b, s, s * SAMPLES, t->lr, false, &t->last));
    job->loss[s] = t->last.loss;
    TRY(step_local_sync(step, s + 1, job->ends && s + 1 == STEPS, &t->last));
    if (step_local_is_apart(step))
        return ST_OK;
    job->hash[s] = XXH3_64bits(step_array(step, 0),
                               (size_t)step_whole_table(step)->total_elems * sizeof(float));
    return ST_OK;
}

/* read_params — one tensor behind the other: the table's padding depends on the ranks. */
static enum status read_params(struct job *job, struct step *step)
{
    const struct param_table *table = step_whole_table(step);
    enum status st = ST_OK;
    free(job->params);
    job->params = calloc((size_t)table->parameters, sizeof(float));
    job->elems = table->parameters;
    float *to = job->params;
    for (int i = 0; st == ST_OK && i < table->params_n; to += table->param[i++].elems)
        st = state_read(step_state(step), 0, table->param[i].offset, table->param[i].elems, to);
    return state_end(step_state(step), st);
}

static enum status steps(struct ranks_one *one, struct job *job, struct step *step, struct batch *b)
{
    if (job->from > 0)
        TRY(state(one, job, step, true));
    for (int s = job->from; s < (job->steps > 0 ? job->steps : STEPS); s++) {
        TRY(one_step(one, job, step, b, s));
        if (s + 1 == job->stop)
            TRY(state(one, job, step, false));
    }
    return one->rank == 0 ? read_params(job, step) : state_serve(step_state(step));
}

static enum status rank(struct ranks_one *one)
{
    struct job *job = one->arg;
    struct trial *t = &job->trial;
    struct step *step = NULL;
    struct batch batch = {0};
    int64_t first, n = trial_samples(t, one, t->config.global_samples, &first);
    enum status st;
    t->config.dev = one->dev;
    t->config.comm = one->comm;
    TRY_OR(step_open(&t->config, &step), out_close);
    t->memory = step_memory(step);
    TRY_OR(batch_init(&batch, FEED_TASK_LM, n, t->config.seq_tokens), out_close);
    TRY_OR(steps(one, job, step, &batch), out_close);
out_close:
    step_close(step);
    batch_free(&batch);
    return st;
}

/* run — returns rank 0's; all ranks have the same losses, and the same bits after outer steps. */
static struct job run(const struct job *of, int nodes, int locals)
{
    static struct job all[RANKS_MAX];
    for (int i = 0; i < nodes * locals; i++)
        all[i] = *of;
    ranks_run(nodes, locals, rank, all, sizeof *all);
    for (int i = 1; i < nodes * locals; i++) {
        assert_memory_equal(all[i].hash, all[0].hash, sizeof all[0].hash);
        assert_memory_equal(all[i].loss, all[0].loss, sizeof all[0].loss);
    }
    return all[0];
}

/* ---- against independent steps ---- */

#define REPLICAS_MAX 4
struct truth {
    int replicas;
    struct step *step[REPLICAS_MAX];
    struct batch batch;
    struct trial trial;
    int64_t n;
    float *outer, *momentum;
    double loss[STEPS];
};

static float *own(struct truth *t, int r, int64_t i) { return &step_array(t->step[r], 0)[i]; }

/* outer_truth — Makes an outer step as in outer.h, one element after the other. The replicas'
 * differences are added up in pairs. */
static void outer_truth(struct truth *t, const struct step_local_config *c)
{
    const float momentum = (float)c->momentum, lr = (float)c->lr;
    for (int r = 0; r < t->replicas; r++)
        assert_int_equal(step_drain(t->step[r]), ST_OK);
    for (int64_t i = 0; i < t->n; i++) {
        float d[REPLICAS_MAX] = {0};
        for (int r = 0; r < t->replicas; r++)
            d[r] = t->outer[i] - *own(t, r, i);
        const float mean = ((d[0] + d[1]) + (d[2] + d[3])) / (float)t->replicas;
        t->momentum[i] = momentum * t->momentum[i] + mean;
        t->outer[i] -= lr * (mean + momentum * t->momentum[i]);
        for (int r = 0; r < t->replicas; r++)
            *own(t, r, i) = t->outer[i];
    }
}

static void run_truth(struct truth *t, const struct trial *of)
{
    t->trial = *of;
    t->trial.config.local = (struct step_local_config){0};
    t->trial.config.global_samples = SAMPLES / t->replicas;
    t->trial.config.dev = ranks_dev(0);
    for (int r = 0; r < t->replicas; r++)
        assert_int_equal(step_open(&t->trial.config, &t->step[r]), ST_OK);
    assert_int_equal(
        batch_init(&t->batch, FEED_TASK_LM, SAMPLES / t->replicas, of->config.seq_tokens), ST_OK);
    t->n = step_whole_table(t->step[0])->total_elems;
    t->outer = calloc((size_t)t->n, sizeof(float));
    t->momentum = calloc((size_t)t->n, sizeof(float));
    for (int64_t i = 0; i < t->n; i++)
        t->outer[i] = step_array(t->step[0], 0)[i];
    for (int s = 0; s < STEPS; s++) {
        struct step_result r;
        const int each = SAMPLES / t->replicas;
        t->loss[s] = 0;
        for (int replica = 0; replica < t->replicas; replica++) {
            struct trial whole = *of; /* numbers samples as the job does */
            for (int64_t row = 0; row < each; row++)
                trial_sample(&whole, s, replica * each + row, row, &t->batch);
            assert_int_equal(
                step_run_batch(t->step[replica], &t->batch, s, s * SAMPLES, of->lr, false, &r),
                ST_OK);
            t->loss[s] += r.loss / t->replicas;
        }
        if ((s + 1) % of->config.local.steps == 0 || s + 1 == STEPS)
            outer_truth(t, &of->config.local);
    }
}

static void against_truth(const struct trial *of, int nodes, int locals, double most)
{
    static struct truth want;
    memset(&want, 0, sizeof want);
    want.replicas = nodes;
    struct job job = {.trial = *of, .ends = true};
    double apart = 0;
    run_truth(&want, of);
    job = run(&job, nodes, locals);
    const struct param_table *table = step_whole_table(want.step[0]);
    const float *got = job.params;
    for (int row = 0; row < table->params_n; row++)
        for (int64_t i = 0; i < table->param[row].elems; i++)
            apart = fmax(apart,
                         fabs((double)*got++ - (double)want.outer[table->param[row].offset + i]));
    for (int s = 0; s < STEPS; s++)
        apart = fmax(apart, fabs(job.loss[s] - want.loss[s]));
    print_message("# %d x %d: parameters and losses differ by %.1e\n", nodes, locals, apart);
    assert_true(apart <= most);
    free(job.params);
    for (int r = 0; r < want.replicas; r++)
        step_close(want.step[r]);
    batch_free(&want.batch);
    free(want.outer);
    free(want.momentum);
}

TEST(test_outer_step)
{
    struct trial t = like(1);
    against_truth(&t, 2, 1, 0);
    against_truth(&t, 4, 1, 1e-6);
}

/* Two ranks in each replica, which add up gradients in another order than one. */
TEST(test_workers)
{
    struct trial t = like(2);
    against_truth(&t, 2, 2, 2e-3);
}

/* ---- compressed differences ---- */

/* compressed — beside a run without: all ranks have the same bits (run), other ones than without,
 * and near them; more memory is planned, and taken. */
static void compressed(const struct trial *of, int nodes, int locals, enum grad_compress_kind kind,
                       double most)
{
    struct job plain = {.trial = *of, .steps = of->steps > 0 ? of->steps : 7}, job = plain;
    double apart = 0;
    job.trial.config.local.compress = kind;
    plain = run(&plain, nodes, locals);
    job = run(&job, nodes, locals);
    assert_int_equal(job.elems, plain.elems);
    for (int64_t i = 0; i < job.elems; i++)
        apart = fmax(apart, fabs((double)job.params[i] - (double)plain.params[i]));
    print_message("# %d x %d, kind %d: parameters differ by %.1e\n", nodes, locals, (int)kind,
                  apart);
    assert_true(apart > 0 && apart <= most);
    assert_true(job.trial.memory.outer > plain.trial.memory.outer);
    free(job.params);
    free(plain.params);
}

TEST(test_compressed)
{
    const struct trial one = like(1), two = like(2);
    compressed(&one, 2, 1, GRAD_COMPRESS_KIND_BF16, 4e-3);
    compressed(&one, 2, 1, GRAD_COMPRESS_KIND_INT8, 4e-3);
    compressed(&one, 4, 1, GRAD_COMPRESS_KIND_INT8_ZSTD, 2e-2);
    compressed(&two, 2, 2, GRAD_COMPRESS_KIND_INT4_ZSTD, 6e-2);
}

/* ---- the state ---- */

static void continues_as(const struct trial *t, int nodes, int locals, int stop)
{
    float *all[STEP_ARRAYS_MAX * RANKS_MAX * 4] = {NULL};
    struct job first = {.trial = *t, .stop = stop, .all = all, .ends = true}, again;
    first = run(&first, nodes, locals);
    again = (struct job){.trial = *t,
                         .from = stop,
                         .all = all,
                         .total = first.total,
                         .arrays = first.arrays,
                         .ends = true};
    again = run(&again, nodes, locals);
    for (int s = stop; s < STEPS; s++)
        assert_memory_equal(&again.loss[s], &first.loss[s], sizeof again.loss[s]);
    assert_memory_equal(again.params, first.params, (size_t)first.elems * sizeof(float));
    for (int array = 0; array < first.arrays; array++)
        free(all[array]);
    free(first.params);
    free(again.params);
}

static void continues(int nodes, int locals, int stop)
{
    struct trial t = like(locals);
    continues_as(&t, nodes, locals, stop);
}

TEST(test_state)
{
    for (int stop = 2; stop <= 5; stop++) {
        continues(2, 1, stop);
        continues(2, 2, stop);
    }
    continues(1, 1, 4);
    continues(1, 2, 4);
    continues(4, 1, 4);
}

/* The state has the residuals of error feedback, too. */
TEST(test_state_of_residuals)
{
    struct trial t = like(2);
    t.config.local.compress = GRAD_COMPRESS_KIND_INT4_ZSTD;
    for (int stop = 5; stop <= 7; stop++)
        continues_as(&t, 2, 2, stop);
    t = like(1);
    t.config.local.compress = GRAD_COMPRESS_KIND_INT4;
    continues_as(&t, 4, 1, 5);
    continues_as(&t, 2, 1, 6);
}

/* A rank's part of the model is two buckets, the second of which has the rest. */
TEST(test_buckets)
{
    struct trial t = like(1);
    t.config.dims.vocab = STEP_LOCAL_BUCKET_ELEMS / t.config.dims.embed + 99;
    t.steps = EVERY; /* one outer step: what rounding changes has no consequences yet */
    compressed(&t, 2, 1, GRAD_COMPRESS_KIND_INT8, 4e-4);
    t.config.local.compress = GRAD_COMPRESS_KIND_INT8;
    continues_as(&t, 2, 1, 5);
}

/* Outer parameters, momentum and what is sent: three numbers for each parameter of this rank's
 * part, but nothing without LOCAL_STEPS. */
TEST(test_memory)
{
    struct job job = {.trial = like(1)};
    job = run(&job, 2, 1);
    assert_true(job.trial.memory.outer == 3 * job.trial.memory.store.params);
    free(job.params);
    struct trial without = like(1);
    struct step_memory memory;
    without.config.local.steps = 0;
    assert_int_equal(step_plan(&without.config, &(struct step_place){.ranks = 2}, &memory), ST_OK);
    assert_int_equal(memory.outer, 0);
}

static void refuses(const struct trial *t, int ranks, const char *why)
{
    struct step_memory memory;
    assert_int_equal(step_plan(&t->config, &(struct step_place){.ranks = ranks}, &memory),
                     ST_BAD_SETTING);
    if (!strstr(status_message(), why))
        fail_msg("%d ranks: %s, not \"%s\"", ranks, status_message(), why);
    status_clear();
}

/* A plan may be asked for any number of workers: what cannot be divided into nodes is refused. */
TEST(test_refusals)
{
    struct trial t = like(2);
    refuses(&t, 1, "1 workers are no multiple of 2");
    refuses(&t, 6, "GLOBAL_BATCH=4 is not a multiple of the 3 nodes");
    t = like(1);
    t.config.global_samples = 17;
    refuses(&t, 17, "at most 16 nodes, not 17");
}

HARNESS_RUN_ALL()
