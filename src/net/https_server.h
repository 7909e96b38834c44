/* https_server — node 0's door: listens, lets in who has the key, hands over their requests.
 *
 * evhttp over TLS, behind limits: 128 connections that have not yet shown the key, 32 silent ones
 * of one address, 1 s to show it and 5 s to a request; silent ones lose their slots first, oldest
 * first. Bodies of MESSAGE_BODY_MAX, short headers. Says at once when a connection has ended. Must
 * not know what is said inside. */
#ifndef CONVOY_NET_HTTPS_SERVER_H
#define CONVOY_NET_HTTPS_SERVER_H

#include <stddef.h>

#include "base/status.h"
#include "cluster/cluster.h"
#include "net/psk.h"

struct event_base;
struct evbuffer;
struct https_server;
struct https_server_request; /* evhttp's */

struct https_server_config {
    struct event_base *loop;
    const char *addr;             /* MASTER_ADDR */
    int port, nodes_n, workers_n; /* workers_n: of each node */
    const struct psk *psk;        /* outlives the server */
    /* on_request — answer with https_server_respond now or later; bytes are valid during the
     * call. */
    void (*on_request)(void *arg, struct https_server_request *request, const char *path,
                       const char *bytes, size_t n);
    /* on_disconnect — the connection with this tag ended; requests of it that are not answered are
     * of no use but to answer. */
    void (*on_disconnect)(void *arg, const void *tag);
    void *arg;
};

enum status https_server_open(const struct https_server_config *config, struct https_server **out);
void https_server_close(struct https_server *server); /* answer all requests before; accepts NULL */

void https_server_strangers(const struct https_server *server, struct https_server_strangers *out);

/* https_server_connection — what names the request's connection while that lives. NULL: it has
 * ended. */
const void *https_server_connection(struct https_server_request *request);
/* https_server_peer — the other side's address, "" unknown. */
void https_server_peer(struct https_server_request *request, char *out, size_t cap);
/* https_server_respond — 200 with JSON, or another code with no body. Frees the request. body: NULL
 * or drained. */
void https_server_respond(struct https_server_request *request, int code, struct evbuffer *body);
/* https_server_respond_bytes — 200 with bytes of any kind. As above. */
void https_server_respond_bytes(struct https_server_request *request, struct evbuffer *body);

#endif
