/* https_server — node 0's server for the other nodes: HTTP over TLS 1.3 with the job's key.
 *
 * It accepts every connection and closes a connection that does not prove the key in time:
 *   - 1 s to the TLS hello, 5 s to the first request (more if this process runs late);
 *   - at most 128 strangers, and 32 silent ones of one address (more with more nodes);
 *   - headers of 4 KiB, bodies of body_bytes_max.
 *
 * All functions and callbacks run on the thread of the event loop. It must not know the meaning of
 * messages. */
#ifndef CONVOY_NET_HTTPS_SERVER_H
#define CONVOY_NET_HTTPS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "net/psk.h"

struct event_base;
struct evbuffer;
struct https_server;
struct https_server_request; /* evhttp's */

struct https_server_config {
    struct event_base *loop;
    const char *addr;             /* MASTER_ADDR */
    bool is_towards;              /* listen where this host reaches addr, at a free port */
    int port, nodes_n, workers_n; /* workers_n: workers of each node */
    size_t body_bytes_max;        /* most bytes of a request's body */
    const struct psk *psk;        /* borrowed until close */
    /* on_request — receives a request. Answer it with https_server_respond, now or later. bytes are
     * valid during the call. */
    void (*on_request)(void *arg, struct https_server_request *request, const char *path,
                       const char *bytes, size_t n);
    /* on_disconnect — the connection that https_server_connection returned has ended. Its
     * unanswered requests must still be answered; nothing is sent. */
    void (*on_disconnect)(void *arg, const void *connection);
    void *arg;
};

/* https_server_open — listens on addr and port, and raises the process's limit of open files for
 * nodes_n nodes. It copies the config; `loop` must outlive the server. */
enum status https_server_open(const struct https_server_config *config, struct https_server **out);
/* https_server_port — returns the port at which it listens. */
int https_server_port(const struct https_server *server);
/* https_server_close — closes the server. Answer all requests before the call. Accepts NULL. */
void https_server_close(struct https_server *server);

/* Strangers: connections that have not proved the job's key. */
struct https_server_strangers {
    int strangers_n;     /* strangers now */
    bool is_full;        /* some were evicted in the last 10 s */
    int64_t turned_away; /* strangers evicted so far */
};
/* https_server_strangers — writes the number of strangers now and of evicted strangers. */
void https_server_strangers(const struct https_server *server, struct https_server_strangers *out);

/* https_server_connection — returns an identifier of the request's connection, valid while the
 * connection lives. NULL: it has ended. */
const void *https_server_connection(struct https_server_request *request);
/* https_server_peer — writes the address of the request's sender; "": unknown. */
void https_server_peer(struct https_server_request *request, char *out, size_t cap);
/* https_server_local — writes the address of this host at which the request arrived; "":
 * unknown. */
void https_server_local(struct https_server_request *request, char *out, size_t cap);
/* https_server_respond — sends 200 with JSON, or another code without a body, and frees the
 * request. Drains body; NULL allowed. */
void https_server_respond(struct https_server_request *request, int code, struct evbuffer *body);
/* https_server_respond_bytes — does the same with 200 and binary data. */
void https_server_respond_bytes(struct https_server_request *request, struct evbuffer *body);

#endif
