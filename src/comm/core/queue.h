/* comm_queue — a queue of calls and the thread that executes them in order. The thread starts with
 * the first call. One thread puts calls in and waits for them. Must not know the effect of a
 * call. */
#ifndef CONVOY_COMM_COMM_QUEUE_H
#define CONVOY_COMM_COMM_QUEUE_H

#include "comm/core/transport.h"

struct comm_queue;
struct comm_queue_item {
    struct comm *comm;
    struct comm_call call;
    enum status (*job)(void *arg); /* NULL: execute `call` */
    void *arg;
    int64_t ticket; /* set by comm_queue_put */
};
#define COMM_QUEUE_ITEMS 256 /* a step begins about one call per block and kind of call */

/* comm_queue_fn — starts one item, and executes it unless something else (the device) does. It
 * records a failure itself. */
typedef void comm_queue_fn(struct comm_queue_item *item);
/* comm_queue_poll_fn — called by the queue thread after each item, and repeatedly while items are
 * in progress. started: the newest ticket that was started. Returns the newest ticket up to which
 * all are done. NULL: an item is done when it was started. */
typedef int64_t comm_queue_poll_fn(void *arg, int64_t started);

/* comm_queue_open — returns an empty queue; never NULL. poll NULL: see comm_queue_poll_fn.
 * poll_arg: the first argument of poll. */
struct comm_queue *comm_queue_open(comm_queue_fn *fn, comm_queue_poll_fn *poll, void *poll_arg);
/* comm_queue_close — waits until all items are done. Accepts NULL. */
void comm_queue_close(struct comm_queue *queue);
/* comm_queue_put — appends an item; blocks while the queue is full. Tickets count from 1. */
enum status comm_queue_put(struct comm_queue *queue, struct comm_queue_item *item, int64_t *ticket);
/* comm_queue_is_empty — returns true if no item is queued or in progress. Cheap. */
bool comm_queue_is_empty(struct comm_queue *queue);
/* comm_queue_wait — blocks until that ticket's item and all items before it are done. */
void comm_queue_wait(struct comm_queue *queue, int64_t ticket);
/* comm_queue_wait_started — blocks until they were started. */
void comm_queue_wait_started(struct comm_queue *queue, int64_t ticket);
/* comm_queue_last — returns the newest ticket. */
int64_t comm_queue_last(const struct comm_queue *queue);
/* comm_queue_sleep — sleeps for ns nanoseconds, or until a thread blocks in comm_queue_wait;
 * returns false in that case. Called on the queue thread, inside an item. */
bool comm_queue_sleep(struct comm_queue *queue, int64_t ns);

#endif
