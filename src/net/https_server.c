/* https_server — see https_server.h.
 *
 * All connections are accepted immediately, BURST_MAX in a turn of the event loop. If too many have
 * not proved the key, the silent ones are closed, oldest first (conn_limit.h). So a node that sends
 * its TLS hello immediately is admitted, even if many silent connections wait. */
#include "net/https_server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "net/conn_limit.h"
#include "net/http_request.h"
#include "net/http_server.h"
#include "net/keepalive.h"
#include "net/listener.h"

/* A stranger is a connection that has not proved the job's key. */
#define STRANGERS_MAX 128 /* and three for each node, all of which may connect at the same time */
/* Most silent strangers of one address that had NEW_MS to send a byte; and two for each node. */
#define STRANGERS_PER_ADDRESS_MAX 32
#define NEW_MS 250       /* longer if this host is busy: see HELLO_LAG_FACTOR */
#define STRANGER_MS 5000 /* ms to send a request */
#define HELLO_MS 1000    /* ms to send the TLS hello, which proves the key */
/* factor of this process's own lag, which is added: others are as late */
#define HELLO_LAG_FACTOR 4
#define BURST_MAX 64 /* connections accepted in one turn of the loop */
#define PAUSE_MS 20  /* ms after a burst with too many strangers: leaves the CPU to others */
#define HEADER_BYTES 4096
#define IDLE_S 20
#define SWEEP_MS 100
#define LOG_EVERY_MS 1000 /* ms: refusals are logged once a second */
#define LOG_FULL_EVERY_MS 10000

struct https_server {
    struct https_server_config config;
    SSL_CTX *ctx; /* NULL: plain */
    struct http_server *http;
    int strangers_max, strangers_per_address_max;
    int burst_n; /* connections accepted in this turn of the loop */
    /* For evict_excess: room for strangers_max connections, plus the bursts. */
    struct conn_limit_slot *slots;
    struct http_server_conn **strangers;
    struct loop_lag lag;
    int64_t full_ms, warned_full_ms; /* last eviction, last warning of it; 0: never */
    int64_t evicted_n;
    int64_t refusal_logged_ms;
    int unreported_n; /* refusals since the last log line */
};

/* ---- strangers ---- */

/* Returns true if the first TLS message has arrived and its key was right: TLS 1.3 proves it there.
 * Without TLS: if bytes have arrived. */
static bool has_client_hello(const struct http_server_conn *conn)
{
    const SSL *ssl = bufferevent_openssl_get_ssl(conn->stream);
    if (ssl == NULL)
        return evbuffer_get_length(bufferevent_get_input(conn->stream)) > 0;
    OSSL_HANDSHAKE_STATE at = SSL_get_state(ssl);
    return at != TLS_ST_BEFORE && at != TLS_ST_SR_CLNT_HELLO;
}

/* Returns true if no byte has arrived: the socket has nothing to read. */
static bool is_silent(const struct http_server_conn *conn)
{
    int unread = 0;
    if (ioctl(bufferevent_getfd(conn->stream), FIONREAD, &unread) != 0)
        unread = 0;
    return unread == 0 && !has_client_hello(conn);
}

static void evict_excess(struct https_server *server, int64_t now_ms)
{
    /* Lists the strangers, newest first. */
    struct http_server_conn *conn;
    int n = 0, room = server->strangers_max + 2 * BURST_MAX;
    int64_t new_ms = NEW_MS + HELLO_LAG_FACTOR * loop_lag_worst(&server->lag, now_ms);
    TAILQ_FOREACH_REVERSE(conn, http_server_conns(server->http), http_server_conns, link)
    {
        if (conn->is_admitted || conn->is_shut || n == room)
            continue;
        server->strangers[n] = conn;
        server->slots[n++] =
            (struct conn_limit_slot){.from = listener_peer_network(bufferevent_getfd(conn->stream)),
                                     .since_ms = conn->since_ms,
                                     .is_silent = is_silent(conn),
                                     .is_new = now_ms - conn->since_ms < new_ms};
    }
    int evicted_n = conn_limit_evict(server->slots, n, server->strangers_max,
                                     server->strangers_per_address_max);
    if (evicted_n == 0)
        return;
    server->evicted_n += evicted_n;
    server->full_ms = now_ms;
    char peer[80];
    int held, most = conn_limit_busiest(server->slots, n, &held);
    if (most >= 0 &&
        (server->warned_full_ms == 0 || !(now_ms - server->warned_full_ms < LOG_FULL_EVERY_MS))) {
        server->warned_full_ms = now_ms;
        listener_peer(bufferevent_getfd(server->strangers[most]->stream), peer, sizeof(peer));
        LOG_WARN(
            "too many connections without the job's key: %d to MASTER_PORT=%d, %d of them from one "
            "address (%s); silent ones are closed, oldest first (%lld so far)",
            n, server->config.port, held, peer, (long long)server->evicted_n);
    }
    for (int i = 0; i < n; i++)
        if (server->slots[i].is_evicted)
            http_server_shut(server->strangers[i]);
}

