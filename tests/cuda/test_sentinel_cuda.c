/* SENTINEL_EVERY on the CUDA device without a GPU (guarded.h): one bit that changes in the memory
 * of a device is found and attributed to its rank, by replicas that vote, by the next update, or by
 * a pass over frozen weights; and nothing is found where nothing has changed. FLIPS=n flips of each
 * kind (default 4). */
#include "kernel_test.h"

#include "mesh/trial.h"
#include "tests/cuda/rank_devices.h"
#include "tests/cuda/steps.h"
#include "train/feature/step_sentinel.h"
#include "train/feature/step_update_sums.h"
#include "train/step/inside.h"

#define SEED 29

static int64_t draw(int i, int what, int64_t n)
{
    return (int64_t)rand_below(SEED, RAND_STREAM(TEST, what), (uint64_t)i, (uint64_t)n);
}

static struct trial tiny(enum layout_shard shard, enum dtype dtype, int ranks)
{
    struct trial like = trial_of(MODEL_TASK_LM, ranks, 6);
    like.steps = 1;
    like.reads_state = false;
    like.config.sentinel_every = 1;
    like.config.store.shard = shard;
    like.config.store.dtype = dtype;
    like.config.dims.layers = 1;
    like.config.dims.heads = 1;
    like.config.dims.embed = 16;
    like.config.dims.vocab = 47;
    return like;
}

/* flip_bit — inverts a bit in the device's memory; a second time: as it was. */
static enum status flip_bit(const struct step *step, struct tensor array, int64_t word, int64_t bit)
{
    uint32_t bits = 0;
    char *at = (char *)array.data + 4 * word;
    TRY(dev_copy(step_stream(step), &bits, at, sizeof bits));
    TRY(dev_sync(step_stream(step)));
    bits ^= UINT32_C(1) << bit;
    TRY(dev_copy(step_stream(step), at, &bits, sizeof bits));
    return dev_sync(step_stream(step));
}

/* ---- ranks ---- */

enum kind { REPLICAS, UPDATES, FROZEN };

struct job {
    struct trial trial; /* first: trial_steps reads it */
    struct batch batch;
    enum kind kind;
    int flips;
    int found, named, called; /* flips found; of the right rank and array; false alarms */
};

static enum status make_step(struct ranks_one *one, struct job *job, struct step *step)
{
    TRY(trial_steps(one, &job->trial, step, &job->batch));
    job->trial.first_step++;
    return ST_OK;
}

static enum status invert_replica(const struct ranks_one *one, const struct step *step, int i)
{
    const int array = (int)draw(i, 1, step_arrays(step));
    if (draw(i, 0, one->ranks) != one->rank)
        return ST_OK;
    return flip_bit(step, step_tensor(step, array), draw(i, 2, step_whole_table(step)->total_elems),
                    draw(i, 3, 32));
}

static enum status flip_replicas(struct ranks_one *one, struct job *job, struct step *step)
{
    for (int i = 0; i < job->flips; i++) {
        struct step_sentinel clean, found;
        TRY(make_step(one, job, step));
        TRY(step_sentinel(step, &clean));
        TRY(invert_replica(one, step, i));
        TRY(step_sentinel(step, &found));
        TRY(invert_replica(one, step, i));
        job->called += !clean.is_same;
        job->found += !found.is_same;
        job->named += found.rank == (one->ranks > 2 ? draw(i, 0, one->ranks) : -1) &&
                      found.array == draw(i, 1, step_arrays(step));
    }
    return ST_OK;
}

/* The tensor, word and bit of flip i in this rank's local shards. */
static enum status invert_shard(const struct ranks_one *one, const struct step *step, int i)
{
    const struct store *store = step_core(step)->store;
    const int buckets_n = store_layout(store)->buckets_n;
    int bucket = (int)draw(i, 2, buckets_n);
    if (draw(i, 0, one->ranks) != one->rank)
        return ST_OK;
    while (store_local_shard(store, bucket).elems == 0)
        bucket = (bucket + 1) % buckets_n;
    const struct store_local_shard a = store_local_shard(store, bucket);
    const struct tensor array[] = {a.p, a.m, a.v};
    /* a bit of the mantissa: the step's numbers stay finite */
    return flip_bit(step, array[draw(i, 1, step_arrays(step))], draw(i, 3, a.elems),
                    draw(i, 4, 23));
}

/* find_change — the update of the next step reads it, and the step after it is not begun. A
 * deferred update runs one step later. is_pass: a pass over the state finds it before. */
