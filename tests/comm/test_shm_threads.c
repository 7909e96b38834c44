/* test_shm_threads — the suite on threads of one process, in several layouts. */
#include "comm/suite.h"

static void *world_new(const struct suite_job *job)
{
    return shm_threads_world_new(job->nodes, job->locals);
}
static void world_free(void *world) { shm_threads_world_free(world); }

static enum status open_rank(struct suite_rank *me, const struct comm_config *config)
{
    struct comm_config mine = *config;
    int64_t bytes = -1;
    mine.kind = COMM_KIND_THREADS;
    mine.threads = me->job->world;
    enum status st = comm_begin_open(&mine, &me->comm, NULL, &bytes);
    CHECK(st != ST_OK || bytes == 0, "%lld bytes", (long long)bytes);
    return st == ST_OK ? comm_end_open(me->comm, SUITE_GENERATION, NULL, NULL) : st;
}

static const int layouts[][2] = {{1, 1}, {1, 2}, {1, 3}, {2, 2}, {2, 1},
                                 {3, 1}, {1, 4}, {5, 1}, {2, 3}, {3, 2}};
static const struct suite suite_threads = {.name = "threads",
                                           .layouts_n = sizeof(layouts) / sizeof(layouts[0]),
                                           .layouts = layouts,
                                           .world_new = world_new,
                                           .world_free = world_free,
                                           .open = open_rank};

/* A rank that comes after timeout_ms, but before the limit that limit_ms returns by then. */
static void slow_rank(struct suite_rank *me)
{
    CHECK_OK(comm_barrier(me->comm)); /* all are open */
    if (me->place.rank == 0)
        me->job->limit_ms = harness_patience_ms(20000);
    pthread_barrier_wait(&me->job->line_up);
    if (me->place.rank == 1)
        clock_sleep_ms(me->job->timeout_ms + 300);
    CHECK_OK(comm_barrier(me->comm));
}

static void test_limit_grows(void **state) { suite_run_late(&suite_threads, 2, 1, 300, slow_rank); }

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_limit_grows), SUITE_TESTS};
    suite_this = &suite_threads;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
