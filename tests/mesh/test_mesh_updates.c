/* test_mesh_updates — updates check what they read (step_update_sums.h): one bit anywhere in
 * the parameters and moments that a rank updates, which changes between two steps, is found by the
 * next update, and all ranks know whose it is, whatever SHARD is and however many ranks there are.
 * Updates of a state that nothing else changes find nothing, and have the same bits as without the
 * check. FLIPS=n flips and CHECKS=n undisturbed steps for each SHARD and number of ranks (default
 * 12 and 20). A pass over the frozen parameters of an adapter's model finds one bit of them. */
#include "mesh/trial.h"

#include "mesh/store/inside.h"
#include "train/feature/step_update_sums.h"

#define SEED 23
#define RANKS_MOST 4

struct job {
    struct trial trial; /* first: trial_steps reads it */
    struct batch batch;
    int flips, checks;
    int found, named, parted;  /* flips found, all ranks know the rank, that rank knows the array */
    int called;                /* differences where there was none */
    int owned;                 /* flips that one rank has found by itself, and no other one */
    bool has_frozen;           /* flip_frozen in place of flip_all */
    float *kept[TRIAL_ARRAYS]; /* this rank's memory before a flip */
};

static int64_t draw(int i, int what, int64_t n)
{
    return (int64_t)rand_below(SEED, RAND_STREAM(TEST, what), (uint64_t)i, (uint64_t)n);
}

/* ---- this rank's memory ---- */

static int64_t elems_of(const struct store *s, int array)
{
    return array > 0                          ? store_memory_moment_elems(s, array)
           : s->policy.masters == STORE_WHOLE ? s->c.table->total_elems
                                              : s->layout.shard_elems;
}

static void keep(struct job *job, const struct step *step, bool is_back)
{
    for (int array = 0; array < step_arrays(step); array++) {
        const size_t bytes = (size_t)elems_of(step_core(step)->store, array) * sizeof(float);
        float *here = (array == 0 ? step_core(step)->store->params
                                  : step_core(step)->store->moment[array - 1])
                          .data;
        if (!job->kept[array])
            job->kept[array] = malloc(bytes);
        memcpy(is_back ? here : job->kept[array], is_back ? job->kept[array] : here, bytes);
    }
}

/* ---- flips ---- */

static enum status make_step(struct ranks_one *one, struct job *job, struct step *step)
{
    job->trial.first_step++;
    return trial_steps(one, &job->trial, step, &job->batch);
}

/* is_update — the next update is to find flip i; else a pass over the state, as before a
 * checkpoint. */
static bool is_update(const struct job *job, int i) { return i < job->flips; }

static int flips_of(const struct job *job) { return job->flips + job->flips / 4; }

static enum status forget(struct job *job, struct step *step)
{
    struct step_update_sums *u = step_update_sums_of(step);
    TRY(store_params_begin_write(step_core(step)->store, 0));
    keep(job, step, true);
    TRY(step_update_sums_keep(step, job->trial.first_step + 1));
    u->is_found = false;
    u->agreed = (struct step_changed){0};
    status_clear();
    return ST_OK;
}

/* verify_own — as after a failure of another kind: without the other ranks. */
static void verify_own(const struct ranks_one *one, struct job *job, struct step *step, int i)
{
    const bool is_mine = draw(i, 0, one->ranks) == one->rank;
    const enum status st = step_update_sums_verify_own(step);
    const struct step_changed changed = step_update_sums_changed(step);
    job->owned += st == (is_mine ? ST_FAULT : ST_OK) && changed.ranks_n == (int)is_mine &&
                  (!is_mine || changed.steps == job->trial.first_step + 1);
    step_update_sums_of(step)->agreed = (struct step_changed){0};
    status_clear();
}

