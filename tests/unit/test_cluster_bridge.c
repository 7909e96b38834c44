/* test_cluster_bridge — one node of two workers: readiness, worlds, losses and leaving, through the
 * board and a real cluster. This program is its own worker: started as "convoy worker I WORD" it
 * only sleeps. */
#include "harness.h"

#include <signal.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/text.h"
#include "cluster/cluster.h"
#include "node/supervisor/cluster_bridge.h"
#include "node/choose/config_map.h"

struct rig {
    struct conf *conf;
    struct board *board;
    struct workers *workers;
    struct event_base *loop;
    struct cluster_bridge *bridge;
    int begins, aborts, ends;
    enum status end_st;
    char why[512];
};

static void on_worker_end(void *arg, const struct workers_end *end) { (void)arg, (void)end; }

static void on_abort(void *arg, const char *why)
{
    struct rig *r = arg;
    r->aborts++;
    text_copy(r->why, sizeof r->why, why);
}

static void on_begin(void *arg)
{
    struct rig *r = arg;
    r->begins++;
}

static void on_stop(void *arg, enum board_request request) { (void)arg, (void)request; }

static void on_end(void *arg, enum status st)
{
    struct rig *r = arg;
    r->ends++;
    r->end_st = st;
}

static void rig_open(struct rig *r, char *restarts)
{
    char *words[] = {"N_GPU_EACH_NODE=2", "MODEL=gpt2-nano", restarts}, *nothing[] = {NULL},
         *word[] = {"live"};
    memset(r, 0, sizeof *r);
    assert_int_equal(conf_open(3, words, nothing, &r->conf), ST_OK);
    assert_int_equal(board_create(2, 2, &r->board), ST_OK);
    r->loop = event_base_new();
    struct workers_config workers = {.board = r->board,
                                     .workers_n = 2,
                                     .args_n = 1,
                                     .args = word,
                                     .shm_fd = -1,
                                     .comm_heartbeat_limit_ms = 60000,
                                     .on_end = on_worker_end};
    assert_int_equal(workers_open(&workers, &r->workers), ST_OK);
    assert_int_equal(workers_start(r->workers), ST_OK);
    struct cluster_bridge_config config = {.conf = r->conf,
                                           .board = r->board,
                                           .loop = r->loop,
                                           .workers = r->workers,
                                           .max_restarts =
                                               (int)conf_i64(r->conf, CONF_MAX_RESTARTS),
                                           .agreement = config_map_agreement,
                                           .on_begin = on_begin,
                                           .on_abort = on_abort,
                                           .on_stop = on_stop,
                                           .on_end = on_end,
                                           .arg = r};
    assert_int_equal(cluster_bridge_open(&config, &r->bridge), ST_OK);
}

static void rig_close(struct rig *r)
{
    cluster_bridge_close(r->bridge);
    workers_close(r->workers);
    event_base_free(r->loop);
    board_close(r->board);
    conf_close(r->conf);
}

static void turn(struct rig *r)
{
    cluster_bridge_tick(r->bridge, clock_ms());
    event_base_loop(r->loop, EVLOOP_NONBLOCK);
    clock_sleep_ms(5);
}

static void turn_until(struct rig *r, const int *count, int least)
{
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000);
         *count < least && clock_ms() < until_ms;)
        turn(r);
}

static void ready(struct rig *r, int worker_i, int64_t after, int64_t turn_n, const char *why)
{
    struct board_ready stats = {.after = after,
                                .revision = turn_n,
                                .closed_rank = -1,
                                .address = {.bytes = 4, .data = {(uint8_t)worker_i, 2, 3}}};
    text_copy(stats.why, sizeof stats.why, why);
    board_ready_publish(r->board, worker_i, &stats);
}

/* world — the next generation after `after`, waited for. */
static int64_t world(struct rig *r, int64_t after)
{
    struct board_address addresses[2];
    struct board_world_place place;
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000); clock_ms() < until_ms; turn(r))
        if (board_world_copy(r->board, after, &place, addresses)) {
            assert_true(place.nodes == 1 && place.node == 0);
            assert_int_equal(addresses[1].bytes, 4);
            assert_int_equal(addresses[1].data[0], 1);
            return place.generation;
        }
    return 0;
}

