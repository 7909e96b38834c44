/* https_server — see https_server.h. Must not know what is said inside.
 *
 * evhttp has neither a limit on connections nor a deadline for a first request, so each stream is
 * kept in a list with a reference of ours (as in serve.c): a sweep lets go of those that evhttp has
 * freed and shuts those that are late. Nothing waits at the door for others: all are accepted,
 * BURST_MAX in a turn of the loop, and where there are too many strangers the silent ones are
 * shut_down, oldest first (conn_limit.h). So a node that says its hello at once is heard, however
 * many say nothing. */
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
#include <event2/listener.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/http_request.h"
#include "net/keepalive.h"
#include "net/conn_limit.h"
#include "net/listener.h"
#include "net/loop_lag.h"
#include "cluster/message.h"

#define STRANGERS_MAX 128 /* and three connections of each node, which may all come at once */
/* silent ones of one address, that had time to speak; and two connections of each node */
#define STRANGERS_PER_ADDRESS_MAX 32
#define NEW_MS 250         /* … which takes so long where hosts are not busy */
#define STRANGER_MS 5000   /* to send a request */
#define HELLO_MS 1000      /* to say hello, which proves the key */
#define HELLO_LAG_FACTOR 4 /* times what this process was late lately comes to that */
#define BURST_MAX 64       /* connections taken in a turn of the loop */
/* between such turns, while strangers throng: others than they need the processor, too */
#define PAUSE_MS 20
#define HEADER_BYTES 4096
#define IDLE_S 20
#define SWEEP_MS 100
#define LOG_EVERY_MS 1000 /* refusals are told once a second */
#define LOG_FULL_EVERY_MS 10000

struct client {
    struct https_server *server;
    struct client *next;
    struct bufferevent *stream;
    int64_t since_ms;      /* it came; later by what this process stood still */
    bool is_authenticated; /* showed the key and sent a request */
    bool is_shut;
};

struct https_server {
    struct https_server_config config;
    SSL_CTX *ctx; /* NULL: plain */
    struct evhttp *http;
    struct evconnlistener *listener;
    struct event *sweep, *resume;
    struct client *clients;
    int strangers_n, strangers_max, strangers_per_address_max, burst_n;
    struct conn_limit_slot
        *slots; /* of evict_excess: of strangers_max, and what bursts bring beyond it */
    struct client **strangers;
    struct loop_lag late; /* this process: others of a busy host are as late with their hello */
    /* full_ms: when one was last shut_down for want of room; 0: never */
    int64_t full_ms, warned_full_ms, out_n;
    int64_t refusal_logged_ms;
    int unreported_n;
};

/* ---- who is inside ---- */

/* evhttp takes its callbacks off a bufferevent only when it frees it. */
static bool is_freed(struct bufferevent *stream)
{
    bufferevent_data_cb read_cb, write_cb;
    bufferevent_event_cb event_cb;
    void *arg;
    bufferevent_getcb(stream, &read_cb, &write_cb, &event_cb, &arg);
    return event_cb == NULL;
}

static void release(struct https_server *server, struct client **at)
{
    struct client *client = *at;
    *at = client->next;
    server->strangers_n -= !client->is_authenticated;
    bufferevent_decref(client->stream);
    free(client);
}

/* has_client_hello — its first message is in, and the key was right: TLS 1.3 proves it there.
 * Without a key: bytes came. */
static bool has_client_hello(const struct client *client)
{
    const SSL *ssl = bufferevent_openssl_get_ssl(client->stream);
    if (ssl == NULL)
        return evbuffer_get_length(bufferevent_get_input(client->stream)) > 0;
    OSSL_HANDSHAKE_STATE at = SSL_get_state(ssl);
    return at != TLS_ST_BEFORE && at != TLS_ST_SR_CLNT_HELLO;
}

/* is_silent — nothing has come, and nothing is waiting to be read. */
static bool is_silent(const struct client *client)
{
    int waiting = 0;
    if (ioctl(bufferevent_getfd(client->stream), FIONREAD, &waiting) != 0)
        waiting = 0;
    return waiting == 0 && !has_client_hello(client);
}

static void shut_down(struct client *client)
{
    /* evhttp frees it when it sees the end */
    shutdown(bufferevent_getfd(client->stream), SHUT_RDWR);
    client->is_shut = true;
}

