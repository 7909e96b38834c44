/* comm_queue — a ring of items and the thread that executes them. */
#include "comm/core/queue.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"

#define SLICE_NS 100000
#define ITEMS COMM_QUEUE_ITEMS
/* ns between two polls of items in progress: while a thread waits for them, and otherwise */
#define AWAITED_NS 20000
#define WATCH_NS 200000

struct comm_queue {
    comm_queue_fn *fn;
    comm_queue_poll_fn *poll;
    void *poll_arg;
    pthread_t thread;
    bool has_thread, stop, is_awaited;
    pthread_mutex_t mutex;
    pthread_cond_t begun_more, done_more, awaited; /* the queue's thread waits by CLOCK_MONOTONIC */
    int64_t begun;                                 /* written by the thread that puts items in */
    _Atomic int64_t started, done;
    struct comm_queue_item items[ITEMS]; /* item k at k % ITEMS */
};

struct comm_queue *comm_queue_open(comm_queue_fn *fn, comm_queue_poll_fn *poll, void *poll_arg)
{
    struct comm_queue *queue = memory_new(1, sizeof(*queue));
    queue->fn = fn;
    queue->poll = poll;
    queue->poll_arg = poll_arg;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->done_more, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->begun_more, &attr);
    pthread_cond_init(&queue->awaited, &attr);
    pthread_condattr_destroy(&attr);
    return queue;
}

/* Requests a short time slice. This thread does short tasks during long computation; with
 * a short slice the kernel schedules it immediately, without more processor time in total (Linux
 * 6.12; older kernels ignore it). */
static void use_short_slices(void)
{
#ifdef SYS_sched_setattr
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr;
    memset(&attr, 0, sizeof attr);
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0 || attr.policy != SCHED_OTHER)
        return;
    attr.size = sizeof attr;
    attr.runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
#endif
}

/* Publishes the newest ticket that is done. */
static void publish_done(struct comm_queue *queue)
{
    int64_t started = atomic_load_explicit(&queue->started, memory_order_relaxed), done = started;
    if (queue->poll != NULL) {
        pthread_mutex_unlock(&queue->mutex);
        done = queue->poll(queue->poll_arg, started);
        pthread_mutex_lock(&queue->mutex);
    }
    ASSERTF(done <= started && done >= atomic_load_explicit(&queue->done, memory_order_relaxed),
            "%lld done of %lld", (long long)done, (long long)started);
    atomic_store_explicit(&queue->done, done, memory_order_release);
    pthread_cond_broadcast(&queue->done_more);
}

static void *run_items(void *arg)
{
    struct comm_queue *queue = arg;
    prctl(PR_SET_NAME, "convoy-comm"); /* shown by top -H */
    use_short_slices();
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        int64_t started = atomic_load_explicit(&queue->started, memory_order_relaxed);
        if (started < queue->begun) {
            int64_t ticket = started + 1;
            struct comm_queue_item item = queue->items[ticket % ITEMS];
            pthread_mutex_unlock(&queue->mutex);
            queue->fn(&item);
            pthread_mutex_lock(&queue->mutex);
            atomic_store_explicit(&queue->started, ticket, memory_order_release);
            publish_done(queue);
        } else if (atomic_load_explicit(&queue->done, memory_order_relaxed) < started) {
            /* The functions of the thread hold the mutex, but not while they execute or poll. */
            int64_t ns = queue->is_awaited ? AWAITED_NS : WATCH_NS;
            int64_t end_ns = clock_ns() + ns;
            struct timespec end = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
            (void)pthread_cond_timedwait(&queue->begun_more, &queue->mutex, &end);
            publish_done(queue);
        } else if (queue->stop) {
            break;
        } else {
            pthread_cond_wait(&queue->begun_more, &queue->mutex);
        }
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

void comm_queue_close(struct comm_queue *queue)
{
    if (queue == NULL)
        return;
    if (queue->has_thread) {
        pthread_mutex_lock(&queue->mutex);
        queue->stop = true;
        pthread_cond_signal(&queue->begun_more);
        pthread_mutex_unlock(&queue->mutex);
        pthread_join(queue->thread, NULL);
    }
    pthread_mutex_destroy(&queue->mutex);
    pthread_cond_destroy(&queue->begun_more);
    pthread_cond_destroy(&queue->done_more);
    pthread_cond_destroy(&queue->awaited);
    free(queue);
}

enum status comm_queue_put(struct comm_queue *queue, struct comm_queue_item *item, int64_t *ticket)
{
    ASSERT(!queue->stop);
    if (!queue->has_thread) {
        /* Only signals of the thread's own faults are delivered to it. */
        sigset_t all, kept;
        sigfillset(&all);
        sigdelset(&all, SIGSEGV);
        sigdelset(&all, SIGBUS);
        sigdelset(&all, SIGFPE);
        sigdelset(&all, SIGILL);
        sigdelset(&all, SIGABRT);
        pthread_sigmask(SIG_SETMASK, &all, &kept);
        int error = pthread_create(&queue->thread, NULL, run_items, queue);
        pthread_sigmask(SIG_SETMASK, &kept, NULL);
        if (error != 0)
            return FAIL(ST_RETRY,
                        "cannot start the communication thread: %s; raise the limit of processes "
                        "(ulimit -u)",
                        strerror(error));
        queue->has_thread = true;
    }
    comm_queue_wait(queue, queue->begun + 1 - ITEMS);
    pthread_mutex_lock(&queue->mutex);
    ASSERT(queue->begun - atomic_load_explicit(&queue->done, memory_order_relaxed) < ITEMS);
    *ticket = item->ticket = ++queue->begun;
    queue->items[*ticket % ITEMS] = *item;
    pthread_cond_signal(&queue->begun_more);
    pthread_mutex_unlock(&queue->mutex);
    return ST_OK;
}

int64_t comm_queue_last(const struct comm_queue *queue) { return queue->begun; }

bool comm_queue_is_empty(struct comm_queue *queue)
{
    return atomic_load_explicit(&queue->done, memory_order_acquire) == queue->begun;
}

static void wait_until(struct comm_queue *queue, const _Atomic int64_t *reached, int64_t ticket)
{
    ASSERTF(ticket <= queue->begun, "ticket %lld of %lld", (long long)ticket,
            (long long)queue->begun);
    if (atomic_load_explicit(reached, memory_order_acquire) >= ticket)
        return;
    pthread_mutex_lock(&queue->mutex);
    queue->is_awaited = true;
    pthread_cond_signal(&queue->awaited);
    pthread_cond_signal(&queue->begun_more);
    while (atomic_load_explicit(reached, memory_order_acquire) < ticket)
        pthread_cond_wait(&queue->done_more, &queue->mutex);
    queue->is_awaited = false;
    pthread_mutex_unlock(&queue->mutex);
}

void comm_queue_wait(struct comm_queue *queue, int64_t ticket)
{
    wait_until(queue, &queue->done, ticket);
}

void comm_queue_wait_started(struct comm_queue *queue, int64_t ticket)
{
    wait_until(queue, &queue->started, ticket);
}

bool comm_queue_sleep(struct comm_queue *queue, int64_t ns)
{
    int64_t end_ns = clock_ns() + ns;
    struct timespec end = {.tv_sec = end_ns / 1000000000, .tv_nsec = end_ns % 1000000000};
    pthread_mutex_lock(&queue->mutex);
    while (!queue->is_awaited && pthread_cond_timedwait(&queue->awaited, &queue->mutex, &end) == 0)
        continue;
    bool is_awaited = queue->is_awaited;
    pthread_mutex_unlock(&queue->mutex);
    return !is_awaited;
}
