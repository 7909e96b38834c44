/* porter — see porter.h. Must not know what is said inside.
 *
 * evhttp has neither a limit on connections nor a deadline for a first request, so each stream is
 * kept in a list with a reference of ours (as in serve.c): a sweep lets go of those that evhttp has
 * freed and shuts those that are late. Nothing waits at the door for others: all are accepted,
 * BURST_MAX in a turn of the loop, and where there are too many strangers the silent ones are shut,
 * oldest first (crowd.h). So a node that says its hello at once is heard, however many say
 * nothing. */
#include "meet/porter.h"

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
#include "base/request.h"
#include "meet/alive.h"
#include "meet/crowd.h"
#include "meet/doorstep.h"
#include "meet/late.h"
#include "meet/wire.h"

#define STRANGERS_MAX 128 /* and three connections of each node, which may all come at once */
/* silent ones of one address, that had time to speak; and two connections of each node */
#define STRANGERS_EACH 32
#define NEW_MS 250       /* … which takes so long where hosts are not busy */
#define STRANGER_MS 5000 /* to send a request */
#define HELLO_MS 1000    /* to say hello, which proves the key */
#define HELLO_GRACE 4    /* times what this process was late lately comes to that */
#define BURST_MAX 64     /* connections taken in a turn of the loop */
/* between such turns, while strangers throng: others than they need the processor, too */
#define REST_MS 20
#define HEADER_BYTES 4096
#define IDLE_S 20
#define SWEEP_MS 100
#define SAY_MS 1000 /* refusals are told once a second */
#define SAY_FULL_MS 10000

struct seat {
    struct porter *porter;
    struct seat *next;
    struct bufferevent *stream;
    int64_t since_ms; /* it came; later by what this process stood still */
    bool is_guest;    /* showed the key and sent a request */
    bool is_shut;
};

