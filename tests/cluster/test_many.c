/* Many nodes at once over loopback: node 0 in a process of its own, all others in this one.
 * Measures the time until all are in a world, and the CPU time that heartbeats take on node 0.
 * CLUSTER_NODES sets the number of nodes (96 by default). */
#include "cluster/nodes.h"

#include <sys/resource.h>

#define MEMBERS_MAX 4095

struct crowd {
    struct event_base *loop;
    int n, worlds_n, aborts_n;
    struct one {
        struct crowd *crowd;
        struct cluster *cluster;
    } ones[MEMBERS_MAX];
};

static void on_world(void *arg, const struct cluster_world *world)
{
    struct one *one = arg;
    struct crowd *crowd = one->crowd;
    (void)world;
    if (++crowd->worlds_n == crowd->n)
        event_base_loopbreak(crowd->loop);
}
static void on_abort(void *arg, int64_t generation, const char *why)
{
    struct one *one = arg;
    (void)generation;
    if (one->crowd->aborts_n++ == 0)
        print_message("# abort: %s\n", why);
}
static void on_stop(void *arg, int request) { (void)arg, (void)request; }
static void on_end(void *arg, enum status st)
{
    struct one *one = arg;
    one->crowd->aborts_n++;
    print_message("# a node ended: %d %s\n", status_exit_code(st), status_message());
}

static void join(struct crowd *crowd, int i, int port)
{
    struct one *one = &crowd->ones[i];
    struct cluster_address mine = {.bytes = 200}; /* about the size of a UCX worker's address */
    struct cluster_config config = {.node_id = i + 1,
                                    .nodes_n = crowd->n + 1,
                                    .workers_n = 1,
                                    .master_addr = "127.0.0.1",
                                    .master_port = port,
                                    .token = "a secret of tests",
                                    .agree_json = agree,
                                    .join_timeout_ms = 60000,
                                    .peer_timeout_ms = 6000,
                                    .max_restarts = 3,
                                    .loop = crowd->loop,
                                    .on_world = on_world,
                                    .on_abort = on_abort,
                                    .on_stop = on_stop,
                                    .on_end = on_end,
                                    .arg = one};
    struct cluster_rank rank = {
        .rank = i + 1, .state = "training", .device = "cpu", .call = "all_reduce"};
    one->crowd = crowd;
    assert_int_equal(cluster_open(&config, &one->cluster), ST_OK);
    cluster_ready(one->cluster, &mine, 1);
    cluster_report(one->cluster, &rank, 1);
}

static double cpu_s(pid_t pid)
{
    char path[64], line[1024] = "";
    long utime = 0, stime = 0;
    text_format(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (f != NULL && fgets(line, sizeof(line), f) != NULL)
        (void)sscanf(strrchr(line, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld",
                     &utime, &stime);
    if (f != NULL)
        fclose(f);
    return (double)(utime + stime) / (double)sysconf(_SC_CLK_TCK);
}

static void all_join_and_send_heartbeats(void **state)
{
    (void)state;
    static struct crowd crowd;
    struct node zero;
    char n_text[8], port_text[8];
    const char *asked = getenv("CLUSTER_NODES");
    int port = free_port(), nodes_n = asked != NULL ? atoi(asked) : 96;
    const int watch_s = nodes_n > 500 ? 10 : 3;
    struct rlimit files = {(rlim_t)nodes_n * 8 + 500, (rlim_t)nodes_n * 8 + 500};
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        HARNESS_SKIP("%d open files are not allowed here", nodes_n * 8 + 500);
    crowd.n = nodes_n - 1;
    crowd.loop = event_base_new();
    text_format(n_text, sizeof(n_text), "%d", nodes_n);
    text_format(port_text, sizeof(port_text), "%d", port);
    start_words(&zero, 0,
                (const char *[]){n_text, "127.0.0.1", port_text, "a secret of tests", agree}, 5);
    harness_wait_ms(500);
    int64_t start_ms = clock_ms();
    for (int i = 0; i < crowd.n; i++)
        join(&crowd, i, port);
    struct timeval limit = {harness_patience_ms(40000) / 1000, 0};
    event_base_loopexit(crowd.loop, &limit);
    event_base_dispatch(crowd.loop);
    int64_t joined_ms = clock_ms() - start_ms;
    assert_int_equal(crowd.worlds_n, crowd.n);
    double join_s = cpu_s(zero.pid);
    struct timeval settle = {2, 0}, watch = {watch_s, 0};
    event_base_loopexit(crowd.loop, &settle);
    event_base_dispatch(crowd.loop);
    double before_s = cpu_s(zero.pid);
    start_ms = clock_ms();
    event_base_loopexit(crowd.loop, &watch);
    event_base_dispatch(crowd.loop);
    double share = (cpu_s(zero.pid) - before_s) / ((double)(clock_ms() - start_ms) / 1e3);
    print_message("# %d nodes: all in a world after %.2f s (node 0: %.2f s of a core); heartbeats: "
                  "%.1f %% of a core\n",
                  nodes_n, (double)joined_ms / 1e3, join_s, 100 * share);
    assert_int_equal(crowd.aborts_n, 0);
    assert_true(joined_ms < harness_patience_ms(10000));
    assert_true(share < 0.10);
    end_node(&zero);
    for (int i = 0; i < crowd.n; i++)
        cluster_close(crowd.ones[i].cluster);
    event_base_free(crowd.loop);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(all_join_and_send_heartbeats)};

NODES_MAIN(tests, NULL)
