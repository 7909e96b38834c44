/* thread — a background thread with the lock and the condition that it shares with its owner.
 *
 * All signals are blocked in it, and its condition counts time on the monotonic clock. The owner
 * and the thread lock, wait and signal with the pthread functions. Must not know the work of the
 * thread. */
#ifndef CONVOY_BASE_THREAD_H
#define CONVOY_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "base/status.h"

struct thread {
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

/* thread_start — runs fn(arg) in a new thread. ST_RETRY: there are too many threads; the message
 * contains the last argument, the work of the thread ("reads the GPU's numbers"). After a failure
 * there is nothing to free. */
enum status thread_start(struct thread *thread, void *(*fn)(void *arg), void *arg,
                         const char *what);
/* thread_free — frees the lock and the condition of a thread that has ended. */
void thread_free(struct thread *thread);
/* thread_deadline — returns the time ms from now, for pthread_cond_timedwait on wake. */
struct timespec thread_deadline(int64_t ms);

#endif
