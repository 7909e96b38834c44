/* bench_plan_machine — measures this machine with some workers, which are processes as in training,
 * and prints the cluster as `convoy plan` reads it.
 *
 *   bench_plan_machine [WORKERS [THREADS [MILLISECONDS]]]
 *     default: one worker with a thread for each core, 5 s */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "kernels/cpu.h"
#include "plan/plan_machine.h"

#define WORKERS_MAX 64

/* What the workers share. */
struct meeting {
    atomic_int packed, failed;
    char addresses[WORKERS_MAX][COMM_ADDRESS_MAX];
    int64_t address_bytes[WORKERS_MAX];
    uint8_t secret[COMM_SECRET_BYTES];
};

static struct meeting *meeting;
static int workers = 1, threads, shm_fd;
static int64_t budget_ms = 5000;

static bool is_aborted(void *arg) { return atomic_load(&((struct meeting *)arg)->failed) > 0; }

static enum status open_comm(int rank, struct dev *dev, struct comm **out)
{
    const struct comm_config config = {
        .kind = workers > 1 ? COMM_KIND_HOST : COMM_KIND_SELF,
        .place = {.rank = rank, .ranks = workers, .nodes = 1, .local = rank, .locals = workers},
        .timeout_ms = 60000,
        .is_aborted = is_aborted,
        .arg = meeting,
        .dev = dev,
        .secret = meeting->secret,
        .is_oversubscribed = workers * threads > thread_pool_cores(),
        .shm_fd = shm_fd};
    TRY(comm_begin_open(&config, out, meeting->addresses[rank], &meeting->address_bytes[rank]));
    atomic_fetch_add(&meeting->packed, 1);
    while (atomic_load(&meeting->packed) < workers && !is_aborted(meeting))
        clock_sleep_ms(1);
    return comm_end_open(*out, 1, meeting->addresses, meeting->address_bytes);
}

static enum status measure(int rank, struct plan_cluster *out)
{
    struct dev *dev = NULL;
    struct comm *comm = NULL;
    TRY(dev_cpu_open(threads, CPU_ISA_N, &dev));
    enum status st = open_comm(rank, dev, &comm);
    const struct plan_machine_config config = {.comm = workers > 1 ? comm : NULL,
                                               .dev = dev,
                                               .name = "this-machine",
                                               .budget_ms = budget_ms};
    if (st == ST_OK)
        st = plan_machine_measure(&config, out);
    comm_close(comm);
    dev_close(dev);
    return st;
}

static int work(int rank)
{
    struct plan_cluster cluster;
    struct text out = {.data = NULL};
    if (measure(rank, &cluster) != ST_OK) {
        if (atomic_fetch_add(&meeting->failed, 1) == 0)
            fprintf(stderr, "worker %d: %s\n", rank, status_message());
        return 1;
    }
    if (rank == 0) {
        plan_cluster_write(&cluster, &out);
        fwrite(out.data, 1, out.len, stdout);
        text_free(&out);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int bad = 0, ended;
    workers = argc > 1 ? atoi(argv[1]) : 1;
    if (workers < 1 || workers > WORKERS_MAX)
        return fprintf(stderr, "WORKERS is 1 … %d\n", WORKERS_MAX), 64;
    int each = thread_pool_cores() / workers;
    threads = argc > 2 ? atoi(argv[2]) : each > 1 ? each : 1;
    budget_ms = argc > 3 ? atoi(argv[3]) : budget_ms;
    meeting =
        mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shm_fd = memfd_create("convoy-bench", MFD_CLOEXEC);
    if (meeting == MAP_FAILED || shm_fd < 0)
        return perror("bench_plan_machine"), 1;
    for (int rank = 0; rank < workers; rank++) {
        pid_t pid = fork();
        if (pid < 0)
            return perror("fork"), atomic_store(&meeting->failed, 1), 1;
        if (pid == 0) {
            int rc = work(rank);
            fflush(stdout);
            _exit(rc);
        }
    }
    while (wait(&ended) > 0)
        bad += ended != 0;
    return bad > 0;
}
