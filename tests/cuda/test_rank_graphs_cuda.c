/* Several ranks on the CUDA device without a GPU (guarded.h), as threads: their steps run as CUDA
 * graphs too, and give the bits of one operation after the other, with every SHARD. Recorded work
 * is submitted before the host waits for other ranks. */
#include "kernel_test.h"

#include "mesh/store/store.h"
#include "mesh/trial.h"
#include "tests/cuda/rank_devices.h"
#include "train/step/lr_schedule.h"

#define STEPS 4
#define SEQ 3

/* ---- the same bits ---- */

/* What all ranks have asked of the runtime, after each step. */
static struct seen {
    /* the last two: kernels one by one, nodes of graphs */
    int launches, captures, alone, in_graphs;
} seen[STEPS];
static pthread_barrier_t together;

static void look(const struct ranks_one *one, int step)
{
    pthread_barrier_wait(&together);
    if (one->rank == 0)
        seen[step] = (struct seen){*runtime_calls("cudaGraphLaunch"),
                                   *runtime_calls("cudaStreamBeginCapture"), runtime.launched,
                                   runtime.launched_graph};
    pthread_barrier_wait(&together);
}

static struct trial run(struct trial like, int ranks, enum layout_shard shard, bool is_eager)
{
    pthread_barrier_init(&together, NULL, (unsigned)ranks);
    like.config.store.shard = shard;
    like.config.is_eager = is_eager;
    like.stepped = look;
    struct trial got = trial_run(&like, 1, ranks);
    pthread_barrier_destroy(&together);
    assert_int_equal(runtime.graphs_n, 0); /* closed */
    return got;
}

static struct trial trial_of_ranks(int ranks, int64_t batch, enum dtype dtype)
{
    struct trial like = trial_tiny(2 * ranks, SEQ);
    like.steps = STEPS;
    like.config.batch_samples = batch;
    like.config.store.dtype = dtype;
    return like;
}

/* The fourth step asks for what the third has asked for: nothing is captured, and most work is in
 * graphs, of which each rank has one for each block forward and one back, at least. */
static void went_as_graphs(int ranks, const char *name)
{
    const struct seen *a = &seen[STEPS - 2], *b = &seen[STEPS - 1];
    int launches = b->launches - a->launches, alone = b->alone - a->alone,
        in_graphs = b->in_graphs - a->in_graphs;
    print_message("# %s: %d graphs of %d pieces of work in a step, %d pieces alone\n", name,
                  launches, in_graphs, alone);
    assert_int_equal(b->captures, a->captures);
    assert_true(launches >= 4 * ranks && in_graphs > 3 * alone);
}

static void graphs_give_the_same_bits(struct trial like, int ranks, int shard_first)
{
    int launches = *runtime_calls("cudaGraphLaunch");
    struct trial want = run(like, ranks, LAYOUT_SHARD_NONE, true);
    assert_int_equal(*runtime_calls("cudaGraphLaunch"), launches);
    for (int shard = shard_first; shard <= LAYOUT_SHARD_FULL; shard++) {
        char name[80];
        text_format(name, sizeof name, "%d ranks, %d samples at once, dtype %d, shard %d", ranks,
                    (int)like.config.batch_samples, like.config.store.dtype, shard);
        struct trial got = run(like, ranks, (enum layout_shard)shard, false);
        trial_same(&got, &want, name);
        went_as_graphs(ranks, name);
        trial_free(&got);
    }
    trial_free(&want);
}

TEST(two_ranks)
{
    graphs_give_the_same_bits(trial_of_ranks(2, 2, DTYPE_F32), 2, LAYOUT_SHARD_NONE);
    graphs_give_the_same_bits(trial_of_ranks(2, 1, DTYPE_F32), 2, LAYOUT_SHARD_NONE);
    /* weights are rounded on the way */
    graphs_give_the_same_bits(trial_of_ranks(2, 2, DTYPE_BF16), 2, LAYOUT_SHARD_GRADIENTS);
}

