/* thread_pool: every task once, whatever the numbers; jobs back to back; sleeping and waking;
 * misuse is detected. */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/thread_pool.h"

struct job {
    int tasks_n;
    int threads_n;
    /* not atomic on purpose: a thread sanitizer proves that each task is one thread's */
    int plain[3000];
    int64_t per_thread[THREAD_POOL_MAX];
};

static void count_task(void *arg, int task_i, int thread_i)
{
    struct job *job = arg;
    if (task_i >= 0 && task_i < job->tasks_n && thread_i >= 0 && thread_i < job->threads_n) {
        job->plain[task_i]++;
        job->per_thread[thread_i]++; /* scratch of a thread: no two use it at once */
    }
}

TEST(every_task_once)
{
    static const int threads[] = {1, 2, 3, 4, 7}, tasks[] = {0, 1, 2, 3, 5, 16, 255, 3000};
    static struct job job;
    for (size_t t = 0; t < 5; t++) {
        struct thread_pool *pool;
        assert_int_equal(thread_pool_open(threads[t], &pool), ST_OK);
        assert_int_equal(thread_pool_threads(pool), threads[t]);
        for (size_t p = 0; p < 8; p++) {
            memset(&job, 0, sizeof(job));
            job.tasks_n = tasks[p];
            job.threads_n = threads[t];
            for (int round = 0; round < 5; round++)
                thread_pool_run(pool, tasks[p], count_task, &job);
            int64_t sum = 0;
            for (int i = 0; i < 3000; i++)
                assert_int_equal(job.plain[i], i < tasks[p] ? 5 : 0);
            for (int i = 0; i < THREAD_POOL_MAX; i++)
                sum += job.per_thread[i];
            assert_int_equal(sum, 5 * tasks[p]);
        }
        thread_pool_close(pool);
    }
    thread_pool_close(NULL);
}

struct chain {
    int64_t value[2];
};

static void add_one(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    ((struct chain *)arg)->value[task_i]++;
}

/* Jobs so short that threads wake late for them again and again; the caller reads the results at
 * once. */
TEST(short_jobs_back_to_back)
{
    struct thread_pool *pool;
    assert_int_equal(thread_pool_open(2, &pool), ST_OK);
    struct chain chain = {{0, 0}};
    for (int64_t i = 1; i <= 20000; i++) {
        thread_pool_run(pool, 2, add_one, &chain);
        assert_true(chain.value[0] == i && chain.value[1] == i);
    }
    for (int64_t i = 20001; i <= 20030; i++) { /* with naps between, so that threads park */
        clock_sleep_ms(1);
        thread_pool_run(pool, 2, add_one, &chain);
        assert_true(chain.value[0] == i && chain.value[1] == i);
    }
    thread_pool_close(pool);
}

static void nap(void *arg, int task_i, int thread_i)
{
    (void)thread_i;
    if (task_i == *(int *)arg)
        clock_sleep_ms(3);
}

/* One task outlasts all spinning: the caller sleeps, or the others do. */
TEST(long_tasks_are_waited_for)
{
    struct thread_pool *pool;
    assert_int_equal(thread_pool_open(3, &pool), ST_OK);
    for (int slow = 0; slow < 3; slow++) {
        for (int round = 0; round < 5; round++) {
            int64_t start = clock_ns();
            thread_pool_run(pool, 3, nap, &slow);
            assert_true(clock_ns() - start >= 3000000);
        }
    }
    thread_pool_close(pool);
}

static atomic_int meetings;
static void meet(void *arg, int task_i, int thread_i)
{
    (void)task_i, (void)thread_i;
    atomic_fetch_add(&meetings, 1);
    int64_t end = clock_ms() + harness_patience_ms(10000);
    while (atomic_load(&meetings) < *(int *)arg && clock_ms() < end)
        clock_sleep_ms(0), sched_yield();
}

/* As many tasks as threads, each waiting for all others: so all threads took part, also after
 * sleeping. */
TEST(all_threads_take_part)
{
    int threads_n = 4;
    struct thread_pool *pool;
    assert_int_equal(thread_pool_open(threads_n, &pool), ST_OK);
    for (int round = 0; round < 5; round++) {
        clock_sleep_ms(1);
        atomic_store(&meetings, 0);
        int64_t start = clock_ms();
        thread_pool_run(pool, threads_n, meet, &threads_n);
        assert_int_equal(atomic_load(&meetings), threads_n);
        assert_true(clock_ms() - start < harness_patience_ms(4000));
    }
    thread_pool_close(pool);
}

static void signal_mask(void *arg, int task_i, int thread_i)
{
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    ((int *)arg)[task_i] =
        thread_i == 0 ? -1 : sigismember(&set, SIGTERM) * 2 + sigismember(&set, SIGSEGV);
    int both = 2;
    meet(&both, task_i, thread_i);
}

TEST(signals_go_to_the_caller)
{
    struct thread_pool *pool;
    int seen[2];
    sigset_t set;
    assert_int_equal(thread_pool_open(2, &pool), ST_OK);
    atomic_store(&meetings, 0);
    thread_pool_run(pool, 2, signal_mask, seen);
    assert_int_equal(seen[0] == -1 ? seen[1] : seen[0], 2);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_int_equal(sigismember(&set, SIGTERM), 0);
    thread_pool_close(pool);
}

static struct thread_pool *nested_pool;
static void nested(void *arg, int task_i, int thread_i)
{
    (void)task_i, (void)thread_i;
    thread_pool_run(nested_pool, 1, nested, arg);
}

TEST(a_task_in_a_task_is_a_bug)
{
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        if (thread_pool_open(1, &nested_pool) == ST_OK)
            thread_pool_run(nested_pool, 2, nested, NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 70);
}

TEST(cores_follow_the_affinity)
{
    int cores = thread_pool_cores();
    assert_true(cores >= 1);
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(thread_pool_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

HARNESS_RUN_ALL()
