/* Several ranks over NCCL on the CUDA device without a GPU, with streams that run at the same time
 * (streams.h) and the tests' own NCCL. Training gives the bits of staging through host memory, with
 * CUDA graphs and without, so no stream lacks a wait for another one. */
#define GUARDED_STREAMS
#include "kernel_test.h"

#include "tests/cuda/nccl_ranks.h"

#define STEPS 4
#define SEQ 3

/* What all ranks have asked of the runtime, after each step. */
static struct seen {
    int launches, captures;
} seen[STEPS];

static void look(const struct ranks_one *one, int step)
{
    pthread_barrier_wait(&together);
    if (one->rank == 0)
        seen[step] = (struct seen){streams.launches, streams.captures};
    pthread_barrier_wait(&together);
}

static struct trial trial_of_ranks(int ranks, int64_t batch)
{
    struct trial like = trial_tiny(2 * ranks, SEQ);
    like.steps = STEPS;
    like.stepped = look;
    like.config.batch_samples = batch;
    return like;
}

/* The last step asks for the work of the step before: graphs that exist. */
static void same_bits(struct trial like, int ranks)
{
    struct trial want = nccl_ranks_run(like, ranks, STAGED);
    for (int form = EAGER; form <= GRAPHS; form++) {
        const int posted = atomic_load(&knobs->posted_n);
        char name[96];
        text_format(
            name, sizeof name, "%d ranks, %d samples at once, dtype %d, compress %d, shard %d%s",
            ranks, (int)like.config.batch_samples, like.config.store.dtype,
            like.config.store.compress, like.config.store.shard, form == GRAPHS ? ", graphs" : "");
        struct trial got = nccl_ranks_run(like, ranks, form);
        const int launches = seen[STEPS - 1].launches - seen[STEPS - 2].launches;
        print_message("# %s: %d calls of NCCL, %d graphs in a step\n", name,
                      atomic_load(&knobs->posted_n) - posted, launches);
        trial_same(&got, &want, name);
        assert_true(atomic_load(&knobs->posted_n) > posted);
        assert_int_equal(seen[STEPS - 1].captures, seen[STEPS - 2].captures);
        assert_int_equal(launches > 0, form == GRAPHS);
        trial_free(&got);
    }
    trial_free(&want);
}

TEST(every_shard)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        struct trial like = trial_of_ranks(2, 1 + shard % 2);
        like.config.store.shard = (enum layout_shard)shard;
        same_bits(like, 2);
    }
    struct trial four = trial_of_ranks(4, 2);
    four.config.store.shard = LAYOUT_SHARD_FULL;
    same_bits(four, 4);
}

/* One rank has one micro-batch, the other two: the first one joins the all-gathers of both. */
TEST(unequal_micro_batches)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += LAYOUT_SHARD_FULL) {
        struct trial like = trial_of_ranks(2, 1);
        like.config.global_samples = 3;
        like.config.store.shard = (enum layout_shard)shard;
        same_bits(like, 2);
    }
}

/* BALANCE=auto: the device of one rank is three times as slow, and has a quarter of the
 * micro-batches. Waits for the other rank do not count, so the times are the same in every form,
 * and with them the deals and bits. The new deal has graphs of its own, and losses are those of
 * equal numbers. */
TEST(unequal_devices)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard += LAYOUT_SHARD_FULL) {
        struct trial like = trial_of_ranks(2, 1);
        like.config.store.shard = (enum layout_shard)shard;
        like.steps = STEP_BALANCE_STEPS + 4;
        like.stepped = NULL;
        struct trial equal = nccl_ranks_run(like, 2, GRAPHS), form[2];
        nccl_ranks_pace[1] = 3;
        like.config.balances = true;
        for (int i = 0; i < 2; i++) {
            form[i] = nccl_ranks_run(like, 2, EAGER + i);
            print_message("# shard %d: deal %d %d, losses differ by at most %.1e\n", shard,
                          form[i].deal[0], form[i].deal[1], trial_apart(&form[i], &equal));
            assert_int_equal(form[i].deal[0], 3);
            assert_int_equal(form[i].deal[1], 1);
            assert_true(trial_apart(&form[i], &equal) <= 1e-6);
        }
        nccl_ranks_pace[1] = 0;
        trial_same(&form[1], &form[0], "graphs of a changed deal");
        trial_free(&form[0]);
        trial_free(&form[1]);
        trial_free(&equal);
    }
}

/* 16-bit weights, gradients that are summed as bf16, and both. */
TEST(sixteen_bits)
{
    for (int form = 1; form <= 3; form++) {
        struct trial like = trial_of_ranks(2, 1 + form % 2);
        like.config.store.shard = form == 3 ? LAYOUT_SHARD_FULL : LAYOUT_SHARD_NONE;
        like.config.store.dtype = form & 1 ? DTYPE_BF16 : DTYPE_F32;
        like.config.store.compress = form & 2 ? GRAD_COMPRESS_KIND_BF16 : GRAD_COMPRESS_KIND_NONE;
        same_bits(like, 2);
    }
}

/* A rank that closes its communicator earlier would end the other rank's step. */
static void wait_for_other(const struct ranks_one *one)
{
    (void)one;
    pthread_barrier_wait(&together);
}

/* SENTINEL_EVERY: updates that the devices decide on check what they read, without a false alarm.
 * A bit that changes before step 2 is found by its update, and step 3 is not begun; with SHARD=none
 * the update runs during step 3. */
TEST(checked_updates)
{
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        static struct trial all[2];
        struct ranks_one one[RANKS_MAX];
        struct trial like = trial_of_ranks(2, 1 + shard % 2);
        like.config.sentinel_every = 1;
        like.config.store.dtype = shard % 3 ? DTYPE_BF16 : DTYPE_F16;
        like.config.store.shard = (enum layout_shard)shard;
        same_bits(like, 2);
        if (shard == LAYOUT_SHARD_NONE) /* FAULT=flip counts as a write where masters are whole */
            continue;
        like.flip_step = 2;
        like.flip_rank = 1;
        like.stepped = NULL;
        like.ended = wait_for_other;
        like.reads_state = false;
        all[0] = all[1] = like;
        pthread_barrier_init(&together, NULL, 2);
        ranks_try(1, 2, RANKS_TIMEOUT_MS, trial_rank, all, sizeof *all, one);
        pthread_barrier_destroy(&together);
        assert_int_equal(one[0].st, ST_PEER);
        assert_int_equal(one[1].st, ST_FAULT);
        assert_int_equal(all[0].done, 3);
        if (!strstr(one[1].message, "changed by themselves after the update of step 2"))
            fail_msg("%s", one[1].message);
    }
}

int main(void)
{
    harness_quiet();
    nccl_ranks_begin(4);
    return harness_run_all(__FILE__, NULL, NULL);
}
