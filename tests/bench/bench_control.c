/* bench_control — node 0's control plane as a function of the number of nodes.
 *
 *   bench_control sim [N …]     a real coordinator and N simulated members: processor time of a
 *                               heartbeat, a tick, a join storm, a generation's start, a lost node,
 *                               a new node 0, the end; bytes of messages and of memory
 *   bench_control load [N [S]]  N members over TLS on loopback for S seconds: processor time and
 *                               memory of node 0's process
 *
 * Both without numbers: those of docs/benchmarks.md. Ends with 1 where a gate is missed. */
#include "cluster/crowd_load.h"
#include "cluster/crowd_sim.h"

static bool is_missed;

static void gate(const char *what, double is, double most, const char *unit)
{
    bool is_met = is <= most;
    printf("%s: %s: %.3g %s, gate %.3g\n", is_met ? "met" : "MISSED", what, is, unit, most);
    is_missed = is_missed || !is_met;
}

/* ---- simulated members ---- */

static void heading(void)
{
    printf("%6s %9s %9s %9s %8s %9s %9s %9s %9s %9s %9s %9s %9s\n", "nodes", "heartbeat", "read",
           "state", "write", "tick", "share", "join", "lost", "node 0", "leave", "memory", "world");
    printf("%6s %9s %9s %9s %8s %9s %9s %9s %9s %9s %9s %9s %9s\n", "", "us", "us", "us", "us",
           "us", "%", "us/node", "us/node", "us/node", "us/node", "B/node", "B/node");
}

/* Seconds of node 0 since the last call. */
static double lap(struct crowd_sim *s)
{
    double spent_s = crowd_cost_s(&s->cost);
    s->cost = (struct crowd_cost){0};
    return spent_s;
}

/* steady — ten seconds of a running generation. Returns node 0's share of a core. */
static double steady(struct crowd_sim *s)
{
    const double each = 1e6;
    crowd_run(s, 2000, INT64_MAX);
    lap(s);
    crowd_run(s, 10000, INT64_MAX);
    const struct crowd_cost cost = s->cost;
    const double n = (double)cost.messages_n, seconds = lap(s);
    printf("%6d %9.2f %9.2f %9.2f %8.2f %9.1f %9.3f", s->n,
           each * (cost.read_s + cost.state_s + cost.write_s) / n, each * cost.read_s / n,
           each * cost.state_s / n, each * cost.write_s / n,
           each * cost.tick_s / (double)cost.ticks_n, 100 * seconds / 10);
    assert_true(n >= 9.0 * s->n);
    return seconds / 10;
}

static void run_generation(struct crowd_sim *s, int64_t generation)
{
    if (!crowd_run(s, 60000, generation))
        fail_msg("%d nodes are not in generation %lld after 60 s", s->n, (long long)generation);
}

static void simulate(int n)
{
    static struct crowd_sim s;
    const double per_node = 1e6 / n;
    crowd_open(&s, n);
    run_generation(&s, 1);
    double join_s = lap(&s), share = steady(&s);
    crowd_kill(&s, n - 1);
    crowd_start(&s, n - 1, 3000);
    run_generation(&s, 2);
    double lost_s = lap(&s);
    crowd_replace_node0(&s);
    run_generation(&s, 3);
    double replaced_s = lap(&s);
    int64_t world_bytes = crowd_world_bytes(&s), memory = s.coordinator_bytes;
    crowd_leave(&s, 3000);
    printf(" %9.1f %9.1f %9.1f %9.1f %9.0f %9.1f\n", per_node * join_s, per_node * lost_s,
           per_node * replaced_s, per_node * lap(&s), (double)memory / n, (double)world_bytes / n);
    printf("# heartbeat %lld bytes, reply %lld, at most %lld while nodes join; world %lld\n",
           (long long)s.heartbeat_bytes, (long long)s.reply_bytes, (long long)s.reply_bytes_max,
           (long long)world_bytes);
    fflush(stdout);
    if (n == CLUSTER_NODES_MAX)
        gate("node 0 without sockets, 4096 nodes", share, 0.5, "cores");
    crowd_close(&s);
}

/* ---- members over TLS ---- */

static void load(int n, int seconds)
{
    struct crowd_load_result result;
    if (!crowd_load_run(n, seconds, false, &result))
        return;
    printf("%d nodes, TLS on loopback: all joined after %.2f s (node 0: %.2f s of a core); "
           "heartbeats: %.1f %% of a core, %.1f us each; memory of node 0: %.1f MiB before the "
           "nodes, %.1f MiB with them, %.1f MiB at most, %.1f KiB a node\n",
           n, result.joined_s, result.join_cpu_s, 100 * result.share, 1e6 * result.share / n,
           result.before_mib, result.rss_mib, result.peak_mib,
           1024 * (result.rss_mib - result.before_mib) / n);
    printf("%d nodes: oldest answered heartbeat %.2f s, lost %d\n", n, result.oldest_s,
           result.aborts_n);
    fflush(stdout);
    gate("generations lost", result.aborts_n, 0, "");
    gate("age of the oldest answered heartbeat", result.oldest_s, 6, "s");
    gate("processor time of node 0", result.share, 1, "cores");
}

static void usage_exit(void)
{
    fprintf(stderr, "usage: bench_control [sim [N ...] | load [N [SECONDS]]]\n");
    exit(2);
}

static int number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != 0 || value < 2 || value > 100000)
        usage_exit();
    return (int)value;
}

static void sim_all(int argc, char **argv)
{
    static const int usual[] = {64, 256, 1024, 4096, 10000};
    heading();
    for (int i = 0; argc == 0 && i < (int)(sizeof usual / sizeof *usual); i++)
        simulate(usual[i]);
    for (int i = 0; i < argc; i++)
        simulate(number(argv[i]));
}

static void load_all(int argc, char **argv)
{
    static const int usual[] = {64, 256, 1024, 4096};
    for (int i = 0; argc == 0 && i < (int)(sizeof usual / sizeof *usual); i++)
        load(usual[i], usual[i] == CLUSTER_NODES_MAX ? 30 : 5);
    if (argc > 0)
        load(number(argv[0]), argc > 1 ? number(argv[1]) : 30);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "node") == 0)
        return node_main(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    harness_quiet();
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 1 || strcmp(argv[1], "sim") == 0)
        sim_all(argc - 2 > 0 ? argc - 2 : 0, argv + 2);
    else if (strcmp(argv[1], "load") == 0)
        load_all(argc - 2, argv + 2);
    else
        usage_exit();
    return is_missed ? 1 : 0;
}
