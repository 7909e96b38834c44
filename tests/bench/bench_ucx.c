/* bench_ucx — times all_reduce of fp32 between processes of this machine; each counts as a node.
 * Usage: bench_ucx [RANKS [BYTES_MAX [tcp]]]
 *
 * A call takes as long as its slowest rank, after a barrier. Prints the median, the best time and
 * the bus bandwidth 2(n-1)/n · bytes / time. The default is UCX over TCP on the loopback device;
 * UCX_TLS and UCX_NET_DEVICES choose others. tcp: the TCP transport of src/comm/tcp. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/quantile.h"
#include "base/text.h"
#include "comm/core/comm.h"

#define RANKS_MAX 16
#define TURNS_MAX 2000

static const struct {
    int64_t bytes;
    int turns;
} sizes[] = {{1 << 10, 2000}, {16 << 10, 1000}, {64 << 10, 1000}, {256 << 10, 400},
             {1 << 20, 200},  {16 << 20, 40},   {500 << 20, 7}};

struct shared {
    _Atomic int arrived;
    char addresses[RANKS_MAX][COMM_ADDRESS_MAX];
    int64_t bytes[RANKS_MAX];
    double us[RANKS_MAX][TURNS_MAX];
};
static struct shared *all;
static enum comm_net net = COMM_NET_UCX;

static void check(enum status st)
{
    if (st == ST_OK)
        return;
    fprintf(stderr, "bench_ucx: %s: %s\n", status_name(st), status_message());
    _exit(1);
}

static void barrier(int n)
{
    int mine = atomic_fetch_add(&all->arrived, 1) / n;
    while (atomic_load(&all->arrived) / n <= mine)
        clock_sleep_ms(1);
}

static void report(int n, int64_t bytes, int turns, const char *name)
{
    double slowest[TURNS_MAX];
    for (int i = 0; i < turns; i++) {
        slowest[i] = 0;
        for (int r = 0; r < n; r++)
            slowest[i] = all->us[r][i] > slowest[i] ? all->us[r][i] : slowest[i];
    }
    const double median = quantile_median(slowest, turns); /* sorts */
    double moved = 2.0 * (n - 1) / n * (double)bytes;
    printf("%s n=%d %10lld B  median %10.1f us  bus %6.2f GB/s   best %10.1f us %6.2f GB/s\n", name,
           n, (long long)bytes, median, moved / median * 1e-3, slowest[0],
           moved / slowest[0] * 1e-3);
    fflush(stdout);
}

static void rank_main(int rank, int n, int64_t bytes_max)
{
    struct comm_config config = {
        .kind = COMM_KIND_HOST,
        .net = net,
        .secret = (const uint8_t *)"sixteen bytes of",
        .place = {.rank = rank, .ranks = n, .node = rank, .nodes = n, .locals = 1},
        .timeout_ms = 60000,
        .is_oversubscribed = n > sysconf(_SC_NPROCESSORS_ONLN),
        .shm_fd = -1};
    struct comm *comm;
    void *data;
    cpu_set_t core; /* pins each rank to a core, as mpirun does */
    CPU_ZERO(&core);
    CPU_SET(rank, &core);
    if (n <= sysconf(_SC_NPROCESSORS_ONLN))
        sched_setaffinity(0, sizeof(core), &core);
    check(comm_begin_open(&config, &comm, all->addresses[rank], &all->bytes[rank]));
    barrier(n);
    check(comm_end_open(comm, 1, all->addresses, all->bytes));
    check(comm_alloc(comm, 500 << 20, &data));
    struct tensor t = {data, DTYPE_F32};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && sizes[s].bytes <= bytes_max; s++) {
        for (int i = -(sizes[s].turns / 10 + 1); i < sizes[s].turns; i++) {
            check(comm_barrier(comm));
            int64_t begin = clock_ns();
            check(comm_all_reduce(comm, t, t, sizes[s].bytes / 4));
            if (i >= 0)
                all->us[rank][i] = (double)(clock_ns() - begin) * 1e-3;
        }
        barrier(n);
        if (rank == 0)
            report(n, sizes[s].bytes, sizes[s].turns, comm_name(comm));
        barrier(n);
    }
    comm_close(comm);
    _exit(0);
}

int main(int argc, char **argv)
{
    int64_t n = 2, bytes_max = INT64_MAX;
    if ((argc > 1 && text_parse_i64(argv[1], 2, RANKS_MAX, &n) != TEXT_OK) ||
        (argc > 2 && text_parse_bytes(argv[2], 1, INT64_MAX, &bytes_max) != TEXT_OK))
        return 64;
    if (argc > 3 && strcmp(argv[3], "tcp") == 0)
        net = COMM_NET_TCP;
    setenv("UCX_TLS", "tcp,self", 0);
    setenv("UCX_NET_DEVICES", "lo", 0);
    all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 99;
    for (int r = 0; r < n; r++) {
        if (fork() == 0)
            rank_main(r, (int)n, bytes_max);
    }
    int worst = 0, code;
    while (wait(&code) > 0)
        worst = code != 0 ? 1 : worst;
    return worst;
}