static enum status flip(struct ranks_one *one, struct job *job, struct step *step, int i)
{
    if (i % 2 == 0) /* else the state is as it was loaded */
        TRY(make_step(one, job, step));
    TRY(store_drain(step_core(step)->store));
    keep(job, step, false);
    if (draw(i, 0, one->ranks) == one->rank) {
        /* The bit of flip i, in a bucket of which this rank updates something. */
        const int buckets_n = store_layout(step_core(step)->store)->buckets_n;
        int bucket = (int)draw(i, 2, buckets_n);
        while (store_local_shard(step_core(step)->store, bucket).elems == 0)
            bucket = (bucket + 1) % buckets_n;
        const struct store_local_shard a = store_local_shard(step_core(step)->store, bucket);
        const struct tensor array[] = {a.p, a.m, a.v};
        uint32_t *bits = array[draw(i, 1, step_arrays(step))].data;
        bits[draw(i, 3, a.elems)] ^= UINT32_C(1) << draw(i, 4, 32);
    }
    if (!is_update(job, i))
        verify_own(one, job, step, i);
    enum status st = is_update(job, i) ? make_step(one, job, step) : ST_OK;
    if (st != ST_OK && st != ST_NOT_FINITE)
        return st;
    st = step_update_sums_verify(step);
    /* What this rank knows of flip i, after the step that followed it. The update has written its
     * sums since, so what it did not find, nothing finds any more; where the numbers of the step
     * kept the update from being made, _verify finds it in memory, as the trainer lets it. */
    const int rank = (int)draw(i, 0, one->ranks);
    const struct step_changed changed = step_update_sums_changed(step);
    const struct step_update_sums *u = step_update_sums_of(step);
    job->found += st == (rank == one->rank ? ST_FAULT : ST_PEER) && changed.ranks_n == 1;
    job->named += changed.rank == rank &&
                  changed.steps == job->trial.first_step + (is_update(job, i) ? 0 : 1);
    job->parted +=
        rank != one->rank || (u->is_found && u->array == (int)draw(i, 1, step_arrays(step)));
    return st == ST_OK || st == ST_FAULT || st == ST_PEER ? forget(job, step) : st;
}

static enum status flip_all(struct ranks_one *one, struct job *job, struct step *step)
{
    for (int i = 0; i < flips_of(job); i++)
        TRY(flip(one, job, step, i));
    return ST_OK;
}

static enum status check_all(struct ranks_one *one, struct job *job, struct step *step)
{
    for (int i = 0; i < job->checks; i++) {
        TRY(make_step(one, job, step));
        job->called += step_update_sums_of(step)->is_found;
    }
    return step_update_sums_verify(step);
}

/* flip_frozen — a pass over an unchanged state finds nothing. After a bit of the last rank's frozen
 * parameters has changed, and another step, the next pass finds it. */
static enum status flip_frozen(struct ranks_one *one, struct job *job, struct step *step)
{
    const struct store_local_shard a = store_local_shard(store_frozen(step_core(step)->store), 1);
    TRY(trial_load_frozen(one, step));
    TRY(step_update_sums_keep(step, 0));
    TRY(check_all(one, job, step));
    if (one->rank == one->ranks - 1)
        ((uint32_t *)a.p.data)[a.elems / 2] ^= 1;
    TRY(make_step(one, job, step));
    job->found++;
    const enum status st = step_update_sums_verify(step);
    job->named = step_update_sums_changed(step).rank;
    job->parted = step_update_sums_changed(step).steps == job->trial.first_step;
    return st;
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
    if (st == ST_OK && job->has_frozen)
        st = flip_frozen(one, job, step);
    else if (st == ST_OK && (st = check_all(one, job, step)) == ST_OK)
        st = flip_all(one, job, step);
    struct status_saved saved;
    status_save(&saved);
    batch_free(&job->batch);
    step_close(step);
    for (int array = 0; array < TRIAL_ARRAYS; array++)
        free(job->kept[array]);
    status_restore(&saved);
    return st;
}

static struct job jobs[RANKS_MAX];
static struct ranks_one ranks[RANKS_MAX];

static const char *const shards[] = {"none", "optimizer", "gradients", "full"};

/* job_of — AdamW, f32. */
static struct job job_of(enum layout_shard shard)
{
    struct job job = {.trial = trial_of(MODEL_TASK_LM, 12, 11),
                      .flips = harness_number("FLIPS", 12),
                      .checks = harness_number("CHECKS", 20)};
    job.trial.config.store.shard = shard;
    job.trial.config.sentinel_every = 1;
    job.trial.config.optim.momentum = 0.9;
    job.trial.lr = 1e-3;
    job.trial.steps = 1;
    return job;
}

static void run(int n, const struct job *like)
{
    const char *shard = shards[like->trial.config.store.shard];
    for (int rank = 0; rank < n; rank++)
        jobs[rank] = *like;
    ranks_try(n, 1, RANKS_TIMEOUT_MS, rank_main, jobs, sizeof *jobs, ranks);
    for (int rank = 0; rank < n; rank++) {
        if (ranks[rank].st != ST_OK)
            fail_msg("rank %d of %d, SHARD=%s: %s", rank, n, shard, ranks[rank].message);
        assert_int_equal(jobs[rank].called, 0);
        assert_int_equal(jobs[rank].found, flips_of(&jobs[rank]));
        assert_int_equal(jobs[rank].named, flips_of(&jobs[rank]));
        assert_int_equal(jobs[rank].parted, flips_of(&jobs[rank]));
        assert_int_equal(jobs[rank].owned, flips_of(&jobs[rank]) - jobs[rank].flips);
    }
    print_message("# %s, %d ranks: %d flips found and named, %d updates of an unchanged state\n",
                  shard, n, jobs[0].flips, jobs[0].checks);
}

