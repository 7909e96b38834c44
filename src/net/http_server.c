/* http_server — see http_server.h.
 *
 * evhttp has no limit on connections, and its idle time-out starts anew with each byte, so a client
 * that sends a byte a second never meets it. Therefore each connection's bufferevent is kept in a
 * list with a reference of our own. A sweep drops the connections that evhttp has freed, and shuts
 * down the overdue ones, which evhttp then frees on its own path. */
#include "net/http_server.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

#include "base/clock.h"
#include "base/memory.h"

struct http_server {
    struct http_server_config config;
    struct evhttp *http;
    struct evconnlistener *listener;
    struct event *timer, *resume; /* fires each sweep_ms; fires once, when a pause ends */
    struct http_server_conns conns;
    int conns_n, admitted_n;
};

/* ---- connections ---- */

static void drop_conn(struct http_server *server, struct http_server_conn *conn)
{
    TAILQ_REMOVE(&server->conns, conn, link);
    server->conns_n--;
    server->admitted_n -= conn->is_admitted;
    bufferevent_decref(conn->stream);
    free(conn);
}

void http_server_shut(struct http_server_conn *conn)
{
    if (!conn->is_shut)
        shutdown(bufferevent_getfd(conn->stream), SHUT_RDWR);
    conn->is_shut = true;
}

void http_server_pause(struct http_server *server, int ms)
{
    struct timeval in = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    evconnlistener_disable(server->listener);
    event_add(server->resume, &in);
}

static bool is_full(const struct http_server *server)
{
    return server->config.conns_max > 0 && server->conns_n >= server->config.conns_max;
}

/* Evicts connections. The next turn of the loop reads the end of the connections shut here, and
 * evhttp frees them; after that the pause ends. */
static void evict_conns(struct http_server *server)
{
    struct http_server_conn *conn = TAILQ_FIRST(&server->conns);
    for (int i = 0; i < server->config.evict_n && conn != NULL; i++) {
        http_server_shut(conn);
        conn = TAILQ_NEXT(conn, link);
    }
    http_server_pause(server, 0);
}

void http_server_sweep(struct http_server *server)
{
    struct http_server_conn *conn = TAILQ_FIRST(&server->conns), *next;
    int64_t now_ms = clock_ms();
    /* Bytes that arrived while this process did not run were not read: that is no delay of the
     * client. */
    int64_t lag_ms = server->config.lag != NULL ? loop_lag_tick(server->config.lag, now_ms) : 0;
    for (; conn != NULL; conn = next) {
        next = TAILQ_NEXT(conn, link);
        /* Evhttp removes its callbacks from a bufferevent only when it frees it. */
        bufferevent_data_cb read_cb, write_cb;
        bufferevent_event_cb event_cb;
        void *arg;
        bufferevent_getcb(conn->stream, &read_cb, &write_cb, &event_cb, &arg);
        if (event_cb == NULL) {
            drop_conn(server, conn);
            continue;
        }
        conn->since_ms += lag_ms;
        conn->deadline_ms += lag_ms;
        if (!conn->is_admitted && now_ms > conn->deadline_ms)
            http_server_shut(conn);
    }
    if (is_full(server))
        evict_conns(server);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *server = arg;
    (void)fd, (void)what;
    http_server_sweep(server);
    if (server->config.on_sweep != NULL)
        server->config.on_sweep(server->config.arg, true);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *server = arg;
    (void)fd, (void)what;
    http_server_sweep(server);
    if (server->config.on_sweep != NULL)
        server->config.on_sweep(server->config.arg, false);
    if (!is_full(server))
        evconnlistener_enable(server->listener);
}

/* Makes a stream. CLOSE_ON_FREE: the last reference closes the descriptor. Without it evhttp closes
 * it while our reference still holds the stream's events, which would then act on the next
 * connection with the same descriptor. The client does not wait for us: evhttp shuts the connection
 * down first. */
