/* comm_heartbeat — see comm_heartbeat.h. */
#include "node/comm_heartbeat.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "comm/p2p/p2p.h"

#define EVERY_MS 100

struct comm_heartbeat {
    struct board *board;
    int worker_i;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    const struct comm *comm;
    int64_t left_ms; /* of all comms so far */
    bool is_closing;
};

/* read_comm — under the lock, so that the comm is not closed meanwhile. */
static void read_comm(struct comm_heartbeat *heartbeat, struct board_call *call)
{
    struct comm_activity now;
    if (!heartbeat->comm)
        return;
    comm_activity(heartbeat->comm, &now);
    text_copy(call->call, sizeof call->call, now.call);
    call->sequence = now.sequence;
    call->entered_ms = now.call[0] ? now.entered_ms : 0;
    if (!now.call[0] && now.entered_ms > heartbeat->left_ms)
        heartbeat->left_ms = now.entered_ms;
}

static void publish(struct comm_heartbeat *heartbeat)
{
    struct board_call call = {.published_ms = clock_ms(), .refused = p2p_refused()};
    read_comm(heartbeat, &call);
    call.left_ms = heartbeat->left_ms;
    board_call_publish(heartbeat->board, heartbeat->worker_i, &call);
}

static void *publish_loop(void *arg)
{
    struct comm_heartbeat *heartbeat = arg;
    pthread_mutex_lock(&heartbeat->lock);
    while (!heartbeat->is_closing) {
        int64_t at_ns = clock_ns() + (int64_t)EVERY_MS * 1000000;
        struct timespec until = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
        publish(heartbeat);
        pthread_cond_timedwait(&heartbeat->wake, &heartbeat->lock, &until);
    }
    pthread_mutex_unlock(&heartbeat->lock);
    return NULL;
}

static enum status start(struct comm_heartbeat *heartbeat)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* clock_ns's */
    pthread_cond_init(&heartbeat->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&heartbeat->lock, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&heartbeat->thread, NULL, publish_loop, heartbeat);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return ST_OK;
    pthread_mutex_destroy(&heartbeat->lock);
    pthread_cond_destroy(&heartbeat->wake);
    return FAIL(
        ST_RETRY,
        "cannot start the worker's comm heartbeat: %s; raise the limit of processes (ulimit -u)",
        strerror(error));
}

enum status comm_heartbeat_open(struct board *board, int worker_i, struct comm_heartbeat **out)
{
    struct comm_heartbeat *heartbeat = calloc(1, sizeof *heartbeat);
    if (!heartbeat)
        return FAIL(ST_RETRY, "out of memory: the worker's comm heartbeat");
    heartbeat->board = board;
    heartbeat->worker_i = worker_i;
    enum status st = start(heartbeat);
    if (st == ST_OK)
        *out = heartbeat;
    else
        free(heartbeat);
    return st;
}

void comm_heartbeat_close(struct comm_heartbeat *heartbeat)
{
    if (!heartbeat)
        return;
    pthread_mutex_lock(&heartbeat->lock);
    heartbeat->is_closing = true;
    pthread_cond_signal(&heartbeat->wake);
    pthread_mutex_unlock(&heartbeat->lock);
    pthread_join(heartbeat->thread, NULL);
    pthread_mutex_destroy(&heartbeat->lock);
    pthread_cond_destroy(&heartbeat->wake);
    free(heartbeat);
}

void comm_heartbeat_set_comm(struct comm_heartbeat *heartbeat, const struct comm *comm)
{
    struct board_call last;
    pthread_mutex_lock(&heartbeat->lock);
    read_comm(heartbeat, &last); /* when its last call was left */
    heartbeat->comm = comm;
    publish(heartbeat);
    pthread_mutex_unlock(&heartbeat->lock);
}
