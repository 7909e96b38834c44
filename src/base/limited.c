/* limited — see limited.h. */
#include "base/limited.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"

struct call {
    struct thread thread; /* its lock guards the following fields */
    enum status (*fn)(void *arg);
    void *arg;
    struct status_saved saved;
    enum status st;
    bool is_done, is_left; /* is_left: the thread frees the call */
};

static void free_call(struct call *c)
{
    free(c->arg);
    free(c);
}

static void *run(void *arg)
{
    struct call *c = arg;
    const enum status st = c->fn(c->arg);
    pthread_mutex_lock(&c->thread.lock);
    c->st = st;
    status_save(&c->saved);
    c->is_done = true;
    const bool is_left = c->is_left;
    pthread_cond_signal(&c->thread.wake);
    pthread_mutex_unlock(&c->thread.lock);
    if (is_left) {
        thread_free(&c->thread);
        free_call(c);
    }
    return NULL;
}

enum status limited_run(enum status (*fn)(void *arg), void *arg, size_t bytes, int64_t limit_ms,
                        const char *what, bool *is_late_out)
{
    struct call *c = memory_new(1, sizeof *c);
    *is_late_out = false;
    c->fn = fn;
    c->arg = memory_new(bytes, 1);
    memcpy(c->arg, arg, bytes);
    enum status st = thread_start(&c->thread, run, c, what);
    if (st != ST_OK) {
        free_call(c);
        return st;
    }
    const pthread_t id = c->thread.id; /* an abandoned thread may free the call immediately */
    const struct timespec until = thread_deadline(limit_ms);
    pthread_mutex_lock(&c->thread.lock);
    while (!c->is_done && pthread_cond_timedwait(&c->thread.wake, &c->thread.lock, &until) == 0)
        continue;
    const bool is_left = c->is_left = !c->is_done;
    pthread_mutex_unlock(&c->thread.lock);
    if (is_left) {
        pthread_detach(id);
        *is_late_out = true;
        return FAIL(ST_PEER, "the thread that %s has not answered for %lld ms", what,
                    (long long)limit_ms);
    }
    /* The thread has ended, or is about to. */
    st = c->st;
    pthread_join(id, NULL);
    memcpy(arg, c->arg, bytes);
    status_restore(&c->saved);
    thread_free(&c->thread);
    free_call(c);
    return st;
}