static bool is_late(const struct client *client, int64_t now_ms)
{
    int64_t here_ms = now_ms - client->since_ms;
    int64_t hello_ms = HELLO_MS + HELLO_LAG_FACTOR * loop_lag_worst(&client->server->late, now_ms);
    return here_ms > STRANGER_MS ||
           (here_ms > hello_ms && client->server->ctx != NULL && is_silent(client));
}

/* release_closed — of those that have ended. */
static void release_closed(struct https_server *server)
{
    struct client **at = &server->clients;
    while (*at != NULL) {
        if (is_freed((*at)->stream))
            release(server, at);
        else
            at = &(*at)->next;
    }
}

static void warn_full(struct https_server *server, const struct conn_limit_slot *slots,
                      struct client *const *clients, int n, int64_t now_ms)
{
    char peer[80];
    int held, most = conn_limit_busiest(slots, n, &held);
    if (most < 0 ||
        (server->warned_full_ms != 0 && now_ms - server->warned_full_ms < LOG_FULL_EVERY_MS))
        return;
    server->warned_full_ms = now_ms;
    listener_peer(bufferevent_getfd(clients[most]->stream), peer, sizeof(peer));
    LOG_WARN("the door is full: %d connections to MASTER_PORT=%d have not shown the job's key, %d "
             "of them from one address (%s); silent ones are closed, oldest first (%lld so far)",
             n, server->config.port, held, peer, (long long)server->out_n);
}

/* evict_excess — strangers in excess lose their slots. */
static void evict_excess(struct https_server *server, int64_t now_ms)
{
    struct conn_limit_slot *slots = server->slots;
    struct client **clients = server->strangers;
    int n = 0, room = server->strangers_max + 2 * BURST_MAX;
    int64_t new_ms = NEW_MS + HELLO_LAG_FACTOR * loop_lag_worst(&server->late, now_ms);
    for (struct client *client = server->clients; client != NULL && n < room;
         client = client->next) {
        if (client->is_authenticated || client->is_shut)
            continue;
        clients[n] = client;
        slots[n++] = (struct conn_limit_slot){
            .from = listener_peer_network(bufferevent_getfd(client->stream)),
            .since_ms = client->since_ms,
            .is_silent = is_silent(client),
            .is_new = now_ms - client->since_ms < new_ms};
    }
    int out_n =
        conn_limit_evict(slots, n, server->strangers_max, server->strangers_per_address_max);
    if (out_n == 0)
        return;
    server->out_n += out_n;
    server->full_ms = now_ms;
    warn_full(server, slots, clients, n, now_ms);
    for (int i = 0; i < n; i++)
        if (slots[i].is_evicted)
            shut_down(clients[i]);
}

static void sweep(struct https_server *server)
{
    int64_t now_ms = clock_ms(), late_ms = loop_lag_tick(&server->late, now_ms);
    release_closed(server);
    for (struct client *client = server->clients; client != NULL; client = client->next) {
        /* what came while we stood still was not read: that is no silence of theirs */
        if (late_ms > 0)
            client->since_ms += late_ms;
        if (!client->is_authenticated && !client->is_shut && is_late(client, now_ms))
            shut_down(client);
    }
    if (server->strangers_n > STRANGERS_PER_ADDRESS_MAX)
        evict_excess(server, now_ms);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    sweep(arg);
}

/* on_resume — after a burst: what came with it has been read meanwhile. */
static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct https_server *server = arg;
    on_sweep(fd, what, arg);
    server->burst_n = 0;
    evconnlistener_enable(server->listener);
}

static void pause_accepting(struct https_server *server)
{
    bool is_full = server->full_ms != 0 && clock_ms() - server->full_ms < LOG_EVERY_MS;
    bool is_crowded = is_full || server->strangers_n >= server->strangers_max;
    struct timeval in = {.tv_usec = is_crowded ? PAUSE_MS * 1000 : 0};
    evconnlistener_disable(server->listener);
    event_add(server->resume, &in);
}

