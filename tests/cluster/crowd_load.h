/* crowd_load — many members over TLS on loopback: node 0 in a process of its own, all others in
 * this one, with the clients that the product has. Measures node 0's processor time and memory. */
#ifndef CONVOY_TESTS_CROWD_LOAD_H
#define CONVOY_TESTS_CROWD_LOAD_H

#include "cluster/nodes.h"

#include <sys/resource.h>

#define CROWD_LOAD_AT_ONCE 48
#define CROWD_LOAD_JOIN_S 100 /* the longest that all may take to join */

struct crowd_load_result {
    /* until all are in a world, or members if there is none; node 0's part */
    double joined_s, join_cpu_s;
    double share;                         /* of a core, for heartbeats */
    double before_mib, rss_mib, peak_mib; /* resident memory of node 0 */
    double oldest_s; /* the longest that a member's last answered heartbeat was ago */
    int aborts_n;
};

struct crowd_load {
    struct event_base *loop;
    int n, port, started_n, worlds_n, aborts_n;
    bool has_world;
    double oldest_s;
    struct crowd_load_one {
        struct crowd_load *crowd;
        struct cluster *cluster;
    } * ones;
};

static void crowd_load_on_world(void *arg, const struct cluster_world *world)
{
    struct crowd_load_one *one = arg;
    struct crowd_load *crowd = one->crowd;
    (void)world;
    if (++crowd->worlds_n == crowd->n)
        event_base_loopbreak(crowd->loop);
}
static void crowd_load_on_abort(void *arg, int64_t generation, const char *why)
{
    struct crowd_load_one *one = arg;
    (void)generation;
    if (one->crowd->aborts_n++ == 0)
        printf("# abort: %s\n", why);
}
static void crowd_load_on_stop(void *arg, int request) { (void)arg, (void)request; }
static void crowd_load_on_end(void *arg, enum status st)
{
    struct crowd_load_one *one = arg;
    if (one->crowd->aborts_n++ == 0)
        printf("# a node ended: %d %s\n", status_exit_code(st), status_message());
}

static void crowd_load_join(struct crowd_load *crowd, int i)
{
    struct crowd_load_one *one = &crowd->ones[i];
    static struct psk psk; /* derived once: it costs time by design */
    if (i == 0)
        assert_int_equal(psk_derive("a secret of tests", &psk), ST_OK);
    struct cluster_address mine = {.bytes = 31}; /* of a TCP worker */
    struct cluster_config config = {.node_id = i + 1,
                                    .nodes_n = crowd->n + 1,
                                    .workers_n = 1,
                                    .master_addr = "127.0.0.1",
                                    .master_port = crowd->port,
                                    .psk = &psk,
                                    .agree_json = agree,
                                    .join_timeout_ms = 60000,
                                    .peer_timeout_ms = 6000,
                                    .max_restarts = 3,
                                    .loop = crowd->loop,
                                    .on_world = crowd_load_on_world,
                                    .on_abort = crowd_load_on_abort,
                                    .on_stop = crowd_load_on_stop,
                                    .on_end = crowd_load_on_end,
                                    .arg = one};
    struct cluster_rank rank = {
        .rank = i + 1, .state = "training", .device = "cpu", .call = "all_reduce"};
    one->crowd = crowd;
    assert_int_equal(cluster_open(&config, &one->cluster), ST_OK);
    if (crowd->has_world)
        cluster_ready(one->cluster, &mine, 1);
    cluster_report(one->cluster, &rank, 1);
}

/* How many of those that were started are no members yet. */
static int crowd_load_waiting(const struct crowd_load *crowd)
{
    int n = 0;
    for (int i = 0; i < crowd->started_n; i++) {
        const struct cluster_node *own;
        cluster_nodes(crowd->ones[i].cluster, &own);
        n += own[1].state != CLUSTER_NODE_JOINED;
    }
    return n;
}

/* Starts members, CROWD_LOAD_AT_ONCE at a time: each has a machine of its own in a job, and here
 * they share one thread, which could not answer node 0 in time if all came at once. */
static void crowd_load_start_some(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct crowd_load *crowd = arg;
    for (int free_n = CROWD_LOAD_AT_ONCE - crowd_load_waiting(crowd);
         free_n > 0 && crowd->started_n < crowd->n; free_n--)
        crowd_load_join(crowd, crowd->started_n++);
    if (!crowd->has_world && crowd->started_n == crowd->n && crowd_load_waiting(crowd) == 0)
        event_base_loopbreak(crowd->loop);
}

/* ---- node 0, as the kernel sees it ---- */

static double crowd_load_cpu_s(pid_t pid)
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

