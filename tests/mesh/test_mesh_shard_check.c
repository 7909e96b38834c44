/* test_mesh_shard_check — EXACT=layout: a virtual shard that two ranks compute. One bit of any
 * gradient of any rank, in its own passes or in those for another rank, is found, and that rank is
 * named; equal results are never called different. A step that failed is done again, and at the end
 * the state has the bits of a run without comparisons and faults. FLIPS=n flips in all (default
 * 96), CHECKS=n comparisons of equal results (default 96). */
#include "mesh/trial.h"

#include <stdlib.h>

#include "base/text.h"
#include "train/step_inside.h"

#define SEED 23
#define LAYOUTS 4
#define WORLDS 3 /* 2, 3 and 4 ranks */
#define RUNS (WORLDS * (LAYOUT_SHARD_FULL + 1) * LAYOUTS)

struct job {
    struct trial trial; /* first: its loss, norm and state are compared */
    struct feed *feed;
    bool asks;     /* the steps compare */
    int flips;     /* asks: one before each of so many steps */
    unsigned also; /* passes in which the bit flips again */
    bool in_copy;  /* a bit of a parameter flips, in the copy that passes read */
    int draw_first;
    int found, named, once, undecided; /* of flips: on this rank */
    int called, compared;              /* steps without one: called different, compared at all */
};

static int asked(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

static int64_t draw(int i, int what, int64_t n)
{
    return (int64_t)rand_below(SEED, RAND_STREAM(TEST, what), (uint64_t)i, (uint64_t)n);
}

static int64_t elems_of(const struct param_table *table, int unit)
{
    int64_t elems = 0;
    for (int i = 0; i < table->params_n; i++)
        elems += table->param[i].unit == unit ? table->param[i].elems : 0;
    return elems;
}

static enum status run_step(struct job *job, struct step *step, int i)
{
    if (job->asks)
        step_shard_check_ask(step, i + 1);
    return step_run(step, job->feed, i, i * job->trial.config.global_samples, job->trial.lr,
                    STEP_FAULT_NONE, &job->trial.last);
}

/* flip_at — flip i: of any unit, element and bit. */
static struct step_shard_flip flip_at(const struct job *job, const struct step *step, int i)
{
    const struct param_table *table = step_own_table(step);
    const int unit = (int)draw(i, 1, table->units_n);
    return (struct step_shard_flip){
        .passes = (draw(i, 4, 2) ? STEP_SHARD_PASS_OWN : STEP_SHARD_PASS_CHECK) | job->also,
        .unit = unit,
        .elem = draw(i, 2, elems_of(table, unit)),
        .bit = (int)draw(i, 3, 32)};
}

/* flip_copy — SHARD=full: of the first position's embedding, which every sample reads. Its unit is
 * gathered once, here for the logits, and stays until the update. */
static void flip_copy(const struct step *step)
{
    struct pass p = {0};
    store_bind(step->store, &p);
    *(uint32_t *)tensor_at(p.params, p.table->param[1].offset).data ^= UINT32_C(1) << 20;
}

/* plant — the fault i, on one rank. */
static enum status plant(struct job *job, struct step *step, int i, bool is_here)
{
    float logits[512];
    const struct step_shard_flip bit = flip_at(job, step, i);
    if (job->in_copy)
        TRY(step_logits(step, &(int32_t){7}, 1, logits));
    if (is_here && job->in_copy)
        flip_copy(step);
    else if (is_here)
        step_shard_check_flip(step, &bit);
    return ST_OK;
}

/* flip — in a step that fails on all ranks. The state stays as it was, so it can be done again. */
static enum status flip(const struct ranks_one *one, struct job *job, struct step *step, int at)
{
    const int i = job->draw_first + at, wrong = (int)draw(i, 0, one->ranks);
    char text[64];
    TRY(plant(job, step, i, one->rank == wrong));
    enum status st = run_step(job, step, at);
    if (st != ST_FAULT && st != ST_PEER)
        return st;
    const char *message = status_message();
    text_format(text, sizeof text, " of rank %d differ from those of most of ", wrong);
    job->found++;
    job->named += (st == ST_FAULT) == (one->rank == wrong) && strstr(message, text) != NULL;
    job->undecided += st == ST_PEER && strstr(message, "no majority of ") != NULL;
    job->once += step_shard_check_found(step) == STEP_SHARD_FOUND_ONCE;
    return ST_OK;
}

/* balance — the last rank is the slowest. */
static enum status balance(const struct ranks_one *one, struct job *job, struct step *step)
{
    struct step_result *r = &job->trial.last;
    r->compute_ms = (1 + one->rank) * (step_shards_deal(step, one->rank) + r->is_compared);
    return job->trial.config.balances ? step_shards_balance(step, r) : ST_OK;
}

static enum status steps(const struct ranks_one *one, struct job *job, struct step *step)
{
    for (int i = 0; i < job->trial.steps; i++) {
        if (job->asks && i < job->flips)
            TRY(flip(one, job, step, i));
        enum status st = run_step(job, step, i);
        job->called += st == ST_FAULT || st == ST_PEER;
        TRY(st);
        TRY(balance(one, job, step));
        job->compared += job->trial.last.is_compared;
        job->trial.loss[i] = job->trial.last.loss;
        job->trial.norm[i] = job->trial.last.grad_norm;
    }
    return ST_OK;
}

static enum status rank_main(struct ranks_one *one)
{
    struct job *job = one->arg;
    struct step_config *c = &job->trial.config;
    const struct feed_config feed = {.task = c->dims.task == MODEL_TASK_QA ? FEED_TASK_QA
                                                                           : FEED_TASK_LM,
                                     .data = FEED_SYNTHETIC,
                                     .seq_tokens = c->seq_tokens,
                                     .global_samples = c->global_samples,
                                     .vocab = c->dims.vocab,
                                     .seed = 9};
    struct step *step = NULL;
    enum status st;
    c->dev = one->dev, c->comm = one->comm;
    c->checks_shards = job->asks;
    TRY_OR(feed_open(&feed, &job->feed), out_close);
    TRY_OR(step_open(c, &step), out_close);
    job->trial.elems = step_whole_table(step)->parameters;
    TRY_OR(steps(one, job, step), out_close);
    TRY_OR(trial_take(one, &job->trial, step), out_close);
out_close:
    step_close(step);
    feed_close(job->feed);
    return st;
}

static struct job jobs[RANKS_MAX];

/* run — `like` on n ranks; every second world has a node for each. Returns rank 0's job. */
static struct job *run(const struct job *like, int n)
{
    struct ranks_one one[RANKS_MAX];
    for (int rank = 0; rank < n; rank++)
        jobs[rank] = *like;
    ranks_try(n % 2 ? n : 1, n % 2 ? 1 : n, RANKS_TIMEOUT_MS, rank_main, jobs, sizeof *jobs, one);
    for (int rank = 0; rank < n; rank++)
        if (one[rank].st != ST_OK)
            fail_msg("rank %d of %d: %s", rank, n, one[rank].message);
    return &jobs[0];
}

/* job_of — shards of one micro-batch, of two, unequal runs of them, and one for each rank. */
static struct job job_of(int ranks, enum layout_shard shard, int layout)
{
    const int samples[LAYOUTS] = {12, 12, 14, ranks}, shards[LAYOUTS] = {12, 6, 7, ranks};
    struct job job = {.trial = trial_of(MODEL_TASK_LM, samples[layout], 11)};
    job.trial.config.store.shard = shard;
    job.trial.config.shards = shards[layout];
    job.trial.config.dropout = 0.1f;
    return job;
}

/* share — the part of n that run i of all has. */
static int share(int n, int i) { return n * (i + 1) / RUNS - n * i / RUNS; }

struct totals {
    int found, named, compared;
};

/* compare_with_calm — with comparisons and flips `like` has the losses, norms and state that it has
 * without. Returns rank 0's job. */
static const struct job *compare_with_calm(struct job like, int ranks, const char *what)
{
    struct job calm = *run(&like, ranks);
    like.asks = true;
    struct job *job = run(&like, ranks);
    trial_same(&job->trial, &calm.trial, what);
    trial_free(&job->trial);
    trial_free(&calm.trial);
    assert_int_equal(job->compared, like.trial.steps);
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(jobs[rank].called, 0);
        assert_int_equal(jobs[rank].found, like.flips);
        assert_int_equal(jobs[rank].named, like.flips);
        assert_int_equal(jobs[rank].once, like.flips);
    }
    return job;
}

