/* staging — buffers in device memory over transports that move host memory: threads, the
 * shared memory of one node, and UCX between nodes over the loopback device. */
#pragma GCC diagnostic ignored "-Wunused-function" /* not all of the suite is used here */
#include "comm/suite.h"

#include "comm/suite_device.h"

#include "comm/nccl_world.h"

static void *threads_world_new(const struct suite_job *job)
{
    return shm_threads_world_new(job->nodes, job->locals);
}
static void threads_world_free(void *world) { shm_threads_world_free(world); }
static enum status open_mem(struct suite_rank *me, const struct comm_config *config)
{
    struct comm_config mine = *config;
    int64_t bytes = -1;
    mine.kind = COMM_KIND_THREADS;
    mine.threads = me->job->world;
    mine.dev = suite_dev;
    CHECK_OK(comm_begin_open(&mine, &me->comm, NULL, &bytes));
    return comm_end_open(me->comm, SUITE_GENERATION, NULL, NULL);
}

static const int mem_layouts[][2] = {{1, 2}, {3, 1}}, ucx_layouts[][2] = {{1, 3}, {2, 1}, {2, 2}};
static const struct suite suite_threads = {.name = "threads",
                                           .layouts_n = 2,
                                           .layouts = mem_layouts,
                                           .world_new = threads_world_new,
                                           .world_free = threads_world_free,
                                           .open = open_mem,
                                           .is_discrete = true};
static const struct suite suite_ucx = NCCL_WORLD_UCX("ucx", ucx_layouts);

TEST(over_threads)
{
    suite_this = &suite_threads;
    suite_device(state);
}
TEST(over_ucx)
{
    suite_this = &suite_ucx;
    suite_device(state);
}

/* Chunking does not change the order of sums. */
static void bits_rank(struct suite_rank *me)
{
    CHECK(suite_device_bits(me, 1200007) > 0, "rank %d", me->place.rank);
}
TEST(bits)
{
    suite_run_on(&suite_threads, 3, 1, harness_patience_ms(20000), bits_rank);
    suite_run_on(&suite_ucx, 2, 2, harness_patience_ms(20000), bits_rank);
}

TEST(missing)
{
    suite_run_late(&suite_threads, 1, 2, 300, suite_device_missing_rank);
    suite_run_late(&suite_ucx, 2, 1, 600, suite_device_missing_rank);
    assert_int_equal(fake_device.blocks_n, 0);
}

static int begin(void **state)
{
    harness_loopback();
    suite_dev = fake_device_open();
    return 0;
}

static int end(void **state)
{
    fake_device_close(suite_dev);
    return 0;
}

HARNESS_RUN_ALL_WITH(begin, end)
