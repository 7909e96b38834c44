/* test_comm_ucx — the suite over UCX: ranks as threads with a UCX context each, on TCP through the
 * loopback device; nodes of one worker, and nodes of several that share memory. What threads cannot
 * show is in test_ucx_faults. */
#include "comm/suite.h"

#ifndef OVER
#define OVER COMM_NET_UCX
#endif
#ifndef SHARER
#define SHARER -1 /* the rank that says that its cores are shared */
#endif

#include <sys/mman.h>

struct world {
    int fds[SUITE_RANKS_MAX]; /* one of each node */
    char addresses[SUITE_RANKS_MAX][COMM_ADDRESS_MAX];
    int64_t bytes[SUITE_RANKS_MAX];
};

static void *world_new(const struct suite_job *job)
{
    struct world *world = calloc(1, sizeof(*world));
    for (int v = 0; v < SUITE_RANKS_MAX; v++)
        world->fds[v] = v < job->nodes ? memfd_create("test", MFD_CLOEXEC) : -1;
    return world;
}
static void world_free(void *world)
{
    for (int v = 0; v < SUITE_RANKS_MAX; v++)
        if (((struct world *)world)->fds[v] >= 0)
            close(((struct world *)world)->fds[v]);
    free(world);
}

/* Each wait of this thread asks is_aborted: the second time it stands still for so long. */
static _Thread_local int64_t stall_ms;
static _Thread_local int asked_n;

static bool stalls(void *arg)
{
    if (stall_ms > 0 && ++asked_n == 2) {
        clock_sleep_ms(stall_ms);
        stall_ms = 0;
    }
    return suite_is_aborted(arg);
}

static enum status open_rank(struct suite_rank *me, const struct comm_config *config)
{
    struct world *world = me->job->world;
    struct comm_config mine = *config;
    mine.kind = COMM_KIND_HOST;
    mine.net = OVER;
    mine.is_aborted = stalls;
    mine.is_oversubscribed = me->place.rank == SHARER;
    mine.secret = HARNESS_SECRET;
    mine.shm_fd = world->fds[me->place.node];
    CHECK_OK(comm_begin_open(&mine, &me->comm, world->addresses[me->place.rank],
                             &world->bytes[me->place.rank]));
    CHECK(world->bytes[me->place.rank] > 0, "%lld bytes", (long long)world->bytes[me->place.rank]);
    pthread_barrier_wait(&me->job->line_up);
    return comm_end_open(me->comm, SUITE_GENERATION, world->addresses, world->bytes);
}

static const int layouts[][2] = {{2, 1}, {3, 1}, {2, 2}, {5, 1}, {2, 3}};
static const struct suite suite_ucx = {.name = OVER == COMM_NET_TCP ? "tcp" : "ucx",
                                       .layouts_n = sizeof(layouts) / sizeof(layouts[0]),
                                       .layouts = layouts,
                                       .world_new = world_new,
                                       .world_free = world_free,
                                       .open = open_rank,
                                       .late_ms = 600};

/* With more than sixteen ranks chunks are small, but eager messages are not: the rank that adds
 * needs room for them. */
static void crowd_rank(struct suite_rank *me)
{
    const int ranks = me->place.ranks;
    for (int64_t part = 11000; part <= 33000; part += 11000) { /* 44, 88 and 132 KB of fp32 */
        int64_t n = part * ranks;
        float *data = malloc((size_t)n * sizeof *data);
        for (int64_t i = 0; i < n; i++)
            data[i] = (float)(me->place.rank + 1 + i % 7);
        CHECK_OK(comm_all_reduce(me->comm, (struct tensor){data, DTYPE_F32},
                                 (struct tensor){data, DTYPE_F32}, n));
        for (int64_t i = 0; i < n; i++)
            CHECK(data[i] == (float)(ranks * (ranks + 1) / 2 + ranks * (i % 7)),
                  "part %lld, element %lld of %lld: %g", (long long)part, (long long)i,
                  (long long)n, data[i]);
        free(data);
    }
}

