/* gpu_stats — a GPU's numbers reach the board and stay there; without the library there are
 * none. */
#include "unit/fake_nvml.h"

#include "node/worker/gpu_stats.h"

static bool wait_for(struct board *board, int64_t xids, struct board_gpu *out)
{
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000); clock_ms() < until_ms;) {
        if (board_gpu_copy(board, 1, out) && out->xids >= xids)
            return true;
        clock_sleep_ms(1);
    }
    return false;
}

TEST(without)
{
    struct board *board;
    struct board_gpu gpu;
    struct gpu_stats *stats = (struct gpu_stats *)&gpu;
    if (access("/dev/nvidiactl", F_OK) == 0)
        HARNESS_SKIP("this machine has a GPU");
    assert_int_equal(board_create(2, 2, &board), ST_OK);
    assert_int_equal(gpu_stats_open(board, 1, "0000:3b:00.0", NULL, true, 1, &stats), ST_OK);
    assert_null(stats);
    gpu_stats_close(stats);
    assert_false(board_gpu_copy(board, 1, &gpu));
    board_close(board);
}

TEST(with)
{
    struct board *board;
    struct board_gpu gpu;
    struct gpu_stats *stats = NULL;
    int *xids = fake_nvml_use("fake_nvml_xids"), *xids_n = fake_nvml_use("fake_nvml_xids_n");
    assert_int_equal(board_create(2, 2, &board), ST_OK);
    assert_false(board_gpu_copy(board, 1, &gpu));
    xids[0] = 79;
    *xids_n = 1;
    assert_int_equal(gpu_stats_open(board, 1, "0000:3b:00.0", NULL, true, 1, &stats), ST_OK);
    assert_true(wait_for(board, 1, &gpu));
    assert_true(gpu.busy == 0.97 && gpu.memory_used == 51ll << 30 && gpu.temperature == 63 &&
                gpu.xid_last == 79);
    assert_true(gpu.published_ms > 0 && gpu.published_ms <= clock_ms());
    gpu_stats_close(stats);
    assert_true(board_gpu_copy(board, 1, &gpu));
    assert_false(board_gpu_copy(board, 0, &gpu));
    board_worker_clear(board, 1);
    assert_false(board_gpu_copy(board, 1, &gpu));
    board_close(board);
    assert_int_equal(*fake_nvml_use("fake_nvml_begun"), 0);
}

/* A GPU that has fallen off the bus may hold its driver's calls for ever: the worker ends
 * nevertheless. */
TEST(a_reading_that_does_not_end_is_left)
{
    struct board *board;
    struct board_gpu gpu;
    struct gpu_stats *stats = NULL;
    int *begun = fake_nvml_use("fake_nvml_begun");
    volatile int *hangs = fake_nvml_use("fake_nvml_hangs"), *held = fake_nvml_use("fake_nvml_held");
    assert_int_equal(board_create(2, 2, &board), ST_OK);
    assert_int_equal(gpu_stats_open(board, 1, "0000:3b:00.0", NULL, true, 1, &stats), ST_OK);
    assert_true(wait_for(board, 0, &gpu));
    *hangs = 1;
    const int64_t held_until_ms = clock_ms() + harness_patience_ms(10000);
    while (*held == 0 && clock_ms() < held_until_ms) /* the next reading has begun */
        clock_sleep_ms(1);
    assert_int_equal(*held, 1);
    int64_t begin_ms = clock_ms();
    gpu_stats_close(stats);
    assert_in_range(clock_ms() - begin_ms, 1900, harness_patience_ms(4000));
    board_close(board);
    *hangs = 0;
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000);
         *begun != 0 && clock_ms() < until_ms;)
        clock_sleep_ms(1);
    assert_int_equal(*begun, 0); /* and what it had opened is closed when it does end */
}

HARNESS_RUN_ALL()
