/* thread_pool — see thread_pool.h.
 *
 * A job is one 64-bit word, the ticket: the job's number in the upper half, the number of open
 * tasks in the lower. A thread claims a task by lowering the ticket with compare-and-swap. Success
 * proves that the job is still running, because its caller waits for every claimed task. A thread
 * that wakes late therefore finds tasks to claim or none, never an old job, and the caller need not
 * wait for threads that claimed no task. The other fields of a job are plain memory: written before
 * the ticket is published, read only after a task was claimed.
 *
 * Threads without work watch the ticket for about 100 µs, then sleep in a futex. The count of
 * sleepers and the ticket are both sequentially consistent. A thread about to sleep raises the
 * count and reads the ticket once more; a caller that publishes reads the count afterwards. So one
 * of the two sees the other. */
#include "base/thread_pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/assert.h"

#define THREAD_POOL_SPIN_NS 100000
#define THREAD_POOL_SPINS_PER_LOOK 16 /* pauses between two reads of the clock */
#define THREAD_POOL_LINE 64 /* words that different threads write lie in cache lines of their own */

struct thread_pool_thread {
    struct thread_pool *pool;
    pthread_t handle;
    int thread_i;
};

struct thread_pool {
    _Alignas(THREAD_POOL_LINE) _Atomic uint64_t ticket; /* job number << 32 | open tasks */
    _Alignas(THREAD_POOL_LINE) atomic_int done;         /* tasks of this job that are finished */
    atomic_int caller_sleeps;
    _Alignas(THREAD_POOL_LINE) atomic_int sleepers;
    atomic_uint wake; /* futex of the sleeping threads; each wake_sleepers changes it */
    atomic_bool stop, busy;
    _Alignas(THREAD_POOL_LINE) thread_pool_fn *fn; /* the job */
    void *arg;
    int tasks_n;
    int threads_n, started_n;
    bool spins;
    struct thread_pool_thread threads[THREAD_POOL_MAX];
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits in a futex. Wake-ups, interruptions and a changed value mean the same to callers: check
 * again. */
static void futex_wait(void *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static void futex_wake(void *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

int thread_pool_cores(void)
{
    int cores = 0;
    /* The kernel refuses a set too small for the machine. */
    for (int cpus = CPU_SETSIZE; cores == 0 && cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL)
            break;
        if (sched_getaffinity(0, CPU_ALLOC_SIZE(cpus), set) == 0)
            cores = CPU_COUNT_S(CPU_ALLOC_SIZE(cpus), set);
        CPU_FREE(set);
        if (cores == 0 && errno != EINVAL)
            break;
    }
    if (cores == 0)
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int quota = cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < cores)
        cores = quota;
    return cores > 0 ? cores : 1;
}

static bool has_tasks(struct thread_pool *pool)
{
    return (uint32_t)atomic_load_explicit(&pool->ticket, memory_order_seq_cst) > 0;
}

/* Claims and computes tasks until none is left. */
static void run_tasks(struct thread_pool *pool, int thread_i)
{
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while ((uint32_t)ticket > 0) {
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        int tasks_n = pool->tasks_n; /* valid until this task is counted below */
        pool->fn(pool->arg, tasks_n - (int)(uint32_t)ticket, thread_i);
        int done = atomic_fetch_add_explicit(&pool->done, 1, memory_order_seq_cst) + 1;
        if (done == tasks_n &&
            atomic_load_explicit(&pool->caller_sleeps, memory_order_seq_cst) != 0)
            futex_wake(&pool->done, 1);
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
}

/* Waits a while for tasks, spinning. Returns false when it is time to sleep. */
static bool spin_for_tasks(struct thread_pool *pool)
{
    if (!pool->spins)
        return has_tasks(pool);
    int64_t end = clock_ns() + THREAD_POOL_SPIN_NS;
    do {
        for (int i = 0; i < THREAD_POOL_SPINS_PER_LOOK; i++) {
            if (has_tasks(pool))
                return true;
            pause_cpu();
        }
    } while (clock_ns() < end);
    return false;
}

static void *thread_main(void *arg)
{
    struct thread_pool_thread *thread = arg;
    struct thread_pool *pool = thread->pool;
    while (!atomic_load_explicit(&pool->stop, memory_order_seq_cst)) {
        if (spin_for_tasks(pool))
            run_tasks(pool, thread->thread_i);
        else {
            atomic_fetch_add_explicit(&pool->sleepers, 1, memory_order_seq_cst);
            uint32_t seen = atomic_load_explicit(&pool->wake, memory_order_seq_cst);
            if (!has_tasks(pool) && !atomic_load_explicit(&pool->stop, memory_order_seq_cst))
                futex_wait(&pool->wake, seen);
            atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_seq_cst);
        }
    }
    return NULL;
}

static void wake_sleepers(struct thread_pool *pool, int n)
{
    if (atomic_load_explicit(&pool->sleepers, memory_order_seq_cst) == 0)
        return;
    atomic_fetch_add_explicit(&pool->wake, 1, memory_order_seq_cst);
    futex_wake(&pool->wake, n);
}

/* Waits until all tasks are done. None is left to claim, but other threads may still compute
 * theirs. */
static void wait_for_done(struct thread_pool *pool, int tasks_n)
{
    int64_t end = pool->spins ? clock_ns() + THREAD_POOL_SPIN_NS : 0;
    while (pool->spins) {
        for (int i = 0; i < THREAD_POOL_SPINS_PER_LOOK; i++) {
            if (atomic_load_explicit(&pool->done, memory_order_acquire) == tasks_n)
                return;
            pause_cpu();
        }
        if (clock_ns() >= end)
            break;
    }
    atomic_store_explicit(&pool->caller_sleeps, 1, memory_order_seq_cst);
    for (int done; (done = atomic_load_explicit(&pool->done, memory_order_seq_cst)) != tasks_n;)
        futex_wait(&pool->done, (uint32_t)done);
    atomic_store_explicit(&pool->caller_sleeps, 0, memory_order_relaxed);
}

void thread_pool_run(struct thread_pool *pool, int tasks_n, thread_pool_fn *fn, void *arg)
{
    ASSERTF(tasks_n >= 0, "tasks %d", tasks_n);
    ASSERTF(!atomic_exchange_explicit(&pool->busy, true, memory_order_acquire),
            "thread_pool_run inside thread_pool_run, %d tasks", tasks_n);
    if (tasks_n == 1 || pool->threads_n == 1) {
        for (int task_i = 0; task_i < tasks_n; task_i++)
            fn(arg, task_i, 0);
    } else if (tasks_n > 1) {
        pool->fn = fn;
        pool->arg = arg;
        pool->tasks_n = tasks_n;
        atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
        uint64_t job = (atomic_load_explicit(&pool->ticket, memory_order_relaxed) >> 32) + 1;
        atomic_store_explicit(&pool->ticket, job << 32 | (uint32_t)tasks_n, memory_order_seq_cst);
        wake_sleepers(pool, tasks_n - 1);
        run_tasks(pool, 0);
        wait_for_done(pool, tasks_n);
    }
    atomic_store_explicit(&pool->busy, false, memory_order_release);
}

static enum status start_threads(struct thread_pool *pool)
{
    sigset_t kept;
    int error = 0;
    /* Threads of the pool block all signals, so the program's other threads handle them. A fault
     * must reach the thread that caused it, so faults are not blocked. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, &kept);
    for (; pool->started_n + 1 < pool->threads_n && error == 0; pool->started_n += error == 0) {
        struct thread_pool_thread *thread = &pool->threads[pool->started_n];
        *thread = (struct thread_pool_thread){.pool = pool, .thread_i = pool->started_n + 1};
        error = pthread_create(&thread->handle, NULL, thread_main, thread);
    }
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    if (error != 0)
        return FAIL(ST_RETRY,
                    "cannot start thread %d of %d: %s; raise the limit of processes (ulimit -u, "
                    "the container's pids limit) or use fewer threads",
                    pool->started_n + 2, pool->threads_n, strerror(error));
    return ST_OK;
}

enum status thread_pool_open(int threads_n, struct thread_pool **out)
{
    ASSERTF(threads_n >= 1 && threads_n <= THREAD_POOL_MAX, "threads %d", threads_n);
    struct thread_pool *pool = aligned_alloc(_Alignof(struct thread_pool), sizeof(*pool));
    if (pool == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for a pool of %d threads", sizeof(*pool),
                    threads_n);
    memset(pool, 0, sizeof(*pool));
    pool->threads_n = threads_n;
    pool->spins = threads_n <= thread_pool_cores();
    enum status st = start_threads(pool);
    if (st != ST_OK) {
        thread_pool_close(pool);
        return st;
    }
    *out = pool;
    return ST_OK;
}

void thread_pool_close(struct thread_pool *pool)
{
    if (pool == NULL)
        return;
    atomic_store_explicit(&pool->stop, true, memory_order_seq_cst);
    wake_sleepers(pool, INT_MAX);
    for (int i = 0; i < pool->started_n; i++)
        pthread_join(pool->threads[i].handle, NULL);
    free(pool);
}

int thread_pool_threads(const struct thread_pool *pool) { return pool->threads_n; }
