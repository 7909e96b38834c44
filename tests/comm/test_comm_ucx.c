/* test_comm_ucx — the suite over UCX, ranks as threads with a UCX context each, on TCP through the loopback device; and as
 * processes what threads cannot show: a rank that is killed or stopped, recovery in the same process, nothing left behind. */
#include "comm/suite.h"

struct world {
    char addresses[SUITE_RANKS_MAX][COMM_ADDRESS_MAX];
    int64_t bytes[SUITE_RANKS_MAX];
};

static void *world_new(const struct suite_job *job)
{
    (void)job;
    return calloc(1, sizeof(struct world));
}
static void world_free(void *world) { free(world); }

static enum status open_rank(struct suite_rank *me, const struct comm_config *config)
{
    struct world *world = me->job->world;
    struct comm_config mine = *config;
    mine.kind = COMM_KIND_UCX;
    int64_t generation = mine.generation;
    mine.generation = 0;
    CHECK_OK(comm_begin_open(&mine, &me->comm, world->addresses[me->place.rank], &world->bytes[me->place.rank]));
    CHECK(world->bytes[me->place.rank] > 0, "%lld bytes", (long long)world->bytes[me->place.rank]);
    pthread_barrier_wait(&me->job->apart);
    return comm_end_open(me->comm, generation, world->addresses, world->bytes);
}

static const int layouts[][2] = {{2, 1}, {3, 1}, {2, 2}, {5, 1}, {2, 3}};
static const struct suite suite_ucx = {.name = "ucx",
                                       .layouts_n = sizeof(layouts) / sizeof(layouts[0]),
                                       .layouts = layouts,
                                       .world_new = world_new,
                                       .world_free = world_free,
                                       .open = open_rank,
                                       .late_ms = 600};

int main(void)
{
    static const struct CMUnitTest tests[] = {SUITE_TESTS};
    suite_this = &suite_ucx;
    setenv("UCX_TLS", "tcp,self", 0);
    setenv("UCX_NET_DEVICES", "lo", 0);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