static enum status find_change(struct ranks_one *one, struct job *job, struct step *step,
                               bool is_pass)
{
    const bool is_deferred = job->trial.config.store.shard == LAYOUT_SHARD_NONE;
    if (is_pass)
        return step_update_sums_verify(step);
    for (int i = 0; i < 1 + is_deferred; i++)
        TRY(make_step(one, job, step));
    return make_step(one, job, step);
}

/* is_named — the message names the rank's GPU and node. */
static bool is_named(const struct ranks_one *one)
{
    char place[96];
    text_format(place, sizeof place,
                " of GPU-01000000-0000-0000-0000-000000000000 at 0000:3b:00.0 of node %d is",
                one->rank / one->locals);
    return strstr(status_message(), place) != NULL;
}

static enum status flip_shards(struct ranks_one *one, struct job *job, struct step *step)
{
    struct step_update_sums *u = step_update_sums_of(step);
    for (int i = 0; i < job->flips; i++) {
        const int rank = (int)draw(i, 0, one->ranks);
        const int64_t steps = job->trial.first_step + 1;
        TRY(make_step(one, job, step));
        TRY(make_step(one, job, step));
        TRY(step_update_sums_verify(step));
        TRY(step_drain(step));
        TRY(invert_shard(one, step, i));
        const enum status st = find_change(one, job, step, i % 2 == 0);
        const struct step_changed changed = step_update_sums_changed(step);
        job->found += st == (rank == one->rank ? ST_FAULT : ST_PEER) && changed.ranks_n == 1;
        job->named += changed.rank == rank && changed.steps == steps + 1 &&
                      (rank != one->rank || u->array == (int)draw(i, 1, step_arrays(step))) &&
                      (rank != one->rank || is_named(one));
        /* the changed state becomes the state */
        status_clear();
        TRY(step_drain(step));
        TRY(step_update_sums_keep(step, job->trial.first_step));
        u->is_found = false;
        u->agreed = (struct step_changed){0};
    }
    return ST_OK;
}

static enum status flip_frozen(struct ranks_one *one, struct job *job, struct step *step)
{
    struct step_update_sums *u = step_update_sums_of(step);
    const struct store *frozen = store_frozen(step_core(step)->store);
    TRY(trial_load_frozen(one, step));
    TRY(step_update_sums_keep(step, 0));
    for (int i = 0; i < job->flips; i++) {
        const int rank = (int)draw(i, 0, one->ranks),
                  bucket = (int)draw(i, 2, store_layout(frozen)->buckets_n);
        const struct store_local_shard a = store_local_shard(frozen, bucket);
        const int64_t words = a.elems * (int64_t)dtype_bytes(a.p.dtype) / 4;
        TRY(make_step(one, job, step));
        TRY(step_update_sums_verify(step));
        if (rank == one->rank)
            TRY(flip_bit(step, a.p, draw(i, 3, words), 3));
        enum status st = step_update_sums_verify(step);
        if (rank == one->rank)
            TRY(flip_bit(step, a.p, draw(i, 3, words), 3));
        job->found += st == (rank == one->rank ? ST_FAULT : ST_PEER);
        job->named += step_update_sums_changed(step).rank == rank &&
                      (rank != one->rank || u->array == STEP_ARRAYS_MAX);
        status_clear();
        u->is_found = false;
        u->agreed = (struct step_changed){0};
    }
    return ST_OK;
}

static enum status rank_main(struct ranks_one *one)
{
    static enum status (*const kinds[])(struct ranks_one *, struct job *,
                                        struct step *) = {flip_replicas, flip_shards, flip_frozen};
    struct job *job = one->arg;
    struct step_config *c = &job->trial.config;
    struct step *step = NULL;
    c->dev = one->dev, c->comm = one->comm;
    enum status st = step_open(c, &step);
    if (st == ST_OK)
        st = batch_init(&job->batch, FEED_TASK_LM, c->global_samples / one->ranks, c->seq_tokens);
    if (st == ST_OK)
        st = kinds[job->kind](one, job, step);
    struct status_saved saved;
    status_save(&saved);
    batch_free(&job->batch);
    step_close(step);
    status_restore(&saved);
    return st;
}

static void run_nodes(struct trial like, int nodes, int locals, enum kind kind)
{
    const int ranks = nodes * locals;
    static struct job jobs[RANKS_MAX];
    struct ranks_one one[RANKS_MAX];
    for (int rank = 0; rank < ranks; rank++)
        jobs[rank] = (struct job){.trial = like, .kind = kind, .flips = harness_number("FLIPS", 4)};
    ranks_try(nodes, locals, RANKS_TIMEOUT_MS, rank_main, jobs, sizeof *jobs, one);
    for (int rank = 0; rank < ranks; rank++) {
        if (one[rank].st != ST_OK)
            fail_msg("rank %d of %d, shard %d, dtype %d: %s", rank, ranks, like.config.store.shard,
                     like.config.store.dtype, one[rank].message);
        assert_int_equal(jobs[rank].called, 0);
        assert_int_equal(jobs[rank].found, jobs[rank].flips);
        assert_int_equal(jobs[rank].named, jobs[rank].flips);
    }
}