static struct bufferevent *new_stream(const struct http_server_config *config)
{
    if (config->tls == NULL)
        return bufferevent_socket_new(config->loop, -1, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = SSL_new(config->tls);
    if (ssl == NULL)
        return NULL;
    struct bufferevent *stream = bufferevent_openssl_socket_new(
        config->loop, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (stream == NULL)
        SSL_free(ssl);
    else
        bufferevent_openssl_set_allow_dirty_shutdown(stream, 1);
    return stream;
}

/* Called by evhttp for each connection that it accepts. NULL makes evhttp use a plain stream of its
 * own, with only its idle time-out; that happens only if memory is short. */
static struct bufferevent *open_stream(struct event_base *loop, void *arg)
{
    struct http_server *server = arg;
    (void)loop;
    if (server->config.conns_max > 0 && server->conns_n >= server->config.conns_max - 1)
        http_server_sweep(server); /* short connections of a burst have ended already */
    if (is_full(server))
        return NULL; /* accepting is paused, so this is not reached */
    const struct http_server_config *config = &server->config;
    struct bufferevent *stream = new_stream(config);
    if (stream == NULL)
        return NULL;
    struct http_server_conn *conn = memory_new(1, sizeof(*conn));
    conn->stream = stream;
    SSL *ssl = bufferevent_openssl_get_ssl(stream);
    bufferevent_incref(stream);
    if (config->read_bytes_max > 0)
        bufferevent_setwatermark(stream, EV_READ, 0, config->read_bytes_max);
    if (ssl != NULL)
        SSL_set_app_data(ssl, conn);
    conn->arg = config->arg;
    conn->since_ms = clock_ms();
    conn->deadline_ms = conn->since_ms + config->request_ms;
    TAILQ_INSERT_TAIL(&server->conns, conn, link);
    server->conns_n++;
    if (config->on_accept != NULL)
        config->on_accept(config->arg);
    if (is_full(server))
        evict_conns(server);
    return stream;
}

/* ---- requests ---- */

/* Returns the connection of a request; with TLS in constant time, because a coordinator may have
 * thousands of connections. */
static struct http_server_conn *conn_of(struct http_server *server, struct evhttp_request *request)
{
    struct bufferevent *stream =
        evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
    SSL *ssl = bufferevent_openssl_get_ssl(stream);
    struct http_server_conn *conn;
    if (server->config.tls != NULL)
        return ssl != NULL ? SSL_get_app_data(ssl) : NULL;
    TAILQ_FOREACH(conn, &server->conns, link)
    if (conn->stream == stream)
        break;
    return conn;
}

static void on_request(struct evhttp_request *request, void *arg)
{
    struct http_server *server = arg;
    server->config.on_request(server->config.arg, request, conn_of(server, request));
}

struct http_server_conns *http_server_conns(struct http_server *server) { return &server->conns; }
int http_server_conns_n(const struct http_server *server) { return server->conns_n; }

int http_server_strangers_n(const struct http_server *server)
{
    return server->conns_n - server->admitted_n;
}

void http_server_admit(struct http_server *server, struct http_server_conn *conn)
{
    server->admitted_n += !conn->is_admitted;
    conn->is_admitted = true;
}

void http_server_renew(struct http_server *server, struct http_server_conn *conn, int deadline_ms)
{
    conn->deadline_ms = clock_ms() + deadline_ms;
    TAILQ_REMOVE(&server->conns, conn, link);
    TAILQ_INSERT_TAIL(&server->conns, conn, link);
}

/* ---- life ---- */

static enum status start_server(struct http_server *server, int fd)
{
    const struct http_server_config *config = &server->config;
    const struct timeval every = {config->sweep_ms / 1000, config->sweep_ms % 1000 * 1000};
    server->listener = evconnlistener_new(config->loop, NULL, NULL,
                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (server->listener == NULL) {
        close(fd);
        return FAIL(ST_RETRY, "out of memory: the listener of %s", config->name);
    }
    server->http = evhttp_new(config->loop);
    if (server->http == NULL || evhttp_bind_listener(server->http, server->listener) == NULL) {
        evconnlistener_free(server->listener);
        return FAIL(ST_RETRY, "out of memory: the server of %s", config->name);
    }
    evhttp_set_max_headers_size(server->http, (ev_ssize_t)config->header_bytes_max);
    evhttp_set_max_body_size(server->http, (ev_ssize_t)config->body_bytes_max);
    evhttp_set_timeout(server->http, config->idle_s);
    evhttp_set_allowed_methods(server->http, (ev_uint16_t)config->methods);
    evhttp_set_bevcb(server->http, open_stream, server);
    evhttp_set_gencb(server->http, on_request, server);
    server->timer = event_new(config->loop, -1, EV_PERSIST, on_timer, server);
    server->resume = event_new(config->loop, -1, 0, on_resume, server);
    if (server->timer == NULL || server->resume == NULL || event_add(server->timer, &every) != 0)
        return FAIL(ST_RETRY, "out of memory: the timer of %s", config->name);
    return ST_OK;
}

enum status http_server_open(const struct http_server_config *config, int fd,
                             struct http_server **out)
{
    struct http_server *server = memory_new(1, sizeof(*server));
    server->config = *config;
    TAILQ_INIT(&server->conns);
    enum status st = start_server(server, fd);
    if (st != ST_OK) {
        http_server_close(server);
        return st;
    }
    *out = server;
    return ST_OK;
}

void http_server_close(struct http_server *server)
{
    if (server == NULL)
        return;
    if (server->timer != NULL)
        event_free(server->timer);
    if (server->resume != NULL)
        event_free(server->resume);
    if (server->http != NULL)
        evhttp_free(server->http); /* and the listener and all connections with it */
    while (!TAILQ_EMPTY(&server->conns))
        drop_conn(server, TAILQ_FIRST(&server->conns));
    free(server);
}