static void a_crowd(void **state)
{
    suite_run_on(suite_this, 17, 1, harness_patience_ms(60000), crowd_rank);
}

/* Rank 1 does not run while rank 2 is late: all that rank 0 sends meanwhile is read in the call
 * that it belongs to. */
static void stalled_rank(struct suite_rank *me)
{
    const int rank = me->place.rank;
    for (int round = 0; round < 4; round++) {
        float few[3] = {(float)(rank + 1), (float)round, 1};
        const struct tensor t = {few, DTYPE_F32};
        stall_ms = rank == 1 ? 300 : 0;
        asked_n = 0;
        if (rank == 2)
            clock_sleep_ms(220);
        CHECK_OK(round % 2 == 0 ? comm_barrier(me->comm) : comm_all_reduce(me->comm, t, t, 3));
        CHECK(stall_ms == 0, "rank %d has not waited", rank);
        for (int i = 0; i < 5; i++) {
            float sum[3] = {(float)(rank + 1), (float)i, 1};
            const struct tensor s = {sum, DTYPE_F32};
            CHECK_OK(comm_all_reduce(me->comm, s, s, 3));
            CHECK(sum[0] == 6 && sum[1] == 3 * (float)i && sum[2] == 3, "%g %g %g", sum[0], sum[1],
                  sum[2]);
        }
        CHECK(round % 2 == 0 || (few[0] == 6 && few[1] == 3 * (float)round && few[2] == 3),
              "%g %g %g", few[0], few[1], few[2]);
    }
}

static void a_stalled_rank(void **state)
{
    suite_run_on(suite_this, 3, 1, harness_patience_ms(20000), stalled_rank);
}

/* TCP counts the segments of each connection, in a split too; UCX does not. */
static void link_rank(struct suite_rank *me)
{
    const int rank = me->place.rank, peer = rank ^ 1, two[2] = {2, 3};
    struct comm_link before = {0}, after = {0};
    struct comm *split = NULL;
    float few[2] = {1, 2};
    const struct tensor t = {few, DTYPE_F32};
    const bool is_known = OVER == COMM_NET_TCP;
    CHECK(comm_link(me->comm, peer, &before) == is_known, "rank %d", rank);
    CHECK(!comm_link(me->comm, rank, &before) && !comm_link(me->comm, 4, &before) &&
              !comm_link(me->comm, -1, &before),
          "a link to itself or to no rank");
    for (int i = 0; i < 10; i++)
        CHECK_OK(rank < peer ? comm_send(me->comm, t, 2, peer) : comm_recv(me->comm, t, 2, peer));
    if (rank >= 2)
        CHECK_OK(comm_split(me->comm, two, 2, &split));
    CHECK(comm_link(split != NULL ? split : me->comm, split != NULL ? peer - 2 : peer, &after) ==
              is_known,
          "rank %d", rank);
    CHECK(!is_known || rank > peer || after.segments_sent >= before.segments_sent + 10,
          "%lld segments after %lld", (long long)after.segments_sent,
          (long long)before.segments_sent);
    CHECK(!is_known || (after.rtt_us > 0 && after.rtt_us_min <= after.rtt_us &&
                        after.segments_resent <= after.segments_sent),
          "rtt %lld us, least %lld", (long long)after.rtt_us, (long long)after.rtt_us_min);
    CHECK_OK(comm_barrier(me->comm));
    comm_close(split);
}

static void links_are_counted(void **state)
{
    suite_run_on(suite_this, 4, 1, harness_patience_ms(20000), link_rank);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {SUITE_TESTS, cmocka_unit_test(a_crowd),
                                              cmocka_unit_test(a_stalled_rank),
                                              cmocka_unit_test(links_are_counted)};
    suite_this = &suite_ucx;
    harness_loopback();
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
