/* view_client — the coordinator's requests to nodes that are no members: sends its view, reads
 * theirs, and finds the processes that have ended (succession.h). The coordinator decides on the
 * consequences. */
#ifndef CONVOY_CLUSTER_VIEW_CLIENT_H
#define CONVOY_CLUSTER_VIEW_CLIENT_H

#include "cluster/message.h"
#include "net/psk.h"

struct event_base;
struct view_client;
struct view_client_config {
    struct event_base *loop;
    const struct psk *psk;
    int nodes_n;
    void (*fill_view)(void *arg, struct message_view *own);
    /* A node has answered with its view. */
    void (*on_view)(void *arg, const struct message_view *theirs);
    /* The process of the node has ended: its host refuses connections where it listened, or another
     * process listens there. */
    void (*on_ended)(void *arg, int node_id, struct message_incarnation incarnation);
    void *arg;
};

/* view_client_open — prepares the requests. Borrows loop and psk until close. */
struct view_client *view_client_open(const struct view_client_config *config);
void view_client_close(struct view_client *v); /* accepts NULL */
/* view_client_request — requests the view of the node that listens at `control`, unless the last
 * request is in progress or was made a moment ago. expected: the process that listened there; zero:
 * any. */
void view_client_request(struct view_client *v, int node_id, const char *control,
                         struct message_incarnation expected);

#endif
