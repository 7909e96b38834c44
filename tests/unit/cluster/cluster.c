/* cluster with one node: the same state machines, no network. A job from its first generation over
 * a loss to the next one, a stop and the end. */
#include "harness.h"

#include <event2/event.h>

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
/* The loss of a worker; -1: only its comm failed. */
static void lose(struct seen *s, int64_t generation, int worker_i, int64_t step, enum status st,
                 const char *why)
{
    cluster_worker_lost(s->cluster, &(struct cluster_loss){generation, worker_i, step, st, why});
}
static void run(struct seen *s)
{
    struct timeval limit = {harness_patience_ms(5000) / 1000, 0};
    event_base_loopexit(s->loop, &limit);
    event_base_dispatch(s->loop);
}

TEST(a_job_recovers_from_a_loss)
{
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
    lose(&s, 1, 1, 7, ST_HANG, "worker rank 1 (pid 5) hung");
    lose(&s, 1, -1, -1, ST_PEER, "comm failed"); /* the same loss, reported again */
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

TEST(no_restart_left_keeps_the_status)
{
    struct seen s;
    begin(&s, 1, 1);
    for (int i = 0; i < 2; i++) {
        ready(&s, 1, 1);
        run(&s);
        cluster_stepped(s.cluster, s.world);
        lose(&s, s.world, 0, i, ST_HANG, "worker hung");
        run(&s);
    }
    assert_int_equal(s.end_st, ST_HANG);
    assert_non_null(strstr(s.why, "no restart left (MAX_RESTARTS=1)"));
    finish(&s);
}

TEST(losses_before_a_generation_count_too)
{
    struct seen s;
    begin(&s, 1, 100);
    for (int i = 0; i < 10 && s.ends_n == 0; i++) {
        lose(&s, 0, 0, -1, ST_RETRY, "worker died while loading");
        struct timeval soon = {0, 50000};
        event_base_loopexit(s.loop, &soon);
        event_base_dispatch(s.loop);
    }
    assert_int_equal(s.ends_n, 1);
    assert_int_equal(s.end_st, ST_RETRY);
    assert_non_null(strstr(s.why, "the same rank was lost three times"));
    assert_int_equal(s.worlds_n, 0);
    finish(&s);
}

/* Steps below the highest one count: after a return to a checkpoint the job makes them again. */
TEST(an_incident_takes_one_restart)
{
    static const int64_t steps[] = {900, 400, 300, 101, 500, 120};
    struct seen s;
    begin(&s, 3, 6);
    for (int i = 0; i < 18; i++) {
        const int worker = i % 3;
        ready(&s, 3, 1);
        run(&s);
        assert_int_equal(s.world, i + 1);
        struct cluster_rank ranks[3] = {{.step = steps[i / 3]}};
        cluster_report(s.cluster, ranks, 3);
        if (worker == 0) /* then the others are lost, too, before another step */
            cluster_stepped(s.cluster, s.world);
        lose(&s, s.world, worker, steps[i / 3], ST_RETRY, "killed");
        run(&s);
        assert_int_equal(s.ends_n, 0);
    }
    assert_int_equal(cluster_restarts(s.cluster), 6);
    finish(&s);
}

TEST(a_worker_that_ended_is_the_cause)
{
    struct seen s;
    begin(&s, 2, 0);
    ready(&s, 2, 1);
    run(&s);
    lose(&s, 1, -1, -1, ST_PEER, "rank 1 went away");
    run(&s);
    assert_int_equal(s.abort, 1);
    assert_int_equal(s.ends_n, 0); /* although no restart is left, the cause is awaited */
    lose(&s, 1, 1, 4, ST_BUG, "worker rank 1 was killed by SIGSEGV");
    run(&s);
    assert_int_equal(s.end_st, ST_BUG);
    assert_non_null(strstr(s.why, "SIGSEGV; no restart left"));
    finish(&s);
    begin(&s, 2, 100); /* no worker ended: the report counts when all are ready again */
    for (int i = 0; i < 3; i++) {
        ready(&s, 2, 1);
        run(&s);
        assert_int_equal(s.world, i + 1);
        assert_int_equal(cluster_restarts(s.cluster), i > 0);
        lose(&s, s.world, -1, -1, ST_PEER, "rank 1 cannot be reached");
        run(&s);
    }
    ready(&s, 2, 1);
    run(&s);
    assert_int_equal(s.end_st, ST_PEER);
    assert_non_null(strstr(s.why, "no worker or node was lost, but node 0"));
    assert_non_null(strstr(s.why, "rank 1 cannot be reached; the same rank was lost three times"));
    finish(&s);
}

TEST(a_failure_of_the_state_keeps_its_status)
{
    struct seen s;
    begin(&s, 2, 100);
    for (int i = 0; i < 2; i++) { /* on either worker */
        ready(&s, 2, 1);
        run(&s);
        cluster_stepped(s.cluster, s.world);
        lose(&s, s.world, -1, -1, ST_PEER, "a rank went away");
        run(&s);
        assert_int_equal(cluster_restarts(s.cluster), i);
        lose(&s, s.world, i, 1, ST_NOT_FINITE, "step 2: loss nan");
        if (i > 0)
            run(&s);
    }
    assert_int_equal(s.end_st, ST_NOT_FINITE);
    assert_non_null(strstr(s.why, "step 2: loss nan; the same failure came again"));
    finish(&s);
}

TEST(checkpoints_give_restarts_back)
{
    struct seen s;
    begin(&s, 1, 1);
    for (int i = 0; i < 4; i++) {
        ready(&s, 1, 1);
        run(&s);
        cluster_stepped(s.cluster, s.world);
        struct timeval soon = {0, 300000}; /* some ticks of the coordinator */
        event_base_loopexit(s.loop, &soon);
        event_base_dispatch(s.loop);
        cluster_checkpoints(s.cluster, 100 * (i + 1));
        event_base_loopexit(s.loop, &soon);
        event_base_dispatch(s.loop);
        assert_int_equal(s.ends_n, 0);
        lose(&s, s.world, 0, 10 * i, ST_RETRY, "killed");
        run(&s);
    }
    assert_int_equal(s.ends_n, 0);
    assert_int_equal(cluster_restarts(s.cluster), 4);
    finish(&s);
}

TEST(an_error_ends_with_its_message)
{
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

HARNESS_RUN_ALL()
