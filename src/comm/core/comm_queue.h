/* comm_queue — calls begun and not yet carried out: a thread of their own carries them out in the
 * order of beginning. The thread starts with the first call put in. One thread puts in and waits.
 * Must not know what a call does. */
#ifndef CONVOY_COMM_COMM_QUEUE_H
#define CONVOY_COMM_COMM_QUEUE_H

#include "comm/core/transport.h"

struct comm_queue;
struct comm_queue_item {
    struct comm *comm;
    struct comm_call call;
    enum status (*job)(void *arg); /* instead of a call, unless NULL */
    void *arg;
};
/* Carries one item out; keeps its failure to itself. */
typedef void comm_queue_fn(struct comm_queue_item *item);

enum status comm_queue_open(comm_queue_fn *fn, struct comm_queue **out);
/* what is queued is still carried out; accepts NULL */
void comm_queue_close(struct comm_queue *queue);
/* comm_queue_put — waits while the queue is full. Tickets count from 1. */
enum status comm_queue_put(struct comm_queue *queue, const struct comm_queue_item *item,
                           int64_t *ticket);
bool comm_queue_is_empty(struct comm_queue *queue); /* cheap; nothing is under way either */
/* comm_queue_wait — until that ticket's call, and all before it, have been carried out.
 * comm_queue_last: the newest. */
void comm_queue_wait(struct comm_queue *queue, int64_t ticket);
int64_t comm_queue_last(const struct comm_queue *queue);
/* comm_queue_sleep — for a call that is being carried out: sleeps for so long, or until somebody
 * waits for it or one before or after. false: somebody does. */
bool comm_queue_sleep(struct comm_queue *queue, int64_t ns);

#endif
