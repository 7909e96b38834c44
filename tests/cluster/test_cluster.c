/* cluster with one node: the same state machines, no network. A job from its first generation over
 * a loss to the next one, a stop and the end. */
#include "harness.h"

#include <string.h>

#include <event2/event.h>

#include "base/clock.h"
#include "cluster/cluster.h"

struct seen {
    struct event_base *loop;
    struct cluster *cluster;
    int64_t world, abort;
    int worlds_n, aborts_n, ends_n, stop, ranks_n;
    struct cluster_address first;
    enum status end_st;
    char why[1024];
};

static void on_world(void *arg, const struct cluster_world *world)
{
    struct seen *s = arg;
    s->worlds_n++;
    s->world = world->generation;
    s->ranks_n = world->ranks_n;
    s->first = world->addresses[0];
    event_base_loopbreak(s->loop);
}
static void on_abort(void *arg, int64_t generation, const char *why)
{
    struct seen *s = arg;
    s->aborts_n++;
    s->abort = generation;
    snprintf(s->why, sizeof(s->why), "%s", why);
    event_base_loopbreak(s->loop);
}
static void on_stop(void *arg, int request)
{
    struct seen *s = arg;
    s->stop = request;
}
static void on_end(void *arg, enum status st)
{
    struct seen *s = arg;
    s->ends_n++;
    s->end_st = st;
    snprintf(s->why, sizeof(s->why), "%s", status_message());
    cluster_close(s->cluster);
    s->cluster = NULL;
    event_base_loopbreak(s->loop);
}

static void begin(struct seen *s, int workers_n, int max_restarts)
{
    memset(s, 0, sizeof(*s));
    s->loop = event_base_new();
    struct cluster_config config = {.nodes_n = 1,
                                    .workers_n = workers_n,
                                    .join_timeout_ms = 60000,
                                    .peer_timeout_ms = 6000,
                                    .max_restarts = max_restarts,
                                    .agree_json = "{}",
                                    .loop = s->loop,
                                    .on_world = on_world,
                                    .on_abort = on_abort,
                                    .on_stop = on_stop,
                                    .on_end = on_end,
                                    .arg = s};
    assert_int_equal(cluster_open(&config, &s->cluster), ST_OK);
}
static void finish(struct seen *s)
{
    cluster_close(s->cluster);
    event_base_free(s->loop);
}
static void ready(struct seen *s, int workers_n, uint8_t mark)
{
    static struct cluster_address mine[CLUSTER_WORKERS_MAX];
    for (int i = 0; i < workers_n; i++) {
        mine[i].bytes = 3;
        memset(mine[i].data, mark + i, 3);
    }
    cluster_ready(s->cluster, mine, workers_n);
}
static void run(struct seen *s)
{
    struct timeval limit = {harness_patience_ms(5000) / 1000, 0};
    event_base_loopexit(s->loop, &limit);
    event_base_dispatch(s->loop);
}

static void a_job_recovers_from_a_loss(void **state)
{
    (void)state;
    struct seen s;
    const struct cluster_node *nodes;
    begin(&s, 2, 3);
    int64_t start_ms = clock_ms();
    ready(&s, 2, 7);
    run(&s);
    assert_int_equal(s.world, 1);
    assert_int_equal(s.ranks_n, 2);
    assert_int_equal(s.first.data[0], 7);
    assert_true(clock_ms() - start_ms < harness_patience_ms(400)); /* without waiting for a timer */
    assert_int_equal(cluster_nodes(s.cluster, &nodes), 1);
    assert_int_equal(nodes[0].state, CLUSTER_NODE_JOINED);
    cluster_worker_lost(s.cluster, 1, ST_HANG, "worker rank 1 (pid 5) hung");
    cluster_worker_lost(s.cluster, 1, ST_PEER, "comm failed"); /* the same loss, reported again */
    run(&s);
    assert_int_equal(s.abort, 1);
    assert_non_null(strstr(s.why, "rank 1 (pid 5) hung"));
    assert_int_equal(cluster_restarts(s.cluster), 1);
    ready(&s, 2, 9);
    run(&s);
    assert_int_equal(s.world, 2);
    assert_int_equal(s.first.data[0], 9);
    assert_int_equal(cluster_generation(s.cluster), 2);
    cluster_leave(s.cluster, ST_OK, "");
    run(&s);
    assert_int_equal(s.ends_n, 1);
    assert_int_equal(s.end_st, ST_OK);
    assert_int_equal(s.aborts_n, 1);
    finish(&s);
}

static void no_restart_left_keeps_the_status(void **state)
{
    (void)state;
    struct seen s;
    begin(&s, 1, 1);
    for (int i = 0; i < 2; i++) {
        ready(&s, 1, 1);
        run(&s);
        cluster_worker_lost(s.cluster, cluster_generation(s.cluster), ST_HANG, "worker hung");
        run(&s);
    }
    assert_int_equal(s.end_st, ST_HANG);
    assert_non_null(strstr(s.why, "no restart left (MAX_RESTARTS=1)"));
    finish(&s);
}

static void losses_before_a_generation_count_too(void **state)
{
    (void)state;
    struct seen s;
    begin(&s, 1, 100);
    for (int i = 0; i < 10 && s.ends_n == 0; i++) {
        cluster_worker_lost(s.cluster, 0, ST_RETRY, "worker died while loading");
        struct timeval soon = {0, 50000};
        event_base_loopexit(s.loop, &soon);
        event_base_dispatch(s.loop);
    }
    assert_int_equal(s.ends_n, 1);
    assert_int_equal(s.end_st, ST_RETRY);
    assert_non_null(strstr(s.why, "3 recoveries in a row made no new step"));
    assert_int_equal(s.worlds_n, 0);
    finish(&s);
}

static void progress_renews_the_budget(void **state)
{
    (void)state;
    struct seen s;
    begin(&s, 1, 100);
    for (int i = 0; i < 8; i++) {
        ready(&s, 1, 1);
        run(&s);
        assert_int_equal(s.world, i + 1);
        struct cluster_rank rank = {.step = i};
        cluster_report(s.cluster, &rank, 1);
        cluster_worker_lost(s.cluster, s.world, ST_RETRY, "killed");
        run(&s);
        assert_int_equal(s.ends_n, 0);
    }
    assert_int_equal(cluster_restarts(s.cluster), 8);
    finish(&s);
}

static void an_error_ends_with_its_message(void **state)
{
    (void)state;
    struct seen s;
    begin(&s, 1, 3);
    ready(&s, 1, 1);
    run(&s);
    cluster_stop(s.cluster, 3);
    cluster_leave(s.cluster, ST_STORE, "disk full");
    run(&s);
    assert_int_equal(s.end_st, ST_STORE);
    assert_string_equal(s.why, "disk full");
    assert_int_equal(s.stop, 0); /* no callback on the node that was asked */
    finish(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_job_recovers_from_a_loss),
    cmocka_unit_test(no_restart_left_keeps_the_status),
    cmocka_unit_test(losses_before_a_generation_count_too),
    cmocka_unit_test(progress_renews_the_budget),
    cmocka_unit_test(an_error_ends_with_its_message),
};
HARNESS_MAIN(tests)
