/* comm_heartbeat — see comm_heartbeat.h. */
#include "node/worker/comm_heartbeat.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread.h"
#include "comm/message/messenger.h"

#define EVERY_MS 100

struct comm_heartbeat {
    struct board *board;
    int worker_i;
    struct thread thread; /* its lock guards the fields below */
    const struct comm *comm;
    int64_t left_ms; /* time at which the last call was left, over all comms so far */
    bool is_closing;
};

/* read_comm — reads the state of the comm. Called with the lock held, so that the comm is not
 * closed meanwhile. */
static void read_comm(struct comm_heartbeat *heartbeat, struct board_call *call)
{
    struct comm_activity now;
    if (!heartbeat->comm)
        return;
    comm_activity(heartbeat->comm, &now);
    text_copy(call->call, sizeof call->call, now.call);
    call->sequence = now.sequence;
    call->stuck_ms = now.stuck_ms;
    call->entered_ms = now.call[0] ? now.entered_ms : 0;
    if (!now.call[0] && now.entered_ms > heartbeat->left_ms)
        heartbeat->left_ms = now.entered_ms;
}

static void publish_call(struct comm_heartbeat *heartbeat)
{
    struct board_call call = {.published_ms = clock_ms(), .refused = messenger_refused()};
    read_comm(heartbeat, &call);
    call.left_ms = heartbeat->left_ms;
    board_call_publish(heartbeat->board, heartbeat->worker_i, &call);
}

static void *publish_loop(void *arg)
{
    struct comm_heartbeat *heartbeat = arg;
    pthread_mutex_lock(&heartbeat->thread.lock);
    while (!heartbeat->is_closing) {
        struct timespec until = thread_deadline(EVERY_MS);
        publish_call(heartbeat);
        pthread_cond_timedwait(&heartbeat->thread.wake, &heartbeat->thread.lock, &until);
    }
    pthread_mutex_unlock(&heartbeat->thread.lock);
    return NULL;
}

enum status comm_heartbeat_open(struct board *board, int worker_i, struct comm_heartbeat **out)
{
    struct comm_heartbeat *heartbeat = memory_new(1, sizeof *heartbeat);
    heartbeat->board = board;
    heartbeat->worker_i = worker_i;
    enum status st =
        thread_start(&heartbeat->thread, publish_loop, heartbeat, "publishes the comm heartbeat");
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
    pthread_mutex_lock(&heartbeat->thread.lock);
    heartbeat->is_closing = true;
    pthread_cond_signal(&heartbeat->thread.wake);
    pthread_mutex_unlock(&heartbeat->thread.lock);
    pthread_join(heartbeat->thread.id, NULL);
    thread_free(&heartbeat->thread);
    free(heartbeat);
}

void comm_heartbeat_set_comm(struct comm_heartbeat *heartbeat, const struct comm *comm)
{
    struct board_call last;
    pthread_mutex_lock(&heartbeat->thread.lock);
    ASSERT(!heartbeat->is_closing && (comm == NULL || heartbeat->comm == NULL));
    read_comm(heartbeat, &last); /* for the time at which its last call was left */
    heartbeat->comm = comm;
    publish_call(heartbeat);
    pthread_mutex_unlock(&heartbeat->thread.lock);
}