static void on_sweep(void *arg, bool is_timer)
{
    struct https_server *server = arg;
    int64_t now_ms = clock_ms();
    if (server->ctx != NULL) {
        /* Shut connections that have not sent a TLS hello in time. */
        struct http_server_conn *conn;
        int64_t hello_ms = HELLO_MS + HELLO_LAG_FACTOR * loop_lag_worst(&server->lag, now_ms);
        TAILQ_FOREACH(conn, http_server_conns(server->http), link)
        if (!conn->is_admitted && !conn->is_shut && now_ms - conn->since_ms > hello_ms &&
            is_silent(conn))
            http_server_shut(conn);
    }
    if (http_server_strangers_n(server->http) > STRANGERS_PER_ADDRESS_MAX)
        evict_excess(server, now_ms);
    if (!is_timer)
        server->burst_n = 0;
}

/* Counts an accepted connection. After a burst no connection is accepted until the bytes that came
 * with it are read. */
static void on_accept(void *arg)
{
    struct https_server *server = arg;
    if (++server->burst_n < BURST_MAX)
        return;
    bool was_full = server->full_ms != 0 && clock_ms() - server->full_ms < LOG_EVERY_MS;
    bool is_crowded = was_full || http_server_strangers_n(server->http) > server->strangers_max;
    http_server_pause(server->http, is_crowded ? PAUSE_MS : 0);
}

/* ---- requests ---- */

static void on_close(struct evhttp_connection *connection, void *arg)
{
    struct http_server_conn *conn = arg;
    struct https_server *server = conn->arg;
    (void)connection;
    server->config.on_disconnect(server->config.arg, conn->stream);
}

/* Keeps reading while a request is unanswered, so that the end of the connection is noticed. evhttp
 * stops reading then, and aborts the process if bytes arrive nevertheless: so its read callback is
 * removed here, and evhttp sets it again with the answer. */
static void watch_for_close(struct bufferevent *stream)
{
    bufferevent_data_cb read_cb, write_cb;
    bufferevent_event_cb event_cb;
    void *arg;
    bufferevent_getcb(stream, &read_cb, &write_cb, &event_cb, &arg);
    bufferevent_setcb(stream, NULL, write_cb, event_cb, arg);
    bufferevent_enable(stream, EV_READ);
}

static void on_request(void *arg, struct evhttp_request *request, struct http_server_conn *conn)
{
    struct https_server *server = arg;
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *path = uri != NULL ? evhttp_uri_get_path(uri) : NULL;
    size_t n = evbuffer_get_length(body);
    const char *fault = http_request_fault(evhttp_request_get_input_headers(request), 1);
    if (conn == NULL || path == NULL || fault != NULL ||
        evhttp_request_get_command(request) != EVHTTP_REQ_POST || n == 0) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
        evhttp_send_reply(request, 400, "Bad Request", NULL);
        return;
    }
    if (!conn->is_admitted) {
        /* TLS has proved the key, and a request is complete. */
        struct evhttp_connection *connection = evhttp_request_get_connection(request);
        const int fd = bufferevent_getfd(conn->stream), on = 1;
        http_server_admit(server->http, conn);
        keepalive_set(fd);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        evhttp_connection_set_closecb(connection, on_close, conn);
    }
    watch_for_close(conn->stream);
    const char *bytes = (const char *)evbuffer_pullup(body, -1);
    server->config.on_request(server->config.arg, (struct https_server_request *)request, path,
                              bytes, n);
}

const void *https_server_connection(struct https_server_request *request)
{
    struct evhttp_connection *connection =
        evhttp_request_get_connection((struct evhttp_request *)request);
    return connection != NULL ? evhttp_connection_get_bufferevent(connection) : NULL;
}

void https_server_peer(struct https_server_request *request, char *out, size_t cap)
{
    struct evhttp_connection *connection =
        evhttp_request_get_connection((struct evhttp_request *)request);
    char *address = NULL;
    ev_uint16_t port;
    out[0] = 0;
    if (connection != NULL)
        evhttp_connection_get_peer(connection, &address, &port);
    if (address != NULL)
        text_copy(out, cap, address);
}

void https_server_local(struct https_server_request *request, char *out, size_t cap)
{
    struct evhttp_connection *connection =
        evhttp_request_get_connection((struct evhttp_request *)request);
    out[0] = 0;
    if (connection != NULL)
        listener_local(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)), out, cap);
}

void https_server_respond(struct https_server_request *request, int code, struct evbuffer *body)
{
    struct evhttp_request *http = (struct evhttp_request *)request;
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);
    if (code == 200)
        evhttp_add_header(headers, "Content-Type", "application/json");
    evhttp_send_reply(http, code, code == 200 ? "OK" : "Refused", body);
}

void https_server_respond_bytes(struct https_server_request *request, struct evbuffer *body)
{
    struct evhttp_request *http = (struct evhttp_request *)request;
    evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Type",
                      "application/octet-stream");
    evhttp_send_reply(http, 200, "OK", body);
}