TEST(four_ranks)
{
    graphs_give_the_same_bits(trial_of_ranks(4, 2, DTYPE_F32), 4, LAYOUT_SHARD_NONE);
    graphs_give_the_same_bits(trial_of_ranks(4, 1, DTYPE_F32), 4, LAYOUT_SHARD_NONE);
}

/* One micro-batch on the first rank, two on the others. */
TEST(unequal_micro_batches)
{
    struct trial like = trial_of_ranks(3, 1, DTYPE_F32);
    like.config.global_samples = 5;
    struct trial want = run(like, 3, LAYOUT_SHARD_NONE, true);
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        struct trial got = run(like, 3, (enum layout_shard)shard, false);
        trial_same(&got, &want, "unequal micro-batches");
        trial_free(&got);
    }
    trial_free(&want);
}

/* One micro-batch in the first steps, two in the others. */
TEST(growing_batches)
{
    struct trial like = trial_of_ranks(2, 1, DTYPE_F32);
    like.config.batch_warmup = (struct warmup){.from = 2, .steps = 2};
    assert_int_equal(step_samples_at(&like.config, 1), 2);
    assert_int_equal(step_samples_at(&like.config, 2), 4);
    struct trial want = run(like, 2, LAYOUT_SHARD_NONE, true);
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++) {
        int launches = *runtime_calls("cudaGraphLaunch");
        struct trial got = run(like, 2, (enum layout_shard)shard, false);
        assert_true(*runtime_calls("cudaGraphLaunch") > launches);
        trial_same(&got, &want, "growing batches");
        trial_free(&got);
    }
    trial_free(&want);
}

/* ---- before the host waits ---- */

static int fills(void) { return *runtime_calls("cudaMemsetAsync"); }

/* Rank 0 records a fill, and waits for a sum that rank 1 joins only when the fill has begun. */
static enum status wait_for_it(struct ranks_one *one, struct stream *stream, struct store *store,
                               void *data)
{
    double sum[1] = {1 + one->rank};
    struct comm_ticket ticket;
    int before = fills();
    pthread_barrier_wait(&together);
    if (one->rank == 0) {
        TRY(store_all_reduce_begin(store, sum, 1, &ticket));
        TRY(dev_fill(stream, data, 7, 64));
    } else {
        for (int64_t end = clock_ms() + harness_patience_ms(3000);
             fills() == before && clock_ms() < end;)
            clock_sleep_us(100);
        if (fills() == before)
            return FAIL(
                ST_BUG,
                "rank 0 waits, and its GPU stands still: a fill was recorded, and has not begun");
        TRY(store_all_reduce_begin(store, sum, 1, &ticket));
    }
    TRY(store_wait(store, ticket));
    return sum[0] == 3 ? ST_OK : FAIL(ST_BUG, "the sum is %g", sum[0]);
}

static enum status record_and_wait(struct ranks_one *one)
{
    const struct model_dims dims = trial_of_ranks(2, 1, DTYPE_F32).config.dims;
    struct store_config config = {
        .dev = one->dev, .comm = one->comm, .settings.bucket_elems_min = 1, .pass_tokens = SEQ};
    struct param_table table = {0};
    struct stream *stream = NULL;
    struct store *store = NULL;
    void *data = NULL;
    TRY(model_ops(&dims)->describe(&dims, &table));
    TRY(dev_stream_open(one->dev, &stream));
    TRY(dev_graph_begin(stream));
    TRY(dev_alloc(one->dev, 64, &data));
    config.stream = stream;
    config.table = &table;
    TRY(store_open(&config, &store));
    pthread_barrier_wait(&together);
    enum status st = wait_for_it(one, stream, store, data);
    store_close(store);
    dev_stream_close(stream);
    dev_free(one->dev, data, 64);
    param_table_free(&table);
    return st;
}

TEST(work_begins_before_the_host_waits)
{
    int unused[2] = {0};
    pthread_barrier_init(&together, NULL, 2);
    ranks_run(1, 2, record_and_wait, unused, sizeof *unused);
    pthread_barrier_destroy(&together);
}

static int open_first(void **state)
{
    (void)state;
    rank_devices_open();
    return 0;
}

HARNESS_RUN_ALL_WITH(open_first, NULL)
