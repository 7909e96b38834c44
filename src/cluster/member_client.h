/* member_client — a member's HTTPS requests to the coordinator, at member->target: keeps one
 * heartbeat request open, sends urgent news in a second request, fetches worlds, and tries again
 * with back-off. Must not decide anything about the job: member.c does. */
#ifndef CONVOY_CLUSTER_MEMBER_CLIENT_H
#define CONVOY_CLUSTER_MEMBER_CLIENT_H

#include "cluster/member.h"
#include "net/https_client.h"
#include "net/psk.h"

struct event_base;
struct member_client;
struct member_client_config {
    struct event_base *loop;
    struct member *member;
    /* Writes where a node listens, "host:port"; false: unknown. */
    bool (*find_control)(void *arg, int node_id, char *out, size_t cap);
    int nodes_n, workers_n; /* nodes of the job; workers of each node */
    const struct psk *psk;
    /* Adds the caller's fields to a message: ranks, addresses, and how to join. */
    void (*fill_heartbeat)(void *arg, bool is_with_addresses, struct message_heartbeat *heartbeat,
                           struct message_join *join);
    void (*on_control)(void *arg, int node_id, const char *control); /* where a node listens */
    void (*carry_out)(void *arg, const struct member_actions *actions);
    void (*on_world)(void *arg, const struct cluster_world *world);
    void *arg;
};

/* member_client_open — prepares the requests to node 0; member_client_pump sends them. Borrows loop
 * and member until close. */
enum status member_client_open(const struct member_client_config *config,
                               struct member_client **out);
void member_client_close(struct member_client *c); /* accepts NULL */
/* member_client_notify — there is news: the next pump sends it immediately. */
void member_client_notify(struct member_client *c);
/* member_client_pump — sends the messages that are due. Call it several times a second, and soon
 * after member_client_notify. Does not block. */
void member_client_pump(struct member_client *c);
/* member_client_fetch_world — requests the addresses of a generation; on_world follows if the
 * member enters it. */
void member_client_fetch_world(struct member_client *c, int64_t generation);

/* member_client_dial — opens a client for the node at "host:port" or "[host]:port". */
enum status member_client_dial(struct event_base *loop, const struct psk *psk, const char *control,
                               void (*on_response)(void *arg,
                                                   const struct https_client_response *response),
                               void *arg, struct https_client **out);

#endif