/* ---- refusals ---- */

static void on_tls(const SSL *ssl, int where, int alert)
{
    struct https_server *server = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    char peer[80];
    int64_t now_ms = clock_ms();
    if ((where & SSL_CB_WRITE_ALERT) != SSL_CB_WRITE_ALERT || alert >> 8 != SSL3_AL_FATAL)
        return;
    server->unreported_n++;
    if (server->refusal_logged_ms != 0 && now_ms - server->refusal_logged_ms < LOG_EVERY_MS)
        return;
    listener_peer(SSL_get_fd(ssl), peer, sizeof(peer));
    LOG_WARN("not admitted: %s (%s)%s; %s", peer, SSL_alert_desc_string_long(alert),
             server->unreported_n > 1 ? ", and others before" : "",
             psk_is_other_version(ssl)
                 ? "a convoy node of another version: run the same version on all nodes"
                 : "another JOB_TOKEN, or not a convoy node");
    server->refusal_logged_ms = now_ms;
    server->unreported_n = 0;
}

void https_server_strangers(const struct https_server *server, struct https_server_strangers *out)
{
    bool is_full = server->full_ms != 0 && clock_ms() - server->full_ms < LOG_FULL_EVERY_MS;
    *out = (struct https_server_strangers){.strangers_n = http_server_strangers_n(server->http),
                                           .is_full = is_full,
                                           .turned_away = server->evicted_n};
}

/* ---- life ---- */

static enum status start_server(struct https_server *server, int fd)
{
    const struct https_server_config *config = &server->config;
    const struct http_server_config http = {.name = "node 0's server for the other nodes",
                                            .loop = config->loop,
                                            .tls = server->ctx,
                                            .lag = &server->lag,
                                            .header_bytes_max = HEADER_BYTES,
                                            .body_bytes_max = config->body_bytes_max,
                                            .read_bytes_max = 2 * config->body_bytes_max,
                                            .request_ms = STRANGER_MS,
                                            .idle_s = IDLE_S,
                                            .sweep_ms = SWEEP_MS,
                                            .methods = EVHTTP_REQ_POST,
                                            .on_accept = on_accept,
                                            .on_sweep = on_sweep,
                                            .on_request = on_request,
                                            .arg = server};
    loop_lag_init(&server->lag, clock_ms());
    return http_server_open(&http, fd, &server->http);
}

/* Raises the limit of open files. A node has at most three connections (heartbeat, update, world)
 * and one for each worker that fetches data. The usual soft limit of 1,024 files would stop at 160
 * nodes of one worker. */
static void raise_file_limit(int nodes_n, int workers_n)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)nodes_n * (rlim_t)(3 + workers_n) + 4 * STRANGERS_MAX + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    if (limit.rlim_cur < want || setrlimit(RLIMIT_NOFILE, &limit) != 0)
        LOG_WARN("only %llu open files are allowed, and %d nodes of %d workers may need %llu; "
                 "raise the limit (ulimit -n)",
                 (unsigned long long)limit.rlim_cur, nodes_n, workers_n, (unsigned long long)want);
}

static enum status open_tls(struct https_server *server)
{
    if (server->config.psk->is_none) {
        LOG_WARN("JOB_TOKEN=none: any process that reaches %s:%d may join, and messages between "
                 "nodes can be read and changed",
                 server->config.addr, server->config.port);
        return ST_OK;
    }
    server->ctx = psk_new_server_ctx(server->config.psk);
    if (server->ctx == NULL)
        return ST_NO_DEVICE;
    SSL_CTX_set_app_data(server->ctx, server);
    SSL_CTX_set_info_callback(server->ctx, on_tls);
    return ST_OK;
}

enum status https_server_open(const struct https_server_config *config, struct https_server **out)
{
    int fd = -1;
    struct https_server *server = memory_new(1, sizeof(*server));
    server->config = *config;
    server->strangers_max = STRANGERS_MAX + 3 * config->nodes_n;
    server->strangers_per_address_max = STRANGERS_PER_ADDRESS_MAX + 2 * config->nodes_n;
    const size_t n = (size_t)server->strangers_max + 2 * BURST_MAX;
    server->slots = memory_new(n, sizeof(*server->slots));
    server->strangers = memory_new(n, sizeof(*server->strangers));
    raise_file_limit(config->nodes_n, config->workers_n);
    enum status st;
    TRY_OR(open_tls(server), close);
    TRY_OR(config->is_towards ? listener_open_towards(config->addr, &fd)
                              : listener_open(config->addr, config->port, &fd),
           close);
    server->config.port = listener_port(fd);
    TRY_OR(start_server(server, fd), close);
    *out = server;
    return ST_OK;
close:
    https_server_close(server);
    return st;
}

int https_server_port(const struct https_server *server) { return server->config.port; }

void https_server_close(struct https_server *server)
{
    if (server == NULL)
        return;
    http_server_close(server->http);
    SSL_CTX_free(server->ctx);
    free(server->slots);
    free(server->strangers);
    free(server);
}
