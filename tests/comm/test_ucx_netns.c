/* test_ucx_netns — two nodes as real hosts: a network namespace each, joined by a veth pair with
 * its own addresses and a limited rate. UCX chooses its devices. Skipped where namespaces cannot be
 * made. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include "comm/core/comm.h"
#include "harness.h"

#ifndef OVER
#define OVER COMM_NET_UCX
#endif

#define RATE_MBIT 800
#define ELEMS 4000000

struct shared {
    _Atomic int arrived;
    pid_t pids[2];
    char addresses[2][COMM_ADDRESS_MAX];
    int64_t bytes[2];
    double seconds[2];
    int64_t failed_ms[2], closed_ms[2];
    _Atomic int64_t cut_ms;
    char name[2][64], message[2][1024];
};
static struct shared *all;
static int64_t late_ms; /* how long a call waits for the other node */

static void barrier(void)
{
    int mine = atomic_fetch_add(&all->arrived, 1) / 2;
    while (atomic_load(&all->arrived) / 2 <= mine)
        clock_sleep_ms(1);
}

static void shell(const char *fmt, ...)
{
    char command[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    if (system(command) != 0) {
        fprintf(stderr, "# failed: %s\n", command);
        _exit(4);
    }
}

/* A namespace for the network, and /sys as seen from it: UCX looks for devices in
 * /sys/class/net. */
static bool leave_host(void)
{
    return unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("sysfs", "/sys", "sysfs", 0, NULL) == 0;
}

/* This process in a namespace of its own, with one end of a veth pair. */
static void make_host(int node)
{
    if (!leave_host())
        _exit(3);
    all->pids[node] = getpid();
    barrier();
    if (node == 0)
        shell("ip link add v0 type veth peer name v1 netns %d", (int)all->pids[1]);
    barrier();
    shell("ip link set lo up && ip addr add 10.77.0.%d/24 dev v%d && ip link set v%d up", node + 1,
          node, node);
    shell("tc qdisc add dev v%d root tbf rate %dmbit burst 256kb latency 50ms", node, RATE_MBIT);
    barrier();
    /* the kernel reports the carrier a little later; until then UCX does not use the device */
    shell("for i in $(seq 100); do grep -q up /sys/class/net/v%d/operstate && exit 0; sleep 0.05; "
          "done; exit 1",
          node);
    barrier();
}

static enum status open_comm(int node, int64_t timeout_ms, struct comm **out)
{
    struct comm_config config = {
        .kind = COMM_KIND_HOST,
        .net = OVER,
        .master = "10.77.0.1",
        .secret = HARNESS_SECRET,
        .place = {.rank = node, .ranks = 2, .node = node, .nodes = 2, .locals = 1},
        .timeout_ms = timeout_ms,
        .shm_fd = -1};
    TRY(comm_begin_open(&config, out, all->addresses[node], &all->bytes[node]));
    barrier();
    return comm_end_open(*out, 7, all->addresses, all->bytes);
}

static void fail_child(const char *what)
{
    fprintf(stderr, "# %s: %s\n", what, status_message());
    _exit(5);
}

static void measure(int node, struct comm *comm, float *data)
{
    struct tensor t = {data, DTYPE_F32};
    for (int round = 0; round < 5; round++) { /* the best: others may have the processor in one */
        for (int i = 0; i < ELEMS; i++)
            data[i] = (float)(i % 1000 + node);
        if (comm_barrier(comm) != ST_OK)
            fail_child("barrier");
        int64_t begin = clock_ns();
        if (comm_all_reduce(comm, t, t, ELEMS) != ST_OK)
            fail_child("all_reduce");
        const double elapsed = (double)(clock_ns() - begin) * 1e-9;
        all->seconds[node] =
            round == 0 || elapsed < all->seconds[node] ? elapsed : all->seconds[node];
        for (int i = 0; i < ELEMS; i++)
            if (data[i] != (float)(2 * (i % 1000) + 1))
                _exit(6);
    }
    snprintf(all->name[node], sizeof(all->name[node]), "%s", comm_name(comm));
}

/* One node: sums over the link, then a fault in the middle of more of them. */
static void host(int node, bool is_killed)
{
    struct comm *comm = NULL;
    float *data = malloc(ELEMS * sizeof(float));
    make_host(node);
    if (open_comm(node, is_killed ? harness_patience_ms(20000) : late_ms, &comm) != ST_OK)
        fail_child("open");
    measure(node, comm, data);
    barrier();
    if (node == 1) {
        struct tensor t = {data, DTYPE_F32};
        if (fork() == 0) { /* a helper in this namespace: the comm stays with its own process */
            clock_sleep_ms(100);
            atomic_store(&all->cut_ms, clock_ms());
            if (is_killed)
                kill(all->pids[1], SIGKILL);
            else
                shell("ip link set v1 down");
            _exit(0);
        }
        while (comm_all_reduce(comm, t, t, ELEMS) == ST_OK)
            continue;
    } else {
        struct tensor t = {data, DTYPE_F32};
        while (comm_all_reduce(comm, t, t, ELEMS) == ST_OK)
            continue;
    }
    all->failed_ms[node] = clock_ms();
    snprintf(all->message[node], sizeof(all->message[node]), "%s", status_message());
    comm_close(comm);
    all->closed_ms[node] = clock_ms() - all->failed_ms[node];
    _exit(0);
}

/* false: no namespaces here. */
static bool run_hosts(bool is_killed)
{
    pid_t pids[2];
    int code[2];
    memset(all, 0, sizeof(*all));
    fflush(NULL);
    pid_t probe = fork();
    if (probe == 0)
        _exit(leave_host() && system("ip link add a0 type veth peer name a1 2>/dev/null") == 0 ? 0
                                                                                               : 1);
    assert_int_equal(waitpid(probe, &code[0], 0), probe);
    if (code[0] != 0)
        return false;
    for (int node = 0; node < 2; node++) {
        pids[node] = fork();
        if (pids[node] == 0)
            host(node, is_killed);
    }
    for (int node = 0; node < 2; node++)
        waitpid(pids[node], &code[node], 0);
    assert_int_equal(code[0], 0);
    assert_true(code[1] == (is_killed ? SIGKILL : 0));
    return true;
}

static void check_survivor(int64_t within_ms)
{
    int64_t elapsed = all->failed_ms[0] - atomic_load(&all->cut_ms);
    print_message("# node 0: after %lld ms, closed in %lld ms: %s\n", (long long)elapsed,
                  (long long)all->closed_ms[0], all->message[0]);
    assert_true(elapsed >= -100 && elapsed < within_ms);
    assert_true(all->closed_ms[0] < harness_patience_ms(1000));
}

/* Each node sends each byte once in total: half of them to the owner of the other half, half of
 * them as the owner. */
TEST(test_link_and_kill)
{
    if (!run_hosts(true))
        HARNESS_SKIP("no network namespace with a veth pair can be made here (not root?)");
    double ideal = (double)ELEMS * 4 * 8 / (RATE_MBIT * 1e6), elapsed = all->seconds[0];
    print_message("# %s: 16 MB in %.3f s over %d Mbit/s, %.0f %% of the link\n", all->name[0],
                  elapsed, RATE_MBIT, 100 * ideal / elapsed);
#ifdef __SANITIZE_THREAD__
    HARNESS_SKIP("speed and deadline: under the thread sanitizer all is ten times slower, and the "
                 "deadline comes first");
#endif
    assert_true(elapsed < ideal / 0.6 * harness_slow());
    check_survivor(harness_patience_ms(1000));
    assert_non_null(strstr(all->message[0], "rank 1"));
}

TEST(test_cut)
{
    if (!run_hosts(false))
        HARNESS_SKIP("no network namespace with a veth pair can be made here (not root?)");
    check_survivor(late_ms + harness_patience_ms(1500));
}

int main(void)
{
    harness_quiet();
    if (OVER == COMM_NET_UCX)
        setenv("UCX_TLS", "tcp,self", 0);
    late_ms = harness_patience_ms(2000);
    all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return all == MAP_FAILED ? 99 : harness_run_all(__FILE__, NULL, NULL);
}
