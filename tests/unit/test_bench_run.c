/* test_bench_run — the rows of `convoy bench` on threads as ranks: every collective at every size,
 * no wrong element, plausible times, in host memory and in device memory that the host cannot
 * touch; how bus bandwidth is computed. */
#pragma GCC diagnostic ignored "-Wunused-function" /* not all of the device is used here */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "comm/fake_device.h"
#include "harness.h"
#include "node/bench_run.h"

struct rank {
    struct shm_threads_world *world;
    struct dev *dev;
    int rank, ranks, rows_n;
    enum status st;
    struct bench_run_row rows[BENCH_RUN_ROWS_MAX];
};

static void *run(void *arg)
{
    struct rank *me = arg;
    struct comm *comm = NULL;
    int64_t bytes;
    struct comm_config config = {.kind = COMM_KIND_THREADS,
                                 .place = {.rank = me->rank,
                                           .ranks = me->ranks,
                                           .nodes = 1,
                                           .local = me->rank,
                                           .locals = me->ranks},
                                 .timeout_ms = harness_patience_ms(60000),
                                 .shm_fd = -1,
                                 .dev = me->dev,
                                 .threads = me->world};
    me->st = comm_begin_open(&config, &comm, NULL, &bytes);
    if (me->st == ST_OK)
        me->st = comm_end_open(comm, 1, NULL, NULL);
    const struct bench_run_question question = {
        .bytes_max = 70000, .sizes_n = 6, .sizes = {4, 64, 1 << 10, 16 << 10, 70004, 64 << 10}};
    if (me->st == ST_OK)
        me->st = bench_run(comm, me->dev, &question, me->rows, &me->rows_n);
    comm_close(comm);
    return NULL;
}

static void check_three(struct dev *dev)
{
    static struct rank ranks[3];
    pthread_t threads[3];
    struct shm_threads_world *world = shm_threads_world_new(1, 3);
    for (int r = 0; r < 3; r++) {
        ranks[r] = (struct rank){.world = world, .dev = dev, .rank = r, .ranks = 3};
        pthread_create(&threads[r], NULL, run, &ranks[r]);
    }
    for (int r = 0; r < 3; r++)
        pthread_join(threads[r], NULL);
    shm_threads_world_free(world);
    assert_int_equal(ranks[0].rows_n, 4 * 5); /* one of the sizes is over the largest */
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].st, ST_OK);
        assert_memory_equal(ranks[r].rows, ranks[0].rows, sizeof(ranks[0].rows[0]) * 20);
    }
    for (int i = 0; i < 20; i++) {
        const struct bench_run_row *row = &ranks[0].rows[i];
        assert_int_equal(row->call, i / 5);
        assert_int_equal(row->wrong, 0);
        assert_true(row->runs >= 5 && row->best_us > 0 && row->median_us >= row->best_us);
    }
}

static void rows_of_three(void **state)
{
    (void)state;
    check_three(NULL);
}

static void rows_of_three_devices(void **state)
{
    (void)state;
    struct dev *dev = fake_device_open();
    check_three(dev);
    assert_true(fake_device.carried > 0);
    assert_int_equal(fake_device.blocks_n, 0);
    fake_device_close(dev);
}

static void bus(void **state)
{
    (void)state;
    struct bench_run_row row = {.call = BENCH_RUN_ALL_REDUCE, .bytes = 1000000};
    assert_true(fabs(bench_run_bus(&row, 2, 1000) - 1.0) < 1e-9);
    assert_true(fabs(bench_run_bus(&row, 4, 1000) - 1.5) < 1e-9);
    row.call = BENCH_RUN_ALL_GATHER;
    assert_true(fabs(bench_run_bus(&row, 4, 1000) - 0.75) < 1e-9);
    row.call = BENCH_RUN_BROADCAST;
    assert_true(fabs(bench_run_bus(&row, 4, 1000) - 1.0) < 1e-9);
    assert_true(bench_run_bus(&row, 1, 1000) == 0 && bench_run_bus(&row, 4, 0) == 0);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_three),
                                          cmocka_unit_test(rows_of_three_devices),
                                          cmocka_unit_test(bus)};
HARNESS_MAIN(tests)
