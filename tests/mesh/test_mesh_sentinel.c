/* test_mesh_sentinel — replicas of a state are compared by checksums: one bit anywhere in the
 * parameters or moments of any rank is found, and that rank is named; equal replicas are never
 * called different. FLIPS=n flips for each number of ranks (default 200), CHECKS=n comparisons of
 * equal replicas (default 100). */
#include "mesh/trial.h"

#include "train/feature/step_sentinel.h"

#define FLIPS_A_STEP 40 /* then a step is made, so that the numbers are others */
#define SEED 17

struct job {
    struct trial trial; /* first: trial_steps reads it */
    struct batch batch;
    int flips, checks;
    int found, named, called; /* flips found; of the right rank and array; equal ones called so */
};

static int64_t draw(int i, int what, int64_t n)
{
    return (int64_t)rand_below(SEED, RAND_STREAM(TEST, what), (uint64_t)i, (uint64_t)n);
}

/* invert — the bit of flip i, on the rank that it hits; a second time: as it was. */
static void invert(const struct ranks_one *one, const struct step *step, int i)
{
    struct step_replica replica;
    if (draw(i, 0, one->ranks) != one->rank)
        return;
    step_sentinel_replica(step, &replica);
    const int array = (int)draw(i, 1, step_arrays(step));
    const struct state *state = store_state(step_core(step)->store);
    unsigned char *bytes = (void *)state_describe(state, array, 0).here;
    bytes[draw(i, 2, replica.elems * 4)] ^= (unsigned char)(1 << draw(i, 3, 8));
}

static enum status make_step(struct ranks_one *one, struct job *job, struct step *step)
{
    TRY(trial_steps(one, &job->trial, step, &job->batch));
    job->trial.first_step++;
    return ST_OK;
}

static enum status flip_all(struct ranks_one *one, struct job *job, struct step *step)
{
    for (int i = 0; i < job->flips; i++) {
        if (i % FLIPS_A_STEP == 0)
            TRY(make_step(one, job, step));
        struct step_sentinel found;
        TRY(store_drain(step_core(step)->store));
        invert(one, step, i);
        enum status st = step_sentinel(step, &found);
        invert(one, step, i);
        job->found += st == ST_OK && !found.is_same;
        job->named += st == ST_OK && !found.is_same && found.rank == draw(i, 0, one->ranks) &&
                      found.array == draw(i, 1, step_arrays(step));
        TRY(st);
    }
    return ST_OK;
}

/* check_all — after a step each. */
static enum status check_all(struct ranks_one *one, struct job *job, struct step *step)
{
    struct step_sentinel found;
    for (int i = 0; i < job->checks; i++) {
        job->trial.first_step %= TRIAL_STEPS_MAX;
        TRY(make_step(one, job, step));
        TRY(step_sentinel(step, &found));
        job->called += !found.is_same;
    }
    return ST_OK;
}

static enum status rank_main(struct ranks_one *one)
{
    struct job *job = one->arg;
    struct step_config *c = &job->trial.config;
    struct step *step = NULL;
    c->dev = one->dev, c->comm = one->comm;
    TRY(step_open(c, &step));
    enum status st =
        batch_init(&job->batch, FEED_TASK_LM, c->global_samples / one->ranks, c->seq_tokens);
    if (st == ST_OK)
        st = flip_all(one, job, step);
    if (st == ST_OK)
        st = check_all(one, job, step);
    struct status_saved saved;
    status_save(&saved);
    batch_free(&job->batch);
    step_close(step);
    status_restore(&saved);
    return st;
}

static struct job jobs[RANKS_MAX];
static struct ranks_one ranks[RANKS_MAX];

static void run(int n)
{
    for (int rank = 0; rank < n; rank++) {
        jobs[rank] = (struct job){.trial = trial_of(MODEL_TASK_LM, 12, 11),
                                  .flips = harness_number("FLIPS", 200),
                                  .checks = harness_number("CHECKS", 100)};
        jobs[rank].trial.config.store.shard = LAYOUT_SHARD_NONE;
        jobs[rank].trial.config.sentinel_every = 1;
        jobs[rank].trial.steps = 1;
    }
    ranks_try(n, 1, RANKS_TIMEOUT_MS, rank_main, jobs, sizeof *jobs, ranks);
    for (int rank = 0; rank < n; rank++) {
        if (ranks[rank].st != ST_OK)
            fail_msg("rank %d: %s", rank, ranks[rank].message);
        assert_int_equal(jobs[rank].called, 0);
        assert_int_equal(jobs[rank].found, jobs[rank].flips);
        assert_int_equal(jobs[rank].named, jobs[rank].flips);
    }
    print_message("# %d ranks: %d flips found and named, %d comparisons of equal replicas\n", n,
                  jobs[0].flips, jobs[0].checks);
}

TEST(test_replicas)
{
    run(3);
    run(4);
}

HARNESS_RUN_ALL()