static struct bufferevent *new_stream(struct https_server *server, struct event_base *loop)
{
    if (server->ctx == NULL)
        return bufferevent_socket_new(loop, -1, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = SSL_new(server->ctx);
    if (ssl == NULL)
        return NULL;
    struct bufferevent *stream = bufferevent_openssl_socket_new(
        loop, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (stream == NULL)
        SSL_free(ssl);
    else
        bufferevent_openssl_set_allow_dirty_shutdown(stream, 1);
    return stream;
}

/* Called by evhttp for each connection it accepted. NULL makes it use a plain stream of its own:
 * with a secret that must not be, so a request that comes by one is refused. */
static struct bufferevent *open_stream(struct event_base *loop, void *arg)
{
    struct https_server *server = arg;
    if (++server->burst_n >= BURST_MAX)
        pause_accepting(server);
    struct client *client = calloc(1, sizeof(*client));
    struct bufferevent *stream = client != NULL ? new_stream(server, loop) : NULL;
    if (stream == NULL) {
        free(client);
        return NULL;
    }
    bufferevent_setwatermark(stream, EV_READ, 0, 2 * MESSAGE_BODY_MAX);
    bufferevent_incref(stream);
    if (server->ctx != NULL)
        SSL_set_app_data(bufferevent_openssl_get_ssl(stream), client);
    *client = (struct client){
        .server = server, .next = server->clients, .stream = stream, .since_ms = clock_ms()};
    server->clients = client;
    server->strangers_n++;
    return stream;
}

/* ---- requests ---- */

static struct client *client_of(struct https_server *server, struct evhttp_connection *connection)
{
    struct bufferevent *stream = evhttp_connection_get_bufferevent(connection);
    SSL *ssl = bufferevent_openssl_get_ssl(stream);
    struct client *client = server->clients;
    if (server->ctx != NULL)
        return ssl != NULL ? SSL_get_app_data(ssl) : NULL;
    while (client != NULL && client->stream != stream)
        client = client->next;
    return client;
}

static void on_close(struct evhttp_connection *connection, void *arg)
{
    struct client *client = arg;
    (void)connection;
    client->server->config.on_disconnect(client->server->config.arg, client->stream);
}

static void set_socket(int fd)
{
    const int on = 1;
    keepalive_set(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void mark_authenticated(struct https_server *server, struct client *client,
                               struct evhttp_connection *connection)
{
    client->is_authenticated = true;
    server->strangers_n--;
    set_socket(bufferevent_getfd(client->stream));
    evhttp_connection_set_closecb(connection, on_close, client);
}

/* evhttp stops reading while a request is being answered, and ends the process when bytes come
 * nevertheless. So that the end of the connection is noticed it must read; what comes waits for
 * evhttp's own callback, which it sets again with the answer. */
static void watch_for_close(struct bufferevent *stream)
{
    bufferevent_data_cb read_cb, write_cb;
    bufferevent_event_cb event_cb;
    void *arg;
    bufferevent_getcb(stream, &read_cb, &write_cb, &event_cb, &arg);
    bufferevent_setcb(stream, NULL, write_cb, event_cb, arg);
    bufferevent_enable(stream, EV_READ);
}

static void on_request(struct evhttp_request *request, void *arg)
{
    struct https_server *server = arg;
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    struct client *client = client_of(server, connection);
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *path = uri != NULL ? evhttp_uri_get_path(uri) : NULL;
    size_t n = evbuffer_get_length(body);
    const char *fault = http_request_fault(evhttp_request_get_input_headers(request), 1);
    if (client == NULL || path == NULL || fault != NULL ||
        evhttp_request_get_command(request) != EVHTTP_REQ_POST || n == 0) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
        evhttp_send_reply(request, 400, "Bad Request", NULL);
        return;
    }
    if (!client->is_authenticated)
        mark_authenticated(server, client, connection);
    watch_for_close(client->stream);
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

/* ---- refusals, told to people ---- */

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
    LOG_WARN("not admitted: %s (%s)%s; another JOB_TOKEN, or not a convoy node", peer,
             SSL_alert_desc_string_long(alert),
             server->unreported_n > 1 ? ", and others before" : "");
    server->refusal_logged_ms = now_ms;
    server->unreported_n = 0;
}

void https_server_strangers(const struct https_server *server, struct https_server_strangers *out)
{
    bool is_full = server->full_ms != 0 && clock_ms() - server->full_ms < LOG_FULL_EVERY_MS;
    *out = (struct https_server_strangers){
        .strangers_n = server->strangers_n, .is_full = is_full, .turned_away = server->out_n};
}

/* ---- life ---- */

static void set_limits(struct https_server *server)
{
    evhttp_set_max_headers_size(server->http, HEADER_BYTES);
    evhttp_set_max_body_size(server->http, (ev_ssize_t)MESSAGE_BODY_MAX);
    evhttp_set_timeout(server->http, IDLE_S);
    evhttp_set_allowed_methods(server->http, EVHTTP_REQ_POST);
    evhttp_set_bevcb(server->http, open_stream, server);
    evhttp_set_gencb(server->http, on_request, server);
}

static enum status start(struct https_server *server, int fd)
{
    static const struct timeval every = {.tv_usec = SWEEP_MS * 1000};
    struct event_base *loop = server->config.loop;
    server->listener =
        evconnlistener_new(loop, NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (server->listener == NULL) {
        evutil_closesocket(fd);
        return FAIL(ST_RETRY, "out of memory: the listener for the other nodes");
    }
    server->http = evhttp_new(loop);
    if (server->http == NULL || evhttp_bind_listener(server->http, server->listener) == NULL) {
        evconnlistener_free(server->listener);
        return FAIL(ST_RETRY, "out of memory: the server for the other nodes");
    }
    set_limits(server);
    server->sweep = event_new(loop, -1, EV_PERSIST, on_sweep, server);
    server->resume = event_new(loop, -1, 0, on_resume, server);
    loop_lag_init(&server->late, clock_ms());
    if (server->sweep == NULL || server->resume == NULL || event_add(server->sweep, &every) != 0)
        return FAIL(ST_RETRY, "out of memory: the timer of the door");
    return ST_OK;
}

/* Connections of a node at most: beat, news, world, and one of each worker that takes data. The
 * usual soft limit of 1,024 files would stop at 160 nodes of one worker. */
static void raise_file_limit(int nodes_n, int workers_n)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)nodes_n * (rlim_t)(3 + workers_n) + 4 * STRANGERS_MAX + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    if (limit.rlim_cur < want || setrlimit(RLIMIT_NOFILE, &limit) != 0)
        LOG_WARN("only %llu open files are allowed, and %d nodes of %d workers may need %llu; "
                 "raise it (ulimit -n)",
                 (unsigned long long)limit.rlim_cur, nodes_n, workers_n, (unsigned long long)want);
}

static enum status alloc_slots(struct https_server *server)
{
    server->strangers_max = STRANGERS_MAX + 3 * server->config.nodes_n;
    server->strangers_per_address_max = STRANGERS_PER_ADDRESS_MAX + 2 * server->config.nodes_n;
    size_t n = (size_t)server->strangers_max + 2 * BURST_MAX;
    server->slots = calloc(n, sizeof(*server->slots));
    server->strangers = calloc(n, sizeof(struct client *));
    if (server->slots == NULL || server->strangers == NULL)
        return FAIL(ST_RETRY, "out of memory: the door for %d nodes", server->config.nodes_n);
    return ST_OK;
}

static enum status open_tls(struct https_server *server)
{
    if (server->config.psk->is_none) {
        LOG_WARN("JOB_TOKEN=none: whoever reaches %s:%d may join, and what the nodes say can be "
                 "read and changed",
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
    struct https_server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return FAIL(ST_RETRY, "out of memory: the door for the other nodes");
    server->config = *config;
    raise_file_limit(config->nodes_n, config->workers_n);
    enum status st;
    TRY_OR(alloc_slots(server), close);
    TRY_OR(open_tls(server), close);
    TRY_OR(listener_open(config->addr, config->port, &fd), close);
    TRY_OR(start(server, fd), close);
    *out = server;
    return ST_OK;
close:
    https_server_close(server);
    return st;
}

void https_server_close(struct https_server *server)
{
    if (server == NULL)
        return;
    if (server->sweep != NULL)
        event_free(server->sweep);
    if (server->resume != NULL)
        event_free(server->resume);
    if (server->http != NULL)
        evhttp_free(server->http); /* and the listener and all connections with it */
    while (server->clients != NULL)
        release(server, &server->clients);
    SSL_CTX_free(server->ctx);
    free(server->slots);
    free(server->strangers);
    free(server);
}
