/* desk — node 0's correspondence: reads what comes through the door, asks the coordinator, answers;
 * holds a beat until something has changed. Must not decide anything about the job. */
#ifndef CONVOY_MEET_DESK_H
#define CONVOY_MEET_DESK_H

#include "meet/bill.h"
#include "meet/coordinator.h"
#include "meet/secret.h"

struct event_base;
struct desk;
struct desk_config {
    struct event_base *loop;
    struct coordinator *coordinator;
    int nodes_n, workers_n; /* workers_n: of each node */
    const char *addr;
    int port;
    const struct secret *secret;
    const uint8_t *seed;          /* of the generations' secrets */
    void (*on_change)(void *arg); /* something was heard: look at the coordinator */
    void *arg;
};

enum status desk_open(const struct desk_config *config, struct desk **out);
void desk_close(struct desk *desk);
/* desk_flush — answer what was held, where there is something new or the time is over. Call it
 * after every change and several times a second. */
void desk_flush(struct desk *desk);
void desk_door(const struct desk *desk, struct meet_door *out);
/* desk_offer — what this node has for those without data of their own: see offer_set. */
enum status desk_offer(struct desk *desk, enum bill_kind kind, const char *bytes, size_t n);

#endif
