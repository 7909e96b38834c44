/* thread: it runs with all signals blocked, wakes its owner, and its deadline is on the monotonic
 * clock. */
#include "harness.h"

#include "base/thread.h"

struct work {
    struct thread thread;
    bool is_blocked, is_done;
};

static void *run(void *arg)
{
    struct work *work = arg;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    pthread_mutex_lock(&work->thread.lock);
    work->is_blocked = sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGCHLD) == 1;
    work->is_done = true;
    pthread_cond_signal(&work->thread.wake);
    pthread_mutex_unlock(&work->thread.lock);
    return NULL;
}

TEST(a_thread_runs_without_signals)
{
    struct work work = {.is_done = false};
    sigset_t blocked;
    assert_int_equal(thread_start(&work.thread, run, &work, "is tested"), ST_OK);
    pthread_mutex_lock(&work.thread.lock);
    while (!work.is_done)
        pthread_cond_wait(&work.thread.wake, &work.thread.lock);
    pthread_mutex_unlock(&work.thread.lock);
    pthread_join(work.thread.id, NULL);
    assert_true(work.is_blocked);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    assert_int_equal(sigismember(&blocked, SIGTERM), 0); /* the owner's mask is as before */
    int64_t begin_ms = clock_ms();
    struct timespec until = thread_deadline(50);
    pthread_mutex_lock(&work.thread.lock);
    while (pthread_cond_timedwait(&work.thread.wake, &work.thread.lock, &until) == 0)
        continue;
    pthread_mutex_unlock(&work.thread.lock);
    assert_true(clock_ms() - begin_ms >= 49);
    thread_free(&work.thread);
}

HARNESS_RUN_ALL()
