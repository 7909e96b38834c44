/* coroutine — see coroutine.h. The turn is handed over under the lock of the thread; one of the two
 * waits for it, so one condition is enough. */
#include "base/coroutine.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/thread.h"

enum turn { TURN_OWNER, TURN_WORK, TURN_CLOSE };

struct coroutine {
    struct thread thread;
    enum turn turn;
    enum status (*work)(void *arg); /* NULL: nothing is begun */
    void *arg;
    bool has_ended;
    enum status st; /* what it returned */
    struct status_saved sentence;
};

/* hand — the turn to the other side; returns when it is this side's again. */
static void hand(struct coroutine *c, enum turn turn, bool is_owner)
{
    pthread_mutex_lock(&c->thread.lock);
    c->turn = turn;
    pthread_cond_signal(&c->thread.wake);
    while ((c->turn == TURN_OWNER) != is_owner)
        pthread_cond_wait(&c->thread.wake, &c->thread.lock);
    pthread_mutex_unlock(&c->thread.lock);
}

static void wait_for_turn(struct coroutine *c)
{
    pthread_mutex_lock(&c->thread.lock);
    while (c->turn == TURN_OWNER)
        pthread_cond_wait(&c->thread.wake, &c->thread.lock);
    pthread_mutex_unlock(&c->thread.lock);
}

static void *run(void *arg)
{
    struct coroutine *c = arg;
    wait_for_turn(c);
    while (c->turn == TURN_WORK) {
        c->st = c->work(c->arg);
        status_save(&c->sentence);
        c->has_ended = true;
        hand(c, TURN_OWNER, false);
    }
    return NULL;
}

enum status coroutine_open(const char *what, struct coroutine **out)
{
    struct coroutine *c = calloc(1, sizeof *c);
    if (!c)
        return FAIL(ST_RETRY, "out of memory: a coroutine of %zu bytes", sizeof *c);
    enum status st = thread_start(&c->thread, run, c, what);
    if (st == ST_OK)
        *out = c;
    else
        free(c);
    return st;
}

void coroutine_close(struct coroutine *c)
{
    if (!c)
        return;
    ASSERT(!c->work);
    pthread_mutex_lock(&c->thread.lock);
    c->turn = TURN_CLOSE;
    pthread_cond_signal(&c->thread.wake);
    pthread_mutex_unlock(&c->thread.lock);
    pthread_join(c->thread.id, NULL);
    thread_free(&c->thread);
    free(c);
}

void coroutine_begin(struct coroutine *c, enum status (*work)(void *arg), void *arg)
{
    ASSERT(!c->work);
    c->work = work;
    c->arg = arg;
    c->has_ended = false;
}

bool coroutine_resume(struct coroutine *c)
{
    ASSERT(c->work && !c->has_ended);
    hand(c, TURN_WORK, true);
    return !c->has_ended;
}

enum status coroutine_end(struct coroutine *c)
{
    ASSERT(c->work && c->has_ended);
    c->work = NULL;
    if (c->st != ST_OK)
        status_restore(&c->sentence);
    return c->st;
}

void coroutine_yield(struct coroutine *c) { hand(c, TURN_OWNER, false); }
