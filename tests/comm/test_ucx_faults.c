/* test_ucx_faults — ranks as processes over TCP. One is killed, stopped or ends in the middle of a
 * call: the others name it in time, close without waiting, and connect again in the same
 * process. */
#include <stdatomic.h>
#include <sys/mman.h>

#include "comm/core/comm.h"
#include "harness.h"

#ifndef OVER
#define OVER COMM_NET_UCX
#endif
#ifndef SHARER
#define SHARER -1 /* the rank that says that its cores are shared */
#endif

#define RANKS 3
#define ELEMS 4000000

/* Shared by the processes: their addresses, and what each has seen. */
struct shared {
    _Atomic int arrived;
    char addresses[RANKS][COMM_ADDRESS_MAX];
    int64_t bytes[RANKS];
    _Atomic int64_t calls[RANKS]; /* finished */
    _Atomic int64_t fault_ms;
    _Atomic int64_t seen_ms[RANKS], closed_ms[RANKS];
    _Atomic int64_t fault_queued_ms[RANKS], seen_queued_ms[RANKS]; /* queued_ms then */
    char message[RANKS][1024];
    _Atomic bool aborted;
};
static struct shared *all;

/* How long the first thread of a process has waited for a processor: time that a busy machine takes
 * from it does not count. 0 if the kernel does not report it. */
static int64_t queued_ms(pid_t pid)
{
    char path[64];
    long long ran = 0, queued = 0;
    snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%lld %lld", &ran, &queued) != 2)
        queued = 0;
    fclose(f);
    return queued / 1000000;
}

static void barrier(int n)
{
    int mine = atomic_fetch_add(&all->arrived, 1) / n;
    while (atomic_load(&all->arrived) / n <= mine)
        clock_sleep_ms(1);
}

static bool is_aborted(void *arg)
{
    (void)arg;
    return atomic_load(&all->aborted);
}

static enum status open_comm(int rank, int n, int64_t generation, int64_t timeout_ms,
                             struct comm **out)
{
    struct comm_config config = {
        .kind = COMM_KIND_HOST,
        .net = OVER,
        .secret = HARNESS_SECRET,
        .place = {.rank = rank, .ranks = n, .node = rank, .nodes = n, .locals = 1},
        .timeout_ms = timeout_ms,
        .is_aborted = is_aborted,
        .is_oversubscribed = rank == SHARER,
        .shm_fd = -1};
    TRY(comm_begin_open(&config, out, all->addresses[rank], &all->bytes[rank]));
    barrier(n);
    enum status st = comm_end_open(*out, generation, all->addresses, all->bytes);
    barrier(n);
    return st;
}

/* Calls until one fails; records when and why. */
static enum status call_until_failure(struct comm *comm, int rank, float *data, int64_t elems)
{
    struct tensor t = {data, DTYPE_F32};
    enum status st = ST_OK;
    while (st == ST_OK) {
        st = comm_all_reduce(comm, t, t, elems);
        atomic_fetch_add(&all->calls[rank], st == ST_OK);
    }
    atomic_store(&all->seen_ms[rank], clock_ms());
    atomic_store(&all->seen_queued_ms[rank], queued_ms(getpid()));
    snprintf(all->message[rank], sizeof(all->message[rank]), "%s: %s", status_name(st),
             status_message());
    return st;
}

static void child(int rank, int64_t elems, int64_t timeout_ms)
{
    struct comm *comm = NULL;
    float *data = calloc((size_t)elems, sizeof(float));
    if (open_comm(rank, RANKS, 1, timeout_ms, &comm) != ST_OK) {
        fprintf(stderr, "# rank %d: %s\n", rank, status_message());
        _exit(2);
    }
    enum status st = call_until_failure(comm, rank, data, elems);
    int64_t begin = clock_ms();
    comm_close(comm);
    atomic_store(&all->closed_ms[rank],
                 clock_ms() - begin - (queued_ms(getpid()) - all->seen_queued_ms[rank]));
    free(data);
    _exit(st == ST_PEER ? 0 : 3);
}

/* Starts RANKS processes; when all have made a few calls, applies `fault` to the last one. The exit
 * codes of the others must be 0. */
static void run_fault(int64_t elems, int64_t timeout_ms, void (*fault)(pid_t last))
{
    pid_t pids[RANKS];
    memset(all, 0, sizeof(*all));
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            child(r, elems, timeout_ms);
    }
    for (int r = 0; r < RANKS; r++) {
        for (int64_t begin = clock_ms(); atomic_load(&all->calls[r]) < 3;) {
            assert_true(clock_ms() - begin < harness_patience_ms(20000));
            clock_sleep_ms(1);
        }
    }
    for (int r = 0; r < RANKS; r++)
        atomic_store(&all->fault_queued_ms[r], queued_ms(pids[r]));
    fault(pids[RANKS - 1]);
    atomic_store(&all->fault_ms, clock_ms());
    for (int r = 0; r < RANKS - 1; r++) {
        int code = -1;
        assert_int_equal(waitpid(pids[r], &code, 0), pids[r]);
        if (code != 0)
            print_message("# rank %d ended with %d: %s\n", r, code, all->message[r]);
        assert_int_equal(code, 0);
    }
    kill(pids[RANKS - 1], SIGKILL);
    waitpid(pids[RANKS - 1], NULL, 0);
}

