/* checks — steps that compare a virtual shard computed twice (EXACT=layout), with a bit that flips
 * on a rank before each of some of them: whether it is found, and which rank is named. */
#ifndef CONVOY_TESTS_CHECKS_H
#define CONVOY_TESTS_CHECKS_H

#include "mesh/trial.h"

#include "train/step/pipe.h"
#include "train/feature/step_shard_check.h"
#include "train/feature/step_balance.h"

#define CHECKS_SEED 23

struct checks_job {
    struct trial trial; /* first: its loss, norm and state are compared */
    struct feed *feed;
    bool asks;       /* the steps compare */
    int flips;       /* asks: one before each of so many steps */
    unsigned also;   /* passes in which the bit flips again */
    bool in_copy;    /* a bit of a parameter flips, in the copy that passes read */
    bool in_gives;   /* two of three flips are in what a rank gives to others of its group */
    bool in_all;     /* all ranks of a group flip the same bit of what they give */
    bool in_weights; /* a bit of a weight of one rank flips, and flips back after the step */
    int flip_first;  /* the first step with a flip */
    int draw_first;
    int found, named, once, undecided; /* of flips: on this rank */
    int paired;                        /* undecided, with two ranks of which one was wrong */
    int grouped;                       /* the group was named, and not the rank */
    int called, compared;              /* steps without one: called different, compared at all */
};

static inline int64_t checks_draw(int i, int what, int64_t n)
{
    return (int64_t)rand_below(CHECKS_SEED, RAND_STREAM(TEST, what), (uint64_t)i, (uint64_t)n);
}

/* checks_elems_of — of a unit's gradient that this rank makes. */
static inline int64_t checks_elems_of(const struct step *step, int unit)
{
    const struct param_table *table = step_own_table(step);
    int64_t elems = 0;
    for (int i = 0; i < table->params_n; i++)
        elems += table->param[i].unit == unit && !step_pipe_ends_lacks(step_core(step), i)
                     ? table->param[i].elems
                     : 0;
    return elems;
}

static inline enum status checks_run_step(struct checks_job *job, struct step *step, int i)
{
    if (job->asks)
        step_shard_check_ask(step, i + 1);
    return step_run(step, job->feed, i, i * job->trial.config.global_samples, job->trial.lr,
                    STEP_FAULT_NONE, &job->trial.last);
}

/* checks_any_unit — of the units that have gradients on this rank. */
static inline int checks_any_unit(const struct step *step, int i)
{
    const int units_n = step_own_table(step)->units_n;
    int unit = (int)checks_draw(i, 1, units_n);
    while (checks_elems_of(step, unit) == 0)
        unit = (unit + 1) % units_n;
    return unit;
}

/* checks_flip_at — flip i: of any unit, element and bit; or of anything that is given, of which a
 * rank gave as much in the comparison before. */
static inline struct step_shard_flip checks_flip_at(const struct checks_job *job,
                                                    const struct step *step, int i)
{
    const int unit = checks_any_unit(step, i),
              gives = step_shard_check_of(step)->trace[STEP_SHARD_TRACE_CHECK].gives_n;
    return (struct step_shard_flip){
        .passes = (checks_draw(i, 4, 2) ? STEP_SHARD_PASS_OWN : STEP_SHARD_PASS_CHECK) | job->also,
        .give = job->in_gives && checks_draw(i, 5, 3) > 0 ? 1 + (int)checks_draw(i, 6, gives) : 0,
        .unit = unit,
        .elem = checks_draw(i, 2, checks_elems_of(step, unit)),
        .bit = (int)checks_draw(i, 3, 32)};
}

/* checks_flip_copy — SHARD=full: of the first position's embedding, which every sample reads. Its
 * unit is gathered once, here for the logits, and stays until the update. */
static inline void checks_flip_copy(const struct step *step)
{
    struct pass p = {0};
    store_bind(step_core(step)->store, &p);
    *(uint32_t *)tensor_at(p.params, p.table->param[1].offset).data ^= UINT32_C(1) << 20;
}

/* checks_flip_weight — SHARD=none: of any matrix of this rank behind the embedding; by half of its
 * value or more. */
static inline void checks_flip_weight(const struct step *step, int i)
{
    struct pass p = {0};
    store_bind(step_core(step)->store, &p);
    const struct param_table *table = step_own_table(step);
    int row = (int)checks_draw(i, 1, table->params_n);
    while (table->param[row].unit == 0 || table->param[row].elems < 512)
        row = (row + 1) % table->params_n;
    const int64_t at = table->param[row].offset + checks_draw(i, 2, table->param[row].elems);
    *(uint32_t *)tensor_at(p.params, at).data ^= UINT32_C(1) << 23;
}

/* checks_plant — the fault i, on one rank. */
static inline enum status checks_plant(struct checks_job *job, struct step *step, int i,
                                       bool is_here)
{
    float logits[512];
    struct step_shard_flip bit = checks_flip_at(job, step, i);
    bit.give = job->in_all ? 1 : bit.give;
    if (job->in_weights)
        TRY(store_drain(step_core(step)->store));
    if (job->in_copy)
        TRY(step_logits(step, &(int32_t){7}, 1, logits));
    if (is_here && job->in_copy)
        checks_flip_copy(step);
    else if (is_here && job->in_weights)
        checks_flip_weight(step, i);
    else if (is_here)
        step_shard_check_flip(step, &bit);
    return ST_OK;
}