/* name: VmRSS, VmHWM */
static double crowd_load_mib(pid_t pid, const char *name)
{
    char path[64], line[256];
    long kib = 0;
    text_format(path, sizeof(path), "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtol(line + strlen(name) + 1, NULL, 10);
    if (f != NULL)
        fclose(f);
    return (double)kib / 1024;
}

/* ---- the run ---- */

static bool crowd_load_allow_files(int n)
{
    /* two connections of each member with one file each, and what libcurl keeps for it */
    const rlim_t want = (rlim_t)n * 4 + 1000;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max > want)
        files.rlim_cur = files.rlim_max;
    if (files.rlim_cur >= want && setrlimit(RLIMIT_NOFILE, &files) == 0)
        return true;
    printf("# skipped: %llu open files are not allowed here\n", (unsigned long long)want);
    return false;
}

/* The members' own view of how long ago node 0 has answered. */
static void crowd_load_look(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct crowd_load *crowd = arg;
    for (int i = 0; i < crowd->n; i++) {
        const struct cluster_node *own;
        cluster_nodes(crowd->ones[i].cluster, &own);
        if (own[0].heartbeat_age_seconds > crowd->oldest_s)
            crowd->oldest_s = own[0].heartbeat_age_seconds;
    }
}

static void crowd_load_for(struct crowd_load *crowd, int seconds)
{
    struct timeval limit = {seconds, 0};
    event_base_loopexit(crowd->loop, &limit);
    event_base_dispatch(crowd->loop);
}

static void crowd_load_start_node0(struct node *zero, int nodes_n, int port)
{
    char n_text[12], port_text[8];
    text_format(n_text, sizeof(n_text), "%d", nodes_n);
    text_format(port_text, sizeof(port_text), "%d", port);
    start_words(zero, 0,
                (const char *[]){n_text, "127.0.0.1", port_text, "a secret of tests", agree}, 5);
    harness_wait_ms(500);
}

static void crowd_load_watch(struct crowd_load *crowd, pid_t zero, int seconds,
                             struct crowd_load_result *out)
{
    const struct timeval often = {0, 250000};
    struct event *look = event_new(crowd->loop, -1, EV_PERSIST, crowd_load_look, crowd);
    crowd_load_for(crowd, 2); /* to settle */
    event_add(look, &often);
    double before_s = crowd_load_cpu_s(zero);
    int64_t begin_ms = clock_ms();
    crowd_load_for(crowd, seconds);
    double elapsed_s = (double)(clock_ms() - begin_ms) / 1e3;
    event_free(look);
    out->share = (crowd_load_cpu_s(zero) - before_s) / elapsed_s;
    out->rss_mib = crowd_load_mib(zero, "VmRSS");
    out->peak_mib = crowd_load_mib(zero, "VmHWM");
    out->oldest_s = crowd->oldest_s;
    out->aborts_n = crowd->aborts_n;
}

static void crowd_load_join_all(struct crowd_load *crowd, pid_t zero, struct crowd_load_result *out)
{
    const struct timeval often = {0, 20000};
    struct event *more = event_new(crowd->loop, -1, EV_PERSIST, crowd_load_start_some, crowd);
    int64_t begin_ms = clock_ms();
    event_add(more, &often);
    crowd_load_for(crowd, CROWD_LOAD_JOIN_S);
    event_free(more);
    out->joined_s = (double)(clock_ms() - begin_ms) / 1e3;
    out->join_cpu_s = crowd_load_cpu_s(zero);
    bool is_all = crowd->has_world ? crowd->worlds_n == crowd->n : crowd_load_waiting(crowd) == 0;
    if (!is_all)
        fail_msg("%d started, %d are no members, %d of %d are in a world after %.0f s",
                 crowd->started_n, crowd_load_waiting(crowd), crowd->worlds_n, crowd->n,
                 out->joined_s);
}

/* crowd_load_run — nodes_n nodes join, and are watched for so long. has_world: a generation begins;
 * with some hundred nodes, one thread cannot read the addresses of all for each and send their
 * heartbeats in time, which N machines can. false: not allowed here. */
static inline bool crowd_load_run(int nodes_n, int seconds, bool has_world,
                                  struct crowd_load_result *out)
{
    struct crowd_load crowd = {.n = nodes_n - 1, .port = free_port(), .has_world = has_world};
    struct node zero;
    *out = (struct crowd_load_result){0};
    if (!crowd_load_allow_files(nodes_n))
        return false;
    crowd.ones = calloc((size_t)crowd.n, sizeof(*crowd.ones));
    crowd.loop = event_base_new();
    crowd_load_start_node0(&zero, nodes_n, crowd.port);
    out->before_mib = crowd_load_mib(zero.pid, "VmRSS");
    crowd_load_join_all(&crowd, zero.pid, out);
    crowd_load_watch(&crowd, zero.pid, seconds, out);
    end_node(&zero);
    for (int i = 0; i < crowd.n; i++)
        cluster_close(crowd.ones[i].cluster);
    event_base_free(crowd.loop);
    free(crowd.ones);
    return true;
}

#endif
