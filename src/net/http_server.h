/* http_server — evhttp with limits: the one HTTP core of /status (serve) and of node 0's
 * coordinator (https_server).
 *
 * It limits the bytes of headers and body, the time to each request, and the number of connections.
 * It must not know paths, messages, or which client is which: its users decide that in callbacks,
 * on the thread of the event loop. */
#ifndef CONVOY_NET_HTTP_SERVER_H
#define CONVOY_NET_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <openssl/ssl.h>

#include "base/status.h"
#include "net/loop_lag.h"

struct bufferevent;
struct event_base;
struct evhttp_request;
struct http_server;

/* One accepted connection. The server owns it; it stays valid until http_server_sweep after its
 * end. */
struct http_server_conn {
    TAILQ_ENTRY(http_server_conn) link;
    struct bufferevent *stream;
    int64_t since_ms;    /* when it was accepted, plus the lag of this process since then */
    int64_t deadline_ms; /* its next request must be complete by then; ignored once admitted */
    bool is_admitted;    /* no deadline; not counted as a stranger */
    bool is_shut;        /* shut down by us; evhttp has not freed it yet */
    void *arg;           /* the arg of http_server_config */
};
/* Oldest first; a connection moves to the end with each http_server_renew. */
TAILQ_HEAD(http_server_conns, http_server_conn);

struct http_server_config {
    const char *name; /* name in messages: "the status endpoint" */
    struct event_base *loop;
    SSL_CTX *tls;            /* borrowed until close; NULL: plain HTTP */
    struct loop_lag *lag;    /* ticked by each sweep, extends all deadlines; NULL: none */
    size_t header_bytes_max; /* most bytes of a request's header */
    size_t body_bytes_max;   /* most bytes of a request's body */
    /* most bytes received and not yet parsed, for each connection; 0: no limit */
    size_t read_bytes_max;
    int request_ms;   /* ms from accept to the end of the first request */
    int idle_s;       /* s for each read and write, and between requests */
    int sweep_ms;     /* ms between two sweeps */
    unsigned methods; /* EVHTTP_REQ_… that reach on_request; others are answered with 501 */
    int conns_max;    /* most connections; 0: no limit here */
    int evict_n;      /* connections that are evicted at conns_max, least recently active first */
    void (*on_accept)(void *arg); /* a connection was added; NULL allowed */
    /* on_sweep — called after each sweep: by the timer, or because http_server_pause has ended.
     * NULL allowed. */
    void (*on_sweep)(void *arg, bool is_timer);
    /* on_request — receives a request. conn NULL: evhttp made the stream itself, because memory was
     * short. */
    void (*on_request)(void *arg, struct evhttp_request *request, struct http_server_conn *conn);
    void *arg;
};

/* http_server_open — serves on fd, a non-blocking listening socket. It owns the socket from now on,
 * even if it fails. */
enum status http_server_open(const struct http_server_config *config, int fd,
                             struct http_server **out);
/* http_server_close — ends all connections; requests that are still unanswered are freed with them.
 * Accepts NULL. */
void http_server_close(struct http_server *server);

/* http_server_sweep — drops connections that evhttp has freed, shuts overdue connections, and
 * evicts at conns_max. It runs by itself every sweep_ms; it is external for tests (the fuzzer). */
void http_server_sweep(struct http_server *server);
/* http_server_conns_n — returns the number of connections; external for tests too. */
int http_server_conns_n(const struct http_server *server);

/* http_server_pause — accepts no connection for `ms`; 0: until the next turn of the loop. */
void http_server_pause(struct http_server *server, int ms);

/* http_server_conns — returns all connections, for iteration; the server's own list. */
struct http_server_conns *http_server_conns(struct http_server *server);
/* http_server_strangers_n — returns the number of connections that are not admitted. */
int http_server_strangers_n(const struct http_server *server);

/* http_server_admit — marks the connection as authenticated: it has no deadline from now on. */
void http_server_admit(struct http_server *server, struct http_server_conn *conn);
/* http_server_renew — sets a deadline for the next request, in deadline_ms; this connection is the
 * last to be evicted. */
void http_server_renew(struct http_server *server, struct http_server_conn *conn, int deadline_ms);
/* http_server_shut — shuts the socket down; evhttp frees the connection when it reads the end. */
void http_server_shut(struct http_server_conn *conn);

#endif