static void check_others(int64_t within_ms, const char *word)
{
    for (int r = 0; r < RANKS - 1; r++) {
        int64_t queued = all->seen_queued_ms[r] - all->fault_queued_ms[r];
        int64_t elapsed = all->seen_ms[r] - all->fault_ms - queued;
        if (elapsed > within_ms || all->closed_ms[r] > harness_patience_ms(1000) ||
            strstr(all->message[r], word) == NULL)
            print_message("# rank %d after %lld ms (and %lld without a processor), closed in %lld "
                          "ms, want '%s': %s\n",
                          r, (long long)elapsed, (long long)queued, (long long)all->closed_ms[r],
                          word, all->message[r]);
        assert_true(elapsed <= within_ms);
        assert_true(all->closed_ms[r] <= harness_patience_ms(1000));
        assert_non_null(strstr(all->message[r], word));
    }
}

/* Each returns when it has taken effect. */
static void signal_and_wait(pid_t pid, int signal_n, int what)
{
    siginfo_t info;
    kill(pid, signal_n);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, what | WNOWAIT), 0);
}
static void kill_it(pid_t pid) { signal_and_wait(pid, SIGKILL, WEXITED); }
static void stop_it(pid_t pid) { signal_and_wait(pid, SIGSTOP, WSTOPPED); }
static void abort_all(pid_t pid)
{
    (void)pid;
    atomic_store(&all->aborted, true);
}

TEST(test_killed)
{
    for (int round = 0; round < 4; round++) {
        run_fault(round % 2 ? ELEMS : 100, harness_patience_ms(20000), kill_it);
        check_others(harness_patience_ms(1000), "rank 2");
    }
}

TEST(test_stopped)
{
    for (int round = 0; round < 2; round++) {
        const int64_t limit_ms = harness_patience_ms(1500);
        run_fault(round % 2 ? ELEMS : 100, limit_ms, stop_it);
        check_others(limit_ms + harness_patience_ms(1000), "all_reduce");
    }
}

TEST(test_aborted)
{
    for (int round = 0; round < 2; round++) {
        run_fault(round % 2 ? ELEMS : 100, harness_patience_ms(20000), abort_all);
        check_others(harness_patience_ms(200), "");
    }
}

/* A partner that connects, works and dies in each generation. */
static void partner(int64_t generation)
{
    struct comm *comm = NULL;
    static float data[70000];
    struct tensor t = {data, DTYPE_F32};
    if (open_comm(1, 2, generation, harness_patience_ms(20000), &comm) != ST_OK ||
        comm_all_reduce(comm, t, t, 70000) != ST_OK)
        fprintf(stderr, "# partner: %s\n", status_message());
    _exit(0); /* without closing, as if killed */
}

/* The survivor keeps its process through 100 generations and leaks nothing. */
TEST(test_generations)
{
    int fds = 0, threads = 0;
    long kib = 0;
    static float data[70000];
    struct tensor t = {data, DTYPE_F32};
    for (int64_t generation = 1; generation <= 100; generation++) {
        memset(all, 0, sizeof(*all));
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
            partner(generation);
        struct comm *comm = NULL;
        assert_int_equal(open_comm(0, 2, generation, 20000, &comm), ST_OK);
        enum status st = ST_OK;
        for (int i = 0; i < 3 && st == ST_OK; i++)
            st = comm_all_reduce(comm, t, t, 70000);
        assert_int_equal(st, ST_PEER);
        comm_close(comm);
        waitpid(pid, NULL, 0);
        if (generation == 10) {
            fds = harness_entries("/proc/self/fd");
            threads = harness_entries("/proc/self/task");
            kib = harness_resident_kib();
        }
    }
    print_message(
        "# after 10 and 100 generations: descriptors %d %d, threads %d %d, resident %ld %ld KiB\n",
        fds, harness_entries("/proc/self/fd"), threads, harness_entries("/proc/self/task"), kib,
        harness_resident_kib());
    assert_int_equal(harness_entries("/proc/self/fd"), fds);
    assert_int_equal(harness_entries("/proc/self/task"), threads);
#ifndef __SANITIZE_ADDRESS__ /* it delays the release of memory */
    assert_true(harness_resident_kib() < kib + 4096);
#endif
}

int main(void)
{
    /* test_generations comes last: it is the only test that uses UCX in this process. */
    harness_loopback();
    all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return all == MAP_FAILED ? 99 : harness_run_all(__FILE__, NULL, NULL);
}