static void run(struct trial like, int ranks, enum kind kind) { run_nodes(like, 1, ranks, kind); }

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* With two replicas no majority shows which is wrong. */
TEST(replicas_vote)
{
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int i = 0; i < 3; i++)
            if (ranks > 2 || i == 0)
                run(tiny(LAYOUT_SHARD_NONE, dtypes[i], ranks), ranks, REPLICAS);
}

TEST(updates_check_what_they_read)
{
    for (enum layout_shard shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int i = 0; i < 3; i++)
            run(tiny(shard, dtypes[i], 2 + i % 2), 2 + i % 2, UPDATES);
}

TEST(updates_by_sgd)
{
    struct trial like = tiny(LAYOUT_SHARD_FULL, DTYPE_BF16, 2);
    like.config.optim.kind = OPTIM_KIND_SGD;
    run(like, 2, UPDATES);
    like.config.optim.momentum = 0.9;
    run(like, 2, UPDATES);
}

TEST(updates_on_two_nodes)
{
    struct trial like = tiny(LAYOUT_SHARD_HYBRID, DTYPE_BF16, 4);
    like.config.store.group_ranks = 2;
    run_nodes(like, 2, 2, UPDATES);
}

/* Hidden matrices have no sums. Nothing is found where nothing has changed. */
TEST(updates_by_muon)
{
    for (enum layout_shard shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        struct trial like = tiny(shard, DTYPE_BF16, 2);
        like.config.optim.kind = OPTIM_KIND_MUON;
        like.config.optim.momentum = 0.9;
        like.steps = 4;
        struct trial got = trial_run(&like, 1, 2);
        assert_true(isfinite(got.loss[3]));
    }
}

TEST(frozen_weights)
{
    for (int i = 0; i < 3; i++)
        for (enum layout_shard shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL;
             shard += LAYOUT_SHARD_FULL) {
            struct trial like = tiny(shard, dtypes[i], 2);
            like.config.dims.adapter =
                (struct model_adapter){.r = 2, .alpha = 4, .targets = MODEL_TARGETS_ALL};
            run(like, 2, FROZEN);
        }
}

/* FAULT=flip before step 3 of 6: its update finds it, and step 4 is not begun. */
TEST(a_flip_by_the_hook)
{
    static struct trial all[2];
    struct ranks_one one[RANKS_MAX];
    for (int rank = 0; rank < 2; rank++) {
        all[rank] = tiny(LAYOUT_SHARD_FULL, DTYPE_BF16, 2);
        all[rank].steps = 6;
        all[rank].flip_step = 3;
        all[rank].flip_rank = 1;
    }
    ranks_try(1, 2, RANKS_TIMEOUT_MS, trial_rank, all, sizeof *all, one);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(all[rank].done, 4);
        assert_int_equal(one[rank].st, rank == 1 ? ST_FAULT : ST_PEER);
    }
    assert_non_null(strstr(one[1].message, "the parameters of rank 1 changed by themselves"));
    assert_non_null(
        strstr(one[1].message,
               " of GPU-01000000-0000-0000-0000-000000000000 at 0000:3b:00.0 of node 0 is "));
}

/* ---- one GPU, which decides on updates itself and runs steps as graphs ---- */

enum { STEPS = 8, SAMPLES = 2, SEQ = 5, VOCAB = 23 };

static struct step *open_alone(enum dtype dtype, bool checks)
{
    struct step *step = NULL;
    struct step_config c = steps_config(rank_device(0), MODEL_TASK_LM, dtype, OPTIM_KIND_ADAMW);
    c.batch_samples = c.global_samples = SAMPLES, c.seq_tokens = SEQ;
    c.dims.vocab = VOCAB;
    c.sentinel_every = checks;
    kt_ok(step_open(&c, &step));
    assert_true(step->async.is_on);
    return step;
}

static enum status step_alone(struct step *step, struct batch *b, int64_t i, int *retries)
{
    struct step_result r = {.retries = 0};
    steps_fill(b, i, VOCAB);
    if (i == 3) /* fp16: far too large, so updates are skipped and the step is repeated */
        step_loss_scale_set(step, (struct step_loss_scale){STEP_LOSS_SCALE_MAX, 7});
    enum status st = step_run_batch(step, b, i, i * SAMPLES, 1e-2, false, &r);
    *retries += r.retries;
    return st;
}