struct porter {
    struct porter_config config;
    SSL_CTX *ctx; /* NULL: plain */
    struct evhttp *http;
    struct evconnlistener *listener;
    struct event *sweep, *soon;
    struct seat *seats;
    int strangers_n, strangers_max, strangers_each, burst_n;
    struct crowd_place *places; /* of thin: of strangers_max, and what bursts bring beyond it */
    struct seat **strangers;
    struct late late; /* this process: others of a busy host are as late with their hello */
    /* full_ms: when one was last shut for want of room; 0: never */
    int64_t full_ms, said_full_ms, out_n;
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

/* has_said_hello — its first message is in, and the key was right: TLS 1.3 proves it there. Without
 * a key: bytes came. */
static bool has_said_hello(const struct seat *seat)
{
    const SSL *ssl = bufferevent_openssl_get_ssl(seat->stream);
    if (ssl == NULL)
        return evbuffer_get_length(bufferevent_get_input(seat->stream)) > 0;
    OSSL_HANDSHAKE_STATE at = SSL_get_state(ssl);
    return at != TLS_ST_BEFORE && at != TLS_ST_SR_CLNT_HELLO;
}

/* is_silent — nothing has come, and nothing is waiting to be read. */
static bool is_silent(const struct seat *seat)
{
    int waiting = 0;
    if (ioctl(bufferevent_getfd(seat->stream), FIONREAD, &waiting) != 0)
        waiting = 0;
    return waiting == 0 && !has_said_hello(seat);
}

static void shut(struct seat *seat)
{
    shutdown(bufferevent_getfd(seat->stream), SHUT_RDWR); /* evhttp frees it when it sees the end */
    seat->is_shut = true;
}

static bool is_late(const struct seat *seat, int64_t now_ms)
{
    int64_t here_ms = now_ms - seat->since_ms;
    int64_t hello_ms = HELLO_MS + HELLO_GRACE * late_worst(&seat->porter->late, now_ms);
    return here_ms > STRANGER_MS ||
           (here_ms > hello_ms && seat->porter->ctx != NULL && is_silent(seat));
}

/* let_go_all — of those that have ended. */
static void let_go_all(struct porter *porter)
{
    struct seat **at = &porter->seats;
    while (*at != NULL) {
        if (is_freed((*at)->stream))
            let_go(porter, at);
        else
            at = &(*at)->next;
    }
}

static void say_full(struct porter *porter, const struct crowd_place *places,
                     struct seat *const *seats, int n, int64_t now_ms)
{
    char peer[80];
    int held, most = crowd_most(places, n, &held);
    if (most < 0 || (porter->said_full_ms != 0 && now_ms - porter->said_full_ms < SAY_FULL_MS))
        return;
    porter->said_full_ms = now_ms;
    doorstep_peer(bufferevent_getfd(seats[most]->stream), peer, sizeof(peer));
    LOG_WARN("the door is full: %d connections to MASTER_PORT=%d have not shown the job's key, %d "
             "of them from one address (%s); silent ones are closed, oldest first (%lld so far)",
             n, porter->config.port, held, peer, (long long)porter->out_n);
}

/* thin — strangers in excess lose their places. */
static void thin(struct porter *porter, int64_t now_ms)
{
    struct crowd_place *places = porter->places;
    struct seat **seats = porter->strangers;
    int n = 0, room = porter->strangers_max + 2 * BURST_MAX;
    int64_t new_ms = NEW_MS + HELLO_GRACE * late_worst(&porter->late, now_ms);
    for (struct seat *seat = porter->seats; seat != NULL && n < room; seat = seat->next) {
        if (seat->is_guest || seat->is_shut)
            continue;
        seats[n] = seat;
        places[n++] = (struct crowd_place){.from = doorstep_from(bufferevent_getfd(seat->stream)),
                                           .since_ms = seat->since_ms,
                                           .is_silent = is_silent(seat),
                                           .is_new = now_ms - seat->since_ms < new_ms};
    }
    int out_n = crowd_thin(places, n, porter->strangers_max, porter->strangers_each);
    if (out_n == 0)
        return;
    porter->out_n += out_n;
    porter->full_ms = now_ms;
    say_full(porter, places, seats, n, now_ms);
    for (int i = 0; i < n; i++)
        if (places[i].is_out)
            shut(seats[i]);
}

static void sweep(struct porter *porter)
{
    int64_t now_ms = clock_ms(), late_ms = late_tick(&porter->late, now_ms);
    let_go_all(porter);
    for (struct seat *seat = porter->seats; seat != NULL; seat = seat->next) {
        /* what came while we stood still was not read: that is no silence of theirs */
        if (late_ms > 0)
            seat->since_ms += late_ms;
        if (!seat->is_guest && !seat->is_shut && is_late(seat, now_ms))
            shut(seat);
    }
    if (porter->strangers_n > STRANGERS_EACH)
        thin(porter, now_ms);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    sweep(arg);
}

/* on_soon — after a burst: what came with it has been read meanwhile. */
static void on_soon(evutil_socket_t fd, short what, void *arg)
{
    struct porter *porter = arg;
    on_sweep(fd, what, arg);
    porter->burst_n = 0;
    evconnlistener_enable(porter->listener);
}

static void rest(struct porter *porter)
{
    bool is_full = porter->full_ms != 0 && clock_ms() - porter->full_ms < SAY_MS;
    bool is_thronged = is_full || porter->strangers_n >= porter->strangers_max;
    struct timeval in = {.tv_usec = is_thronged ? REST_MS * 1000 : 0};
    evconnlistener_disable(porter->listener);
    event_add(porter->soon, &in);
}

static struct bufferevent *new_stream(struct porter *porter, struct event_base *loop)
{
    if (porter->ctx == NULL)
        return bufferevent_socket_new(loop, -1, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = SSL_new(porter->ctx);
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
    struct porter *porter = arg;
    if (++porter->burst_n >= BURST_MAX)
        rest(porter);
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
    *seat = (struct seat){
        .porter = porter, .next = porter->seats, .stream = stream, .since_ms = clock_ms()};
    porter->seats = seat;
    porter->strangers_n++;
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
}

/* evhttp stops reading while a request is being answered, and ends the process when bytes come
 * nevertheless. So that the end of the connection is noticed it must read; what comes waits for
 * evhttp's own callback, which it sets again with the answer. */
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
    const char *fault = request_fault(evhttp_request_get_input_headers(request), 1);
    if (seat == NULL || path == NULL || fault != NULL ||
        evhttp_request_get_command(request) != EVHTTP_REQ_POST || n == 0) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
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
    struct evhttp_connection *connection =
        evhttp_request_get_connection((struct evhttp_request *)request);
    return connection != NULL ? evhttp_connection_get_bufferevent(connection) : NULL;
}

void porter_peer(struct porter_request *request, char *out, size_t cap)
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
    evhttp_add_header(evhttp_request_get_output_headers(http), "Content-Type",
                      "application/octet-stream");
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

void porter_crowd(const struct porter *porter, struct meet_door *out)
{
    bool is_full = porter->full_ms != 0 && clock_ms() - porter->full_ms < SAY_FULL_MS;
    *out = (struct meet_door){
        .strangers_n = porter->strangers_n, .is_full = is_full, .turned_away = porter->out_n};
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
    porter->soon = event_new(loop, -1, 0, on_soon, porter);
    late_init(&porter->late, clock_ms());
    if (porter->sweep == NULL || porter->soon == NULL || event_add(porter->sweep, &every) != 0)
        return FAIL(ST_RETRY, "out of memory: the timer of the door");
    return ST_OK;
}

/* Connections of a node at most: beat, news, world, and one of each worker that takes data. The
 * usual soft limit of 1,024 files would stop at 160 nodes of one worker. */
static void allow_files(int nodes_n, int workers_n)
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

static enum status take_room(struct porter *porter)
{
    porter->strangers_max = STRANGERS_MAX + 3 * porter->config.nodes_n;
    porter->strangers_each = STRANGERS_EACH + 2 * porter->config.nodes_n;
    size_t n = (size_t)porter->strangers_max + 2 * BURST_MAX;
    porter->places = calloc(n, sizeof(*porter->places));
    porter->strangers = calloc(n, sizeof(struct seat *));
    if (porter->places == NULL || porter->strangers == NULL)
        return FAIL(ST_RETRY, "out of memory: the door for %d nodes", porter->config.nodes_n);
    return ST_OK;
}

static enum status open_tls(struct porter *porter)
{
    if (porter->config.secret->is_none) {
        LOG_WARN("JOB_TOKEN=none: whoever reaches %s:%d may join, and what the nodes say can be "
                 "read and changed",
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
    TRY_OR(take_room(porter), close);
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
    if (porter->soon != NULL)
        event_free(porter->soon);
    if (porter->http != NULL)
        evhttp_free(porter->http); /* and the listener and all connections with it */
    while (porter->seats != NULL)
        let_go(porter, &porter->seats);
    SSL_CTX_free(porter->ctx);
    free(porter->places);
    free(porter->strangers);
    free(porter);
}