TEST(test_adamw)
{
    for (int n = 1; n <= RANKS_MOST; n++)
        for (enum layout_shard shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
            const struct job job = job_of(shard);
            if (n > 1 || shard == LAYOUT_SHARD_NONE)
                run(n, &job);
        }
}

TEST(test_sgd)
{
    struct job job = job_of(LAYOUT_SHARD_FULL);
    job.trial.config.optim.kind = OPTIM_KIND_SGD;
    run(2, &job);
    job.trial.config.optim.momentum = 0;
    run(2, &job);
}

/* Only of what AdamW updates are there sums; nothing is found where nothing changed. */
TEST(test_muon)
{
    for (enum layout_shard shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        struct job job = job_of(shard);
        job.trial.config.optim.kind = OPTIM_KIND_MUON;
        job.flips = 0;
        run(2, &job);
    }
}

/* ---- frozen parameters ---- */

TEST(test_frozen)
{
    for (int n = 1; n <= RANKS_MOST; n += 1 + (n > 1))
        for (enum layout_shard shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL;
             shard += LAYOUT_SHARD_FULL - LAYOUT_SHARD_NONE) {
            for (int rank = 0; rank < n; rank++) {
                jobs[rank] = job_of(shard);
                jobs[rank].trial.config.dims.adapter =
                    (struct model_adapter){.r = 2, .alpha = 4, .targets = MODEL_TARGETS_ALL};
                jobs[rank].checks = 3;
                jobs[rank].has_frozen = true;
            }
            ranks_try(n, 1, RANKS_TIMEOUT_MS, rank_main, jobs, sizeof *jobs, ranks);
            for (int rank = 0; rank < n; rank++) {
                assert_int_equal(jobs[rank].called, 0);
                assert_int_equal(jobs[rank].found, 1);
                assert_int_equal(jobs[rank].named, n - 1);
                assert_true(jobs[rank].parted);
                assert_int_equal(ranks[rank].st, rank == n - 1 ? ST_FAULT : ST_PEER);
            }
            assert_non_null(strstr(ranks[n - 1].message, "frozen parameters of rank "));
        }
}

/* ---- whole steps ---- */

/* The update of step 3 finds what changed before it; all ranks end at the head of step 4. */
TEST(test_next_step_fails)
{
    static struct trial all[3];
    for (int rank = 0; rank < 3; rank++) {
        all[rank] = trial_of(MODEL_TASK_LM, 12, 11);
        all[rank].config.store.shard = LAYOUT_SHARD_FULL;
        all[rank].config.sentinel_every = 1;
        all[rank].steps = 6;
        all[rank].flip_step = 3;
        all[rank].flip_rank = 1;
        all[rank].reads_state = false;
    }
    ranks_try(3, 1, RANKS_TIMEOUT_MS, trial_rank, all, sizeof *all, ranks);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(all[rank].done, 4);
        assert_int_equal(ranks[rank].st, rank == 1 ? ST_FAULT : ST_PEER);
        assert_non_null(strstr(ranks[rank].message, " of rank 1 changed by themselves after the "
                                                    "update of step 3"));
    }
    assert_non_null(strstr(ranks[1].message, "the parameters of rank 1"));
    assert_non_null(strstr(ranks[1].message, "convoy check"));
}

TEST(test_same_bits)
{
    struct trial like = trial_of(MODEL_TASK_LM, 12, 11);
    like.steps = 8;
    struct trial without = trial_run(&like, 1, 1);
    like.config.sentinel_every = 1;
    for (enum layout_shard shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        like.config.store.shard = shard;
        struct trial with = trial_run(&like, 3, 1);
        like.config.sentinel_every = 0;
        struct trial other = trial_run(&like, 3, 1);
        like.config.sentinel_every = 1;
        trial_same(&with, &other, shards[shard]);
        trial_free(&with);
        trial_free(&other);
    }
    struct trial alone = trial_run(&like, 1, 1);
    trial_same(&alone, &without, "one rank");
    trial_free(&alone);
    trial_free(&without);
}

HARNESS_RUN_ALL()
