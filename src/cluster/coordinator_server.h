/* coordinator_server — the HTTPS requests to the coordinator's node: reads each message, passes it
 * to the coordinator, sends the reply. A node that may become the coordinator listens, too, and
 * answers that it is not.
 *
 *   POST /v1/say    a heartbeat; the reply is held back until the coordinator's revision changes,
 *                   or until the hold time in the message is over
 *   POST /v1/world  the addresses of a generation
 *   POST /v1/view   the view of another node, whose answer is the view of this one
 *   other paths     config.on_request
 *
 * Watches which connections belong to which node, so that the end of the last one is an event. Must
 * not decide anything about the job. */
#ifndef CONVOY_CLUSTER_COORDINATOR_SERVER_H
#define CONVOY_CLUSTER_COORDINATOR_SERVER_H

#include "cluster/coordinator.h"
#include "net/https_server.h"
#include "net/psk.h"

struct event_base;
struct coordinator_server;
struct coordinator_server_config {
    struct event_base *loop;
    struct coordinator *coordinator; /* NULL: this node is not the coordinator's */
    int nodes_n, workers_n;          /* workers_n: workers of each node */
    const char *addr;
    bool is_towards; /* as in https_server_config */
    int port;
    const struct psk *psk;
    const uint8_t *seed;          /* seed of the generations' secrets */
    void (*on_change)(void *arg); /* the coordinator has applied a message */
    /* Fills the answer of a node that is not the coordinator's: leader_id, control. */
    void (*on_elsewhere)(void *arg, struct message_reply *reply);
    /* Another node has sent its view. The answer is made by on_view, too. */
    void (*on_view)(void *arg, const struct message_view *theirs, struct message_view *own);
    /* As in cluster_config. */
    void (*on_request)(void *arg, struct https_server_request *request, const char *path,
                       const char *bytes, size_t n);
    void *arg;
};

/* coordinator_server_open — listens on addr and port, and answers requests on the event loop. The
 * pointers of config are borrowed until close. */
enum status coordinator_server_open(const struct coordinator_server_config *config,
                                    struct coordinator_server **out);
/* coordinator_server_close — answers the held requests. Accepts NULL. */
void coordinator_server_close(struct coordinator_server *s);
/* coordinator_server_set — sets the coordinator of this node; NULL: it has none any more. */
void coordinator_server_set(struct coordinator_server *s, struct coordinator *coordinator);
/* coordinator_server_port — returns the port. */
int coordinator_server_port(const struct coordinator_server *s);
/* coordinator_server_flush — answers held heartbeats for which there is news, or whose hold time is
 * over. Call it after every change and several times a second. */
void coordinator_server_flush(struct coordinator_server *s);
/* coordinator_server_strangers — writes the counts of connections that have not proved the job's
 * key. */
void coordinator_server_strangers(const struct coordinator_server *s,
                                  struct https_server_strangers *out);

#endif
