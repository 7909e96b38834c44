/* node_main — a node of a cluster, as a process of its own, for tests over a real network. It
 * joins, is ready again after each abort, and writes each event as a line on stdout. Commands on
 * stdin: "leave", "stop", "lost", "closed RANK", "store", "step". The test program starts itself
 * with these arguments: node ID N ADDR PORT TOKEN AGREE [JOIN_MS [WORKERS [MAX_RESTARTS]]]. */
#ifndef CONVOY_TESTS_NODE_MAIN_H
#define CONVOY_TESTS_NODE_MAIN_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "net/psk.h"

struct node_main {
    struct event_base *loop;
    struct cluster *cluster;
    int id, workers_n;
    int64_t generation;
    enum status st;
};

static void node_main_ready(struct node_main *n)
{
    static struct cluster_address mine[CLUSTER_WORKERS_MAX];
    for (int i = 0; i < n->workers_n; i++)
        mine[i].bytes = snprintf((char *)mine[i].data, sizeof(mine[i].data),
                                 "node %d worker %d pid %d", n->id, i, getpid());
    cluster_ready(n->cluster, mine, n->workers_n);
}

static void node_main_on_world(void *arg, const struct cluster_world *world)
{
    struct node_main *n = arg;
    n->generation = world->generation;
    printf("world %lld %d", (long long)world->generation, world->ranks_n);
    for (int i = 0; i < world->ranks_n && i < 16; i++)
        printf(" %.*s;", (int)world->addresses[i].bytes, (const char *)world->addresses[i].data);
    printf("\n");
}
static void node_main_on_abort(void *arg, int64_t generation, const char *why)
{
    struct node_main *n = arg;
    printf("abort %lld %s\n", (long long)generation, why);
    n->generation = 0;
    node_main_ready(n);
}
static void node_main_on_stop(void *arg, int request)
{
    struct node_main *n = arg;
    printf("stop %d\n", request);
    cluster_leave(n->cluster, ST_TERMINATED, "stopped");
}
static void node_main_on_end(void *arg, enum status st)
{
    struct node_main *n = arg;
    printf("end %d %s\n", status_exit_code(st), st == ST_OK ? "" : status_message());
    n->st = st;
    cluster_close(n->cluster);
    n->cluster = NULL;
    event_base_loopbreak(n->loop);
}

static void node_main_on_command(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct node_main *n = arg;
    char line[64] = "";
    ssize_t got = read(fd, line, sizeof(line) - 1);
    if (got <= 0) {
        event_base_loopbreak(n->loop); /* the test has ended */
        return;
    }
    if (n->cluster == NULL)
        return;
    static int64_t step;
    struct cluster_rank rank = {.rank = n->id, .step = ++step, .state = "training"};
    cluster_report(n->cluster, &rank, 1);
    if (strncmp(line, "leave", 5) == 0)
        cluster_leave(n->cluster, ST_OK, "");
    else if (strncmp(line, "store", 5) == 0)
        cluster_leave(n->cluster, ST_STORE, "disk full");
    else if (strncmp(line, "lost", 4) == 0)
        cluster_worker_lost(n->cluster, &(struct cluster_loss){n->generation, 0, step, ST_PEER,
                                                               "worker rank 0 died"});
    else if (strncmp(line, "step", 4) == 0)
        cluster_stepped(n->cluster, n->generation);
    else if (strncmp(line, "closed ", 7) == 0)
        cluster_closed(n->cluster, n->generation, atoi(line + 7));
    else if (strncmp(line, "stop", 4) == 0) {
        cluster_stop(n->cluster, 3);
        cluster_leave(n->cluster, ST_TERMINATED, "stopped");
    }
}

static int node_main(int argc, char **argv)
{
    static struct node_main n;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    n.id = atoi(argv[2]);
    n.workers_n = argc > 9 ? atoi(argv[9]) : 1;
    n.loop = event_base_new();
    log_init(
        &(struct log_config){.level = getenv("HARNESS_LOUD") ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR,
                             .node_id = n.id,
                             .rank = -1});
    struct psk psk;
    assert_int_equal(psk_derive(argv[6], &psk), ST_OK);
    struct cluster_config config = {.node_id = n.id,
                                    .nodes_n = atoi(argv[3]),
                                    .workers_n = n.workers_n,
                                    .master_addr = argv[4],
                                    .master_port = atoi(argv[5]),
                                    .psk = &psk,
                                    .agree_json = argv[7],
                                    .join_timeout_ms = argc > 8 ? atoi(argv[8]) : 60000,
                                    .peer_timeout_ms = 6000,
                                    .max_restarts = argc > 10 ? atoi(argv[10]) : 1000,
                                    .loop = n.loop,
                                    .on_world = node_main_on_world,
                                    .on_abort = node_main_on_abort,
                                    .on_stop = node_main_on_stop,
                                    .on_end = node_main_on_end,
                                    .arg = &n};
    enum status st = cluster_open(&config, &n.cluster);
    if (st != ST_OK) {
        printf("end %d %s\n", status_exit_code(st), status_message());
        return status_exit_code(st);
    }
    struct event *command = event_new(n.loop, 0, EV_READ | EV_PERSIST, node_main_on_command, &n);
    event_add(command, NULL);
    node_main_ready(&n);
    event_base_dispatch(n.loop);
    event_free(command);
    cluster_close(n.cluster);
    event_base_free(n.loop);
    return status_exit_code(n.st);
}

#endif
