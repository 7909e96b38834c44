/* link — a member's line to node 0: keeps one beat open, tells news beside it, fetches worlds,
 * tries again with back-off. Must not decide anything: that is member.c's. */
#ifndef CONVOY_CLUSTER_MEMBER_CLIENT_H
#define CONVOY_CLUSTER_MEMBER_CLIENT_H

#include "cluster/member.h"
#include "net/psk.h"

struct event_base;
struct member_client;
struct member_client_config {
    struct event_base *loop;
    struct member *member;
    const char *host;
    int port, ranks_n; /* of the whole job */
    const struct psk *psk;
    /* what the driver adds to a message */
    void (*fill_heartbeat)(void *arg, bool is_with_addresses, struct message_heartbeat *heartbeat,
                           struct message_join *join);
    void (*carry_out)(void *arg, const struct member_actions *actions);
    void (*on_world)(void *arg, const struct cluster_world *world);
    void *arg;
};

enum status member_client_open(const struct member_client_config *config,
                               struct member_client **out);
void member_client_close(struct member_client *c);
void member_client_notify(struct member_client *c); /* something to tell, soon */
/* member_client_pump — send what is due; several times a second, and soon after
 * member_client_notify. */
void member_client_pump(struct member_client *c);
void member_client_fetch_world(struct member_client *c, int64_t generation);

#endif
