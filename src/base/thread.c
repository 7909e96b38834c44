/* thread — see thread.h. */
#include "base/thread.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"

struct timespec thread_deadline(int64_t ms)
{
    int64_t at_ns = clock_ns() + ms * 1000000;
    return (struct timespec){.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
}

void thread_free(struct thread *thread)
{
    pthread_mutex_destroy(&thread->lock);
    pthread_cond_destroy(&thread->wake);
}

enum status thread_start(struct thread *thread, void *(*fn)(void *arg), void *arg, const char *what)
{
    pthread_condattr_t clock;
    sigset_t all, before;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* as clock_ns */
    pthread_cond_init(&thread->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&thread->lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread->id, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return ST_OK;
    thread_free(thread);
    return FAIL(ST_RETRY,
                "cannot start the thread that %s: %s; raise the limit of processes (ulimit -u)",
                what, strerror(error));
}