static void worlds_follow_readiness(void **state)
{
    struct rig r;
    rig_open(&r, "MAX_RESTARTS=5");
    ready(&r, 0, 0, 1, "");
    for (int i = 0; i < 40; i++)
        turn(&r);
    assert_false(cluster_bridge_is_running(r.bridge)); /* one of two */
    ready(&r, 1, 0, 1, "");
    assert_int_equal(world(&r, 0), 1);
    assert_true(cluster_bridge_is_running(r.bridge));
    /* A worker leaves by itself: the generation is over, with its reason. */
    ready(&r, 1, 1, 2, "rank 0 does not answer");
    turn_until(&r, &r.aborts, 1);
    assert_int_equal(r.aborts, 1);
    assert_non_null(strstr(r.why, "rank 0 does not answer"));
    assert_int_equal(board_aborted(r.board), 1);
    assert_int_equal(cluster_bridge_restarts(r.bridge), 0); /* a worker may have ended */
    ready(&r, 0, 1, 2, "");
    int64_t second = world(&r, 1);
    assert_int_equal(second, 2);
    assert_int_equal(r.begins, 2);
    assert_int_equal(cluster_bridge_restarts(r.bridge), 1);
    assert_non_null(strstr(cluster_bridge_cause(r.bridge), "rank 0 does not answer"));
    const struct board_worker stepped = {
        .generation = 2, .begun_step = 4, .step = 5, .peer_copy = {.step = 5}};
    board_worker_publish(r.board, 0, &stepped);
    cluster_bridge_lost(r.bridge, 1, ST_HANG, "worker rank 1 hung");
    cluster_bridge_lost(r.bridge, 1, ST_HANG, "said twice");
    turn_until(&r, &r.aborts, 2);
    assert_int_equal(r.aborts, 2);
    assert_non_null(strstr(r.why, "worker rank 1 hung"));
    /* The other worker of that generation ends too: the same loss. */
    cluster_bridge_lost(r.bridge, 0, ST_NOT_FINITE, "the loss is not finite");
    for (int i = 0; i < 40; i++)
        turn(&r);
    assert_int_equal(cluster_bridge_restarts(r.bridge), 2);
    assert_int_equal(r.ends, 0);
    cluster_bridge_leave(r.bridge, ST_BAD_DATA, "the data are bad");
    turn_until(&r, &r.ends, 1);
    assert_int_equal(r.ends, 1);
    assert_int_equal(r.end_st, ST_BAD_DATA);
    rig_close(&r);
}

static void no_restart_left(void **state)
{
    struct rig r;
    rig_open(&r, "MAX_RESTARTS=0");
    ready(&r, 0, 0, 1, "");
    ready(&r, 1, 0, 1, "");
    assert_int_equal(world(&r, 0), 1);
    cluster_bridge_lost(r.bridge, 0, ST_NOT_FINITE, "step 3: loss nan");
    turn_until(&r, &r.ends, 1);
    assert_int_equal(r.ends, 1);
    assert_int_equal(r.end_st, ST_NOT_FINITE);
    cluster_bridge_tick(r.bridge, clock_ms()); /* over: nothing more */
    rig_close(&r);
}

/* reached_by — the choice for nodes 1, 2 … that have reached node 0 at these addresses; "-": not
 * joined. */
static const char *reached_by(const char *const *addresses, bool *is_split)
{
    static struct cluster_node nodes[8];
    int n = 1;
    memset(nodes, 0, sizeof nodes);
    for (; addresses[n - 1] != NULL; n++) {
        const bool is_here = strcmp(addresses[n - 1], "-") != 0;
        nodes[n].state = is_here ? CLUSTER_NODE_JOINED : CLUSTER_NODE_AWAITED;
        text_copy(nodes[n].reached, sizeof nodes[n].reached, is_here ? addresses[n - 1] : "");
    }
    return cluster_bridge_choose_reached(nodes, n, is_split);
}

static void the_address_of_most_nodes_is_chosen(void **state)
{
    static const struct {
        const char *addresses[6], *chosen;
        bool is_split;
    } rows[] = {
        {{NULL}, "", false},
        {{"-", "-", NULL}, "", false},
        {{"10.0.0.1", NULL}, "10.0.0.1", false},
        {{"127.0.1.1", "-", NULL}, "127.0.1.1", false}, /* all on one host */
        {{"127.0.1.1", "127.0.1.1", "10.0.0.1", NULL}, "10.0.0.1", false},
        {{"::1", "fd00::1", NULL}, "fd00::1", false},
        {{"10.0.0.1", "192.168.0.1", NULL}, "10.0.0.1", true}, /* the lowest NODE_ID's */
        {{"10.0.0.1", "192.168.0.1", "192.168.0.1", NULL}, "192.168.0.1", true},
        {{"192.168.0.1", "-", "10.0.0.1", "10.0.0.1", "127.0.0.1", NULL}, "10.0.0.1", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool is_split;
        assert_string_equal(reached_by(rows[i].addresses, &is_split), rows[i].chosen);
        assert_int_equal(is_split, rows[i].is_split);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_address_of_most_nodes_is_chosen),
    cmocka_unit_test(worlds_follow_readiness),
    cmocka_unit_test(no_restart_left),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0)
        for (;;)
            pause();
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