/* train_alone — returns the state after some steps, whose updates are checked or not. */
static float *train_alone(enum dtype dtype, bool checks, int64_t *n_out)
{
    struct step *step = open_alone(dtype, checks);
    struct batch b;
    int retries = 0;
    kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
    kt_ok(step_update_sums_keep(step, 0));
    const int launches = *runtime_calls("cudaGraphLaunch");
    for (int64_t i = 0; i < STEPS; i++)
        kt_ok(step_alone(step, &b, i, &retries));
    kt_ok(step_update_sums_verify(step));
    assert_int_equal(retries > 0, dtype == DTYPE_F16);
    assert_true(*runtime_calls("cudaGraphLaunch") - launches >= STEPS - 3);
    float *state = steps_state(step, n_out);
    batch_free(&b);
    step_close(step);
    return state;
}

TEST(one_gpu_has_the_same_bits)
{
    for (int i = 0; i < 3; i++) {
        int64_t n, others_n;
        float *with = train_alone(dtypes[i], true, &n),
              *without = train_alone(dtypes[i], false, &others_n);
        assert_int_equal(n, others_n);
        assert_memory_equal(with, without, (size_t)n * sizeof *with);
        kt_free(with);
        kt_free(without);
    }
}

/* Before each step of a run: also before the one with skipped updates, and after a save. */
TEST(one_gpu_finds_a_flip)
{
    for (int i = 0; i < 3; i++)
        for (int64_t at = 0; at < STEPS - 1; at++) {
            struct step *step = open_alone(dtypes[i], true);
            const struct step_update_sums *u = step_update_sums_of(step);
            struct batch b;
            int retries = 0;
            kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
            kt_ok(step_update_sums_keep(step, 0));
            for (int64_t k = 0; k <= at; k++) {
                if (k == at)
                    kt_ok(flip_bit(step, step_tensor(step, (int)(at % 3)), 100 + at, at));
                kt_ok(step_alone(step, &b, k, &retries));
            }
            assert_int_equal(step_alone(step, &b, at + 1, &retries), ST_FAULT);
            assert_int_equal(u->array, at % 3);
            assert_int_equal(u->steps, at);
            batch_free(&b);
            step_close(step);
        }
}

/* Weights become infinite, so the step has no finite loss. The device skips its update, and a pass
 * over the state shows the cause. If another number is the cause, it finds nothing. */
TEST(one_gpu_explains_a_loss_that_is_not_finite)
{
    for (int i = 0; i < 6; i++) {
        struct step *step = open_alone(dtypes[i / 2], true);
        struct batch b;
        int retries = 0;
        kt_ok(batch_init(&b, FEED_TASK_LM, SAMPLES, SEQ));
        kt_ok(step_update_sums_keep(step, 0));
        for (int64_t k = 0; k < 2; k++)
            kt_ok(step_alone(step, &b, k, &retries));
        if (i % 2) { /* in every row of the embedding, so that each sample has one */
            const float infinite = INFINITY;
            for (int64_t row = 0; row < VOCAB; row++)
                kt_ok(dev_copy(step_stream(step), tensor_at(step_tensor(step, 0), 16 * row).data,
                               &infinite, sizeof infinite));
            /* passes in 16 bits read a copy, so only the update reads these weights */
            assert_int_equal(step_alone(step, &b, 2, &retries),
                             dtypes[i / 2] == DTYPE_F32 ? ST_NOT_FINITE : ST_OK);
            assert_int_equal(step_update_sums_verify(step), ST_FAULT);
            assert_int_equal(step_update_sums_of(step)->array, 0);
            assert_int_equal(step_update_sums_of(step)->steps, 2);
        } else {
            struct step_result r;
            steps_fill(&b, 2, VOCAB);
            assert_int_equal(step_run_batch(step, &b, 2, 2 * SAMPLES, 1e-2, STEP_FAULT_NAN, &r),
                             ST_NOT_FINITE);
            kt_ok(step_update_sums_verify(step));
        }
        status_clear();
        batch_free(&b);
        step_close(step);
    }
}

/* ---- texts ---- */

TEST(the_device_is_named)
{
    char text[DEV_PLACE_TEXT];
    struct dev *cpu = NULL;
    assert_string_equal(dev_text_place(rank_device(0), text, sizeof text),
                        "GPU-01000000-0000-0000-0000-000000000000 at 0000:3b:00.0");
    kt_ok(dev_cpu_open(1, CPU_ISA_N, &cpu));
    assert_string_equal(dev_text_place(cpu, text, sizeof text), "");
    dev_close(cpu);
}

int main(void)
{
    harness_quiet();
    rank_devices_open();
    int failed = harness_run_all(__FILE__, NULL, NULL);
    rank_devices_close();
    return failed;
}
