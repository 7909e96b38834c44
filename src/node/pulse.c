/* pulse — see pulse.h. */
#include "node/pulse.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "comm/ucx.h"

#define EVERY_MS 100

struct pulse {
    struct board *board;
    int worker_i;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    const struct comm *comm;
    int64_t left_ms; /* of all comms so far */
    bool is_closing;
};

/* look — under the lock, so that the comm is not closed meanwhile. */
static void look(struct pulse *pulse, struct board_call *call)
{
    struct comm_now now;
    if (!pulse->comm)
        return;
    comm_now(pulse->comm, &now);
    text_copy(call->call, sizeof call->call, now.call);
    call->sequence = now.sequence;
    call->entered_ms = now.call[0] ? now.entered_ms : 0;
    if (!now.call[0] && now.entered_ms > pulse->left_ms)
        pulse->left_ms = now.entered_ms;
}

static void say(struct pulse *pulse)
{
    struct board_call call = {.posted_ms = clock_ms(), .refused = ucx_refused()};
    look(pulse, &call);
    call.left_ms = pulse->left_ms;
    board_call_post(pulse->board, pulse->worker_i, &call);
}

static void *beat(void *arg)
{
    struct pulse *pulse = arg;
    pthread_mutex_lock(&pulse->lock);
    while (!pulse->is_closing) {
        int64_t at_ns = clock_ns() + (int64_t)EVERY_MS * 1000000;
        struct timespec until = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
        say(pulse);
        pthread_cond_timedwait(&pulse->wake, &pulse->lock, &until);
    }
    pthread_mutex_unlock(&pulse->lock);
    return NULL;
}

static enum status start(struct pulse *pulse)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* clock_ns's */
    pthread_cond_init(&pulse->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&pulse->lock, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&pulse->thread, NULL, beat, pulse);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return ST_OK;
    pthread_mutex_destroy(&pulse->lock);
    pthread_cond_destroy(&pulse->wake);
    return FAIL(ST_RETRY,
                "cannot start the worker's pulse: %s; raise the limit of processes (ulimit -u)",
                strerror(error));
}

enum status pulse_open(struct board *board, int worker_i, struct pulse **out)
{
    struct pulse *pulse = calloc(1, sizeof *pulse);
    if (!pulse)
        return FAIL(ST_RETRY, "out of memory: the worker's pulse");
    pulse->board = board;
    pulse->worker_i = worker_i;
    enum status st = start(pulse);
    if (st == ST_OK)
        *out = pulse;
    else
        free(pulse);
    return st;
}

void pulse_close(struct pulse *pulse)
{
    if (!pulse)
        return;
    pthread_mutex_lock(&pulse->lock);
    pulse->is_closing = true;
    pthread_cond_signal(&pulse->wake);
    pthread_mutex_unlock(&pulse->lock);
    pthread_join(pulse->thread, NULL);
    pthread_mutex_destroy(&pulse->lock);
    pthread_cond_destroy(&pulse->wake);
    free(pulse);
}

void pulse_comm(struct pulse *pulse, const struct comm *comm)
{
    struct board_call last;
    pthread_mutex_lock(&pulse->lock);
    look(pulse, &last); /* when its last call was left */
    pulse->comm = comm;
    say(pulse);
    pthread_mutex_unlock(&pulse->lock);
}