/* checks_names_pair — both ranks of one place, of which one was wrong: that place is known. */
static inline bool checks_names_pair(const struct step *step, const char *message, int wrong)
{
    const struct mesh *mesh = &step_core(step)->mesh.mesh;
    int rank[RANKS_MAX];
    char text[64];
    const int n = mesh_group(mesh, wrong, MESH_BIT(MESH_AXIS_DATA), rank);
    text_format(text, sizeof text, " ranks %d and %d have different ", rank[0], rank[n - 1]);
    return strstr(message, text) != NULL;
}

static inline void checks_judge(const struct ranks_one *one, struct checks_job *job,
                                const struct step *step, int wrong, enum status st)
{
    const char *message = status_message();
    char text[64];
    text_format(text, sizeof text, " of rank %d differ from most of ", wrong);
    job->found++;
    job->named += (st == ST_FAULT) == (one->rank == wrong) && strstr(message, text) != NULL;
    job->undecided += st == ST_PEER && strstr(message, "no majority of ") != NULL;
    job->grouped += st == ST_PEER && strstr(message, "it is unknown which was wrong first") != NULL;
    job->paired += checks_names_pair(step, message, wrong);
    job->once += step_shard_check_found(step) == STEP_SHARD_FOUND_ONCE;
}

static inline bool checks_is_here(const struct ranks_one *one, const struct checks_job *job,
                                  const struct step *step, int wrong)
{
    const int group = mesh_coord_of(&step_core(step)->mesh.mesh, wrong).at[MESH_AXIS_DATA];
    return one->rank == wrong || (job->in_all && step_mesh_data_rank(step_core(step)) == group);
}

/* checks_flip — in a step that fails on all ranks. The state stays as it was, so it can be done
 * again. */
static inline enum status checks_flip(const struct ranks_one *one, struct checks_job *job,
                                      struct step *step, int at)
{
    const int i = job->draw_first + at, wrong = (int)checks_draw(i, 0, one->ranks);
    TRY(checks_plant(job, step, i, checks_is_here(one, job, step, wrong)));
    enum status st = checks_run_step(job, step, at);
    if (one->rank == wrong && job->in_weights)
        checks_flip_weight(step, i);
    if (st != ST_FAULT && st != ST_PEER)
        return st;
    checks_judge(one, job, step, wrong, st);
    return ST_OK;
}

/* checks_balance — the last rank is the slowest. */
static inline void checks_balance(const struct ranks_one *one, struct checks_job *job,
                                  struct step *step)
{
    if (job->trial.config.balances)
        step_balance_measured(
            step, (1 + one->rank) * step_balance_deal(step, step_mesh_data_rank(step_core(step))));
}

static inline enum status checks_steps(const struct ranks_one *one, struct checks_job *job,
                                       struct step *step)
{
    for (int i = 0; i < job->trial.steps; i++) {
        if (job->asks && i >= job->flip_first && i < job->flip_first + job->flips)
            TRY(checks_flip(one, job, step, i));
        enum status st = checks_run_step(job, step, i);
        job->called += st == ST_FAULT || st == ST_PEER;
        TRY(st);
        checks_balance(one, job, step);
        job->compared += job->trial.last.is_compared;
        job->trial.loss[i] = job->trial.last.loss;
        job->trial.norm[i] = job->trial.last.grad_norm;
    }
    return ST_OK;
}

static inline enum status checks_rank_main(struct ranks_one *one)
{
    struct checks_job *job = one->arg;
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
    TRY_OR(checks_steps(one, job, step), out_close);
    TRY_OR(trial_read(one, &job->trial, step), out_close);
out_close:
    step_close(step);
    feed_close(job->feed);
    return st;
}

static struct checks_job checks_jobs[RANKS_MAX];

/* checks_run — `like` on n ranks; every second world has a node for each. Returns rank 0's job. */
static inline struct checks_job *checks_run(const struct checks_job *like, int n)
{
    struct ranks_one one[RANKS_MAX];
    for (int rank = 0; rank < n; rank++)
        checks_jobs[rank] = *like;
    ranks_try(n % 2 ? n : 1, n % 2 ? 1 : n, RANKS_TIMEOUT_MS, checks_rank_main, checks_jobs,
              sizeof *checks_jobs, one);
    for (int rank = 0; rank < n; rank++)
        if (one[rank].st != ST_OK)
            fail_msg("rank %d of %d: %s", rank, n, one[rank].message);
    return &checks_jobs[0];
}

/* checks_share — the part of n that run i of all has. */
static inline int checks_share(int n, int i, int runs) { return n * (i + 1) / runs - n * i / runs; }

struct checks_totals {
    int found, named, compared;
};

/* checks_compare — with comparisons and flips `like` has the losses, norms and state that it has
 * without. Returns rank 0's job. */
static inline const struct checks_job *checks_compare(struct checks_job like, int ranks,
                                                      const char *what)
{
    struct checks_job calm = *checks_run(&like, ranks);
    like.asks = true;
    struct checks_job *job = checks_run(&like, ranks);
    trial_same(&job->trial, &calm.trial, what);
    trial_free(&job->trial);
    trial_free(&calm.trial);
    assert_int_equal(job->compared, like.trial.steps);
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(checks_jobs[rank].called, 0);
        assert_int_equal(checks_jobs[rank].found, like.flips);
        assert_int_equal(checks_jobs[rank].named, like.flips);
        assert_int_equal(checks_jobs[rank].once, like.flips);
    }
    return job;
}

#endif
