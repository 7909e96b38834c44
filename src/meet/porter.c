/* porter — see porter.h. Must not know what is said inside.
 *
 * evhttp has neither a limit on connections nor a deadline for a first request, so each stream is kept in a
 * list with a reference of ours (as in serve.c): a sweep lets go of those that evhttp has freed and shuts those
 * that are late. With 64 strangers inside, the listener rests; others wait in the kernel's queue. */
#include "meet/porter.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
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
#include "meet/alive.h"
#include "meet/doorstep.h"
#include "meet/wire.h"

#define STRANGERS_MAX 64
#define STRANGER_MS 5000
#define HEADER_BYTES 4096
#define IDLE_S 20
#define SWEEP_MS 100
#define SAY_MS 1000 /* refusals are told once a second */

struct seat {
    struct porter *porter;
    struct seat *next;
    struct bufferevent *stream;
    int64_t until_ms; /* a stranger must have sent a request by then */
    bool is_guest;    /* showed the key and sent a request */
};

struct porter {
    struct porter_config config;
    SSL_CTX *ctx; /* NULL: plain */
    struct evhttp *http;
    struct evconnlistener *listener;
    struct event *sweep;
    struct seat *seats;
    int strangers_n;
    int64_t said_ms;
    int unsaid_n;
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

static void let_go(struct porter *porter, struct seat **at)
{
    struct seat *seat = *at;
    *at = seat->next;
    porter->strangers_n -= !seat->is_guest;
    bufferevent_decref(seat->stream);
    free(seat);
}

static void sweep(struct porter *porter)
{
    int64_t now_ms = clock_ms();
    struct seat **at = &porter->seats;
    while (*at != NULL) {
        struct seat *seat = *at;
        if (is_freed(seat->stream)) {
            let_go(porter, at);
            continue;
        }
        if (!seat->is_guest && now_ms > seat->until_ms)
            shutdown(bufferevent_getfd(seat->stream), SHUT_RDWR);
        at = &seat->next;
    }
    if (porter->strangers_n < STRANGERS_MAX)
        evconnlistener_enable(porter->listener);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    sweep(arg);
}

static struct bufferevent *new_stream(struct porter *porter, struct event_base *loop)
{
    if (porter->ctx == NULL)
        return bufferevent_socket_new(loop, -1, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = SSL_new(porter->ctx);
    if (ssl == NULL)
        return NULL;
    struct bufferevent *stream =
        bufferevent_openssl_socket_new(loop, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (stream == NULL)
        SSL_free(ssl);
    else
        bufferevent_openssl_set_allow_dirty_shutdown(stream, 1);
    return stream;
}

/* Called by evhttp for each connection it accepted. NULL makes it use a plain stream of its own: with a secret
 * that must not be, so a request that comes by one is refused. */
static struct bufferevent *open_stream(struct event_base *loop, void *arg)
{
    struct porter *porter = arg;
    if (porter->strangers_n >= STRANGERS_MAX - 1)
        sweep(porter);
    struct seat *seat = calloc(1, sizeof(*seat));
    struct bufferevent *stream = seat != NULL ? new_stream(porter, loop) : NULL;
    if (stream == NULL) {
        free(seat);
        return NULL;
    }
    bufferevent_setwatermark(stream, EV_READ, 0, 2 * WIRE_BODY_MAX);
    bufferevent_incref(stream);
    if (porter->ctx != NULL)
        SSL_set_app_data(bufferevent_openssl_get_ssl(stream), seat);
    *seat = (struct seat){porter, porter->seats, stream, clock_ms() + STRANGER_MS, false};
    porter->seats = seat;
    if (++porter->strangers_n >= STRANGERS_MAX)
        evconnlistener_disable(porter->listener);
    return stream;
}

/* ---- requests ---- */

static struct seat *seat_of(struct porter *porter, struct evhttp_connection *connection)
{
    struct bufferevent *stream = evhttp_connection_get_bufferevent(connection);
    SSL *ssl = bufferevent_openssl_get_ssl(stream);
    struct seat *seat = porter->seats;
    if (porter->ctx != NULL)
        return ssl != NULL ? SSL_get_app_data(ssl) : NULL;
    while (seat != NULL && seat->stream != stream)
        seat = seat->next;
    return seat;
}

static void on_close(struct evhttp_connection *connection, void *arg)
{
    struct seat *seat = arg;
    (void)connection;
    seat->porter->config.on_gone(seat->porter->config.arg, seat->stream);
}

static void set_socket(int fd)
{
    const int on = 1;
    alive_watch(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void admit(struct porter *porter, struct seat *seat, struct evhttp_connection *connection)
{
    seat->is_guest = true;
    porter->strangers_n--;
    set_socket(bufferevent_getfd(seat->stream));
    evhttp_connection_set_closecb(connection, on_close, seat);
    evconnlistener_enable(porter->listener);
}

/* evhttp stops reading while a request is being answered, and ends the process when bytes come nevertheless. So
 * that the end of the connection is noticed it must read; what comes waits for evhttp's own callback, which it
 * sets again with the answer. */
static void listen_while_held(struct bufferevent *stream)
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
    struct porter *porter = arg;
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    struct seat *seat = seat_of(porter, connection);
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *path = uri != NULL ? evhttp_uri_get_path(uri) : NULL;
    size_t n = evbuffer_get_length(body);
    if (seat == NULL || path == NULL || evhttp_request_get_command(request) != EVHTTP_REQ_POST || n == 0) {
        evhttp_send_reply(request, 400, "Bad Request", NULL);
        return;
    }
    if (!seat->is_guest)
        admit(porter, seat, connection);
    listen_while_held(seat->stream);
    const char *bytes = (const char *)evbuffer_pullup(body, -1);
    porter->config.on_request(porter->config.arg, (struct porter_request *)request, path, bytes, n);
}

const void *porter_tag(struct porter_request *request)
{
    struct evhttp_connection *connection = evhttp_request_get_connection((struct evhttp_request *)request);
    return connection != NULL ? evhttp_connection_get_bufferevent(connection) : NULL;
}

void porter_peer(struct porter_request *request, char *out, size_t cap)
{
    struct evhttp_connection *connection = evhttp_request_get_connection((struct evhttp_request *)request);
    char *address = NULL;
    ev_uint16_t port;
    out[0] = 0;
    if (connection != NULL)
        evhttp_connection_get_peer(connection, &address, &port);
    if (address != NULL)
        text_copy(out, cap, address);
}

void porter_answer(struct porter_request *request, int code, struct evbuffer *body)
{
    struct evhttp_request *http = (struct evhttp_request *)request;
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);
    if (code == 200)
        evhttp_add_header(headers, "Content-Type", "application/json");
    evhttp_send_reply(http, code, code == 200 ? "OK" : "Refused", body);
}

void porter_send(struct porter_request *request, struct evbuffer *body)
{
    struct evhttp_request *http = (struct evhttp_request *)request;
    evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Type", "application/octet-stream");
    evhttp_send_reply(http, 200, "OK", body);
}

/* ---- refusals, told to people ---- */

static void on_tls(const SSL *ssl, int where, int alert)
{
    struct porter *porter = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    char peer[80];
    int64_t now_ms = clock_ms();
    if ((where & SSL_CB_WRITE_ALERT) != SSL_CB_WRITE_ALERT || alert >> 8 != SSL3_AL_FATAL)
        return;
    porter->unsaid_n++;
    if (porter->said_ms != 0 && now_ms - porter->said_ms < SAY_MS)
        return;
    doorstep_peer(SSL_get_fd(ssl), peer, sizeof(peer));
    LOG_WARN("not admitted: %s (%s)%s; another JOB_TOKEN, or not a convoy node", peer,
             SSL_alert_desc_string_long(alert), porter->unsaid_n > 1 ? ", and others before" : "");
    porter->said_ms = now_ms;
    porter->unsaid_n = 0;
}

/* ---- life ---- */

static void set_limits(struct porter *porter)
{
    evhttp_set_max_headers_size(porter->http, HEADER_BYTES);
    evhttp_set_max_body_size(porter->http, (ev_ssize_t)WIRE_BODY_MAX);
    evhttp_set_timeout(porter->http, IDLE_S);
    evhttp_set_allowed_methods(porter->http, EVHTTP_REQ_POST);
    evhttp_set_bevcb(porter->http, open_stream, porter);
    evhttp_set_gencb(porter->http, on_request, porter);
}

static enum status start(struct porter *porter, int fd)
{
    static const struct timeval every = {.tv_usec = SWEEP_MS * 1000};
    struct event_base *loop = porter->config.loop;
    porter->listener =
        evconnlistener_new(loop, NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (porter->listener == NULL) {
        evutil_closesocket(fd);
        return FAIL(ST_RETRY, "out of memory: the listener for the other nodes");
    }
    porter->http = evhttp_new(loop);
    if (porter->http == NULL || evhttp_bind_listener(porter->http, porter->listener) == NULL) {
        evconnlistener_free(porter->listener);
        return FAIL(ST_RETRY, "out of memory: the server for the other nodes");
    }
    set_limits(porter);
    porter->sweep = event_new(loop, -1, EV_PERSIST, on_sweep, porter);
    if (porter->sweep == NULL || event_add(porter->sweep, &every) != 0)
        return FAIL(ST_RETRY, "out of memory: the timer of the door");
    return ST_OK;
}

/* Connections of a node at most: beat, news, world, and one of each worker that takes data. The usual soft limit of
 * 1,024 files would stop at 160 nodes of one worker. */
static void allow_files(int nodes_n, int workers_n)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)nodes_n * (rlim_t)(3 + workers_n) + 2 * STRANGERS_MAX + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    if (limit.rlim_cur < want || setrlimit(RLIMIT_NOFILE, &limit) != 0)
        LOG_WARN("only %llu open files are allowed, and %d nodes of %d workers may need %llu; raise it (ulimit -n)",
                 (unsigned long long)limit.rlim_cur, nodes_n, workers_n, (unsigned long long)want);
}

static enum status open_tls(struct porter *porter)
{
    if (porter->config.secret->is_none) {
        LOG_WARN(
            "JOB_TOKEN=none: whoever reaches %s:%d may join, and what the nodes say can be read and changed",
            porter->config.addr, porter->config.port);
        return ST_OK;
    }
    porter->ctx = secret_serve(porter->config.secret);
    if (porter->ctx == NULL)
        return ST_NO_DEVICE;
    SSL_CTX_set_app_data(porter->ctx, porter);
    SSL_CTX_set_info_callback(porter->ctx, on_tls);
    return ST_OK;
}

enum status porter_open(const struct porter_config *config, struct porter **out)
{
    int fd = -1;
    struct porter *porter = calloc(1, sizeof(*porter));
    if (porter == NULL)
        return FAIL(ST_RETRY, "out of memory: the door for the other nodes");
    porter->config = *config;
    allow_files(config->nodes_n, config->workers_n);
    enum status st;
    TRY_OR(open_tls(porter), close);
    TRY_OR(doorstep_listen(config->addr, config->port, &fd), close);
    TRY_OR(start(porter, fd), close);
    *out = porter;
    return ST_OK;
close:
    porter_close(porter);
    return st;
}

void porter_close(struct porter *porter)
{
    if (porter == NULL)
        return;
    if (porter->sweep != NULL)
        event_free(porter->sweep);
    if (porter->http != NULL)
        evhttp_free(porter->http); /* and the listener and all connections with it */
    while (porter->seats != NULL)
        let_go(porter, &porter->seats);
    SSL_CTX_free(porter->ctx);
    free(porter);
}
