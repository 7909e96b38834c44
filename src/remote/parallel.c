/* parallel — see parallel.h. */
#include "remote/parallel.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/thread.h"

enum { PARALLEL_REPORT_MS = 200 };

/* The state that the threads share. The lock and the condition of the first thread are for all. */
struct shared {
    struct parallel *parallel;
    struct thread thread[PARALLEL_MAX];
    /* Under the lock: */
    int64_t next; /* the next task to begin */
    int running;  /* threads that have not ended */
    enum status st;
    struct status_saved failure;
};

struct worker {
    struct shared *shared;
    int i;
};

/* Keeps the first failure; the other threads stop. The lock is held. */
static void keep_failure(struct shared *shared, enum status st)
{
    if (st == ST_OK || shared->st != ST_OK)
        return;
    shared->st = st;
    status_save(&shared->failure);
    shared->parallel->is_stopped = true;
}

static void *run_tasks(void *arg)
{
    struct worker *worker = arg;
    struct shared *shared = worker->shared;
    struct parallel *parallel = shared->parallel;
    pthread_mutex_t *lock = &shared->thread[0].lock;
    pthread_mutex_lock(lock);
    while (!parallel->is_stopped && shared->next < parallel->tasks_n) {
        const int64_t i = shared->next++;
        pthread_mutex_unlock(lock);
        const enum status st = parallel->run(parallel->arg, worker->i, i);
        pthread_mutex_lock(lock);
        keep_failure(shared, st);
    }
    shared->running--;
    pthread_cond_signal(&shared->thread[0].wake);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* Reports the progress until all threads have ended. */
static void wait_for_threads(struct shared *shared)
{
    struct parallel *parallel = shared->parallel;
    struct thread *first = &shared->thread[0];
    pthread_mutex_lock(&first->lock);
    while (shared->running > 0) {
        const struct timespec until = thread_deadline(PARALLEL_REPORT_MS);
        pthread_cond_timedwait(&first->wake, &first->lock, &until);
        if (parallel->is_stopped)
            continue;
        pthread_mutex_unlock(&first->lock);
        const enum status st = parallel->report(parallel->arg);
        pthread_mutex_lock(&first->lock);
        keep_failure(shared, st);
    }
    pthread_mutex_unlock(&first->lock);
}

/* Starts the threads; fails if there is none. */
static enum status start_threads(struct shared *shared, struct worker *workers, int threads_n,
                                 int *started_n)
{
    for (int i = 0; i < threads_n; i++) {
        workers[i] = (struct worker){shared, i};
        if (i > 0)
            pthread_mutex_lock(&shared->thread[0].lock);
        shared->running++;
        if (i > 0)
            pthread_mutex_unlock(&shared->thread[0].lock);
        const enum status st =
            thread_start(&shared->thread[i], run_tasks, &workers[i], "transfers files");
        if (st == ST_OK) {
            ++*started_n;
            continue;
        }
        if (i == 0)
            return st;
        status_clear(); /* the started threads do all tasks */
        pthread_mutex_lock(&shared->thread[0].lock);
        shared->running--;
        pthread_mutex_unlock(&shared->thread[0].lock);
        break;
    }
    return ST_OK;
}

enum status parallel_run(struct parallel *parallel)
{
    struct shared *shared = memory_new(1, sizeof *shared);
    struct worker workers[PARALLEL_MAX];
    const int64_t n =
        parallel->tasks_n < parallel->threads_n ? parallel->tasks_n : parallel->threads_n;
    int started_n = 0;
    shared->parallel = parallel;
    enum status st = start_threads(shared, workers, (int)n, &started_n);
    if (st == ST_OK)
        wait_for_threads(shared);
    for (int i = 0; i < started_n; i++)
        pthread_join(shared->thread[i].id, NULL);
    for (int i = 0; i < started_n; i++)
        thread_free(&shared->thread[i]);
    if (st == ST_OK && shared->st != ST_OK) {
        status_restore(&shared->failure);
        st = shared->st;
    }
    free(shared);
    return st;
}
