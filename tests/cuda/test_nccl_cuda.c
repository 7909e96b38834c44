/* Several ranks over NCCL on the CUDA device without a GPU, with streams that run at the same time
 * (streams.h) and the tests' own NCCL. Training gives the bits of staging through host memory, with
 * CUDA graphs and without, so no stream lacks a wait for another one. */
#define GUARDED_STREAMS
#include "kernel_test.h"

#include "mesh/trial.h"
#include "tests/cuda/rank_devices.h"

#define STEPS 4
#define SEQ 3

static struct fake_nccl *knobs;
static pthread_barrier_t together;
static char addresses[RANKS_MAX][COMM_ADDRESS_MAX];
static int64_t addresses_bytes[RANKS_MAX];

static enum status open_nccl(struct ranks_one *one, struct comm_config config)
{
    config.kind = COMM_KIND_NCCL;
    enum status st =
        comm_begin_open(&config, &one->comm, addresses[one->rank], &addresses_bytes[one->rank]);
    pthread_barrier_wait(&together);
    return st == ST_OK ? comm_end_open(one->comm, 1, addresses, addresses_bytes) : st;
}

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
    struct trial like = trial_of(MODEL_TASK_LM, 2 * ranks, SEQ);
    like.steps = STEPS;
    like.stepped = look;
    like.config.batch_samples = batch;
    like.config.dropout = 0.1f;
    like.config.dims.layers = 2;
    like.config.dims.heads = 1;
    like.config.dims.embed = 8;
    like.config.dims.vocab = 11;
    return like;
}

enum { STAGED, EAGER, GRAPHS };

static struct trial run(struct trial like, int ranks, int form)
{
    pthread_barrier_init(&together, NULL, (unsigned)ranks);
    ranks_own_open = form == STAGED ? NULL : open_nccl;
    like.config.is_eager = form != GRAPHS;
    struct trial got = trial_run(&like, 1, ranks);
    pthread_barrier_destroy(&together);
    assert_int_equal(streams.graphs_n, 0);
    assert_int_equal(atomic_load(&knobs->open_n), 0);
    assert_int_equal(atomic_load(&knobs->misused_n), 0);
    return got;
}

/* The last step asks for the work of the step before: graphs that exist. */
static void same_bits(struct trial like, int ranks)
{
    struct trial want = run(like, ranks, STAGED);
    for (int form = EAGER; form <= GRAPHS; form++) {
        const int posted = atomic_load(&knobs->posted_n);
        char name[96];
        text_format(
            name, sizeof name, "%d ranks, %d samples at once, dtype %d, compress %d, shard %d%s",
            ranks, (int)like.config.batch_samples, like.config.store.dtype,
            like.config.store.compress, like.config.store.shard, form == GRAPHS ? ", graphs" : "");
        struct trial got = run(like, ranks, form);
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

static void use_nccl(void)
{
    static char path[700];
    text_format(path, sizeof path, "%s", here("/nccl"));
    library_dir(path);
    knobs = fake_nccl_find(path);
    knobs->base = knobs->alias = streams.space;
    knobs->bytes = STREAMS_SPACE;
}

int main(void)
{
    harness_quiet();
    streams_begin();
    ranks_own_dev = rank_device;
    for (int rank = 0; rank < 4; rank++)
        open_once(rank_device(rank)); /* which leads to another folder */
    use_nccl();
    return harness_run_all(__FILE__, NULL, NULL);
}