static void run_one(int i, struct totals *sum)
{
    const int ranks = 2 + i / LAYOUTS % WORLDS, flips = asked("FLIPS", 96);
    struct job like = job_of(ranks, (enum layout_shard)(i / LAYOUTS / WORLDS), i % LAYOUTS);
    like.draw_first = flips * i / RUNS;
    like.flips = share(flips, i);
    like.trial.steps = like.flips + share(asked("CHECKS", 96), i);
    const struct job *job = compare_with_calm(like, ranks, "random flips");
    sum->found += job->found;
    sum->named += job->named;
    sum->compared += job->compared;
}

static void test_flips(void **state)
{
    (void)state;
    struct totals sum = {0};
    for (int i = 0; i < RUNS; i++)
        run_one(i, &sum);
    print_message("# gradients: %d flips found, %d named; %d comparisons of equal results\n",
                  sum.found, sum.named, sum.compared);
}

/* What passes read besides tokens is that of the shard, too: answers and masks, a window. Shards
 * are dealt by speed, or activations recomputed. */
static void test_inputs(void **state)
{
    (void)state;
    struct job job[4];
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
        compare_with_calm(job[i], 3, "inputs");
}

/* A copy of parameters is gathered anew before the shard is computed again: the state is right. */
static void test_copy(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        struct job like = job_of(ranks, LAYOUT_SHARD_FULL, 1);
        like.in_copy = true;
        like.flips = like.trial.steps = 4;
        compare_with_calm(like, ranks, "a flip in what passes read");
    }
}

/* A rank that is wrong again is named where a majority is right; of two ranks none is named. The
 * state is suspect in both cases. */
static void test_lasting(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        struct job like = job_of(ranks, LAYOUT_SHARD_FULL, 0);
        like.asks = true;
        like.also = STEP_SHARD_PASS_AGAIN;
        like.flips = like.trial.steps = 8;
        run(&like, ranks);
        trial_free(&jobs[0].trial);
        for (int rank = 0; rank < ranks; rank++) {
            assert_int_equal(jobs[rank].found, 8);
            assert_int_equal(jobs[rank].once, 0);
            assert_int_equal(jobs[rank].named, ranks > 2 ? 8 : 0);
            assert_int_equal(jobs[rank].undecided, ranks > 2 ? 0 : 8);
        }
    }
}

/* One rank has nothing to compare, and nothing is in its way. */
static void test_alone(void **state)
{
    (void)state;
    struct job like = job_of(1, LAYOUT_SHARD_NONE, 0);
    like.asks = true;
    like.trial.steps = 2;
    struct job *job = run(&like, 1);
    trial_free(&job->trial);
    assert_int_equal(job->compared, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_flips), cmocka_unit_test(test_inputs), cmocka_unit_test(test_copy),
    cmocka_unit_test(test_lasting), cmocka_unit_test(test_alone)};
HARNESS_MAIN(tests)
