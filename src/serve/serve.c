/* serve — evhttp behind limits. Must not know settings, processes or training.
 *
 * evhttp has no limit on connections and only idle time-outs, which a client sending a byte a
 * second never meets. So every connection's bufferevent is kept in a table with a reference of
 * ours: a sweep twice a second lets go of those that evhttp has freed (their callbacks are gone),
 * and shuts those that took too long to send a request, which evhttp then frees by its own path.
 * With the table full the listener rests for a turn of the loop, and the connections longest
 * without a request give up their seats to those that wait: however many sit silent or send a byte
 * at a time, a client that asks is answered (S4 of the reliability plan). A keep-alive client that
 * loses its seat so has to connect again, nothing more. */
#include "serve/serve.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/listener.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "net/http_request.h"
#include "base/text.h"
#include "serve/archive.h"
#include "serve/history.h"
#include "serve/allowed_hosts.h"
#include "serve/journal.h"
#include "serve/route.h"
#include "serve/view.h"

#define SERVE_CONNECTIONS_MAX 64
#define SERVE_HEADER_BYTES 8192
#define SERVE_BODY_BYTES 8192 /* read and dropped, so that a POST gets its 405 instead of a reset */
#define SERVE_REQUEST_MS 5000 /* to send the first request */
#define SERVE_IDLE_MS 10000   /* between requests, and for each read or write */
#define SERVE_SWEEP_MS 500
#define SERVE_SAVE_MS 10000     /* between two writings of the history */
#define SERVE_WATCHED_MS 3000   /* since /status was asked for: somebody is watching */
#define SERVE_POLL_WAIT_MS 1200 /* for that somebody to ask once more; the page does each second */
#define SERVE_POLL_TURN_MS 100
#define SERVE_EVICT_N 8 /* seats given up together when all are taken */
#define SERVE_BACKLOG 512

struct serve_connection {
    struct bufferevent *stream;
    int64_t until_ms; /* the next request must be here by then */
    bool is_shut;
};

struct serve {
    struct serve_config config;
    struct evhttp *http;
    struct evconnlistener *listener;
    struct event *sweep; /* twice a second, with a look for the history */
    struct event *soon;  /* in the next turn of the loop, once */
    int port;
    int64_t status_ms; /* when /status was last asked for; 0: not yet */
    int connections_n;
    /* the one longest without a request first */
    struct serve_connection connections[SERVE_CONNECTIONS_MAX];
    struct view view; /* of the request being answered, or of the last look */
    struct history history;
    struct journal journal;
    uint64_t sample_turn;         /* of the blob read last */
    struct archive *archive;      /* NULL: the history is not kept */
    bool is_restored;             /* what an earlier run has left was taken over, or is not there */
    int64_t saved_ms, saved_step; /* when the history was written last, and of which checkpoint */
    struct allowed_hosts allowed_hosts;
};

/* evhttp takes its callbacks off a bufferevent only when it frees it. */
static bool is_freed(struct bufferevent *stream)
{
    bufferevent_data_cb read_cb, write_cb;
    bufferevent_event_cb event_cb;
    void *arg;
    bufferevent_getcb(stream, &read_cb, &write_cb, &event_cb, &arg);
    return event_cb == NULL;
}

static void shut(struct serve_connection *connection)
{
    if (!connection->is_shut)
        shutdown(bufferevent_getfd(connection->stream), SHUT_RDWR);
    connection->is_shut = true;
}

/* The next turn of the loop sees the end of those that are shut and evhttp frees them; after that
 * comes the timer, and the listener wakes. */
static void evict_idle(struct serve *serve)
{
    static const struct timeval at_once = {0, 0};
    evconnlistener_disable(serve->listener);
    for (int i = 0; i < SERVE_EVICT_N; i++)
        shut(&serve->connections[i]);
    event_add(serve->soon, &at_once);
}

static void sweep(struct serve *serve)
{
    int64_t now_ms = clock_ms();
    int kept_n = 0;
    for (int i = 0; i < serve->connections_n; i++) {
        struct serve_connection *connection = &serve->connections[i];
        if (is_freed(connection->stream)) {
            bufferevent_decref(connection->stream);
            continue;
        }
        if (now_ms > connection->until_ms)
            shut(connection);
        serve->connections[kept_n++] = *connection;
    }
    serve->connections_n = kept_n;
    if (kept_n < SERVE_CONNECTIONS_MAX)
        evconnlistener_enable(serve->listener);
    else
        evict_idle(serve);
}

static void sweep_soon(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    sweep(arg);
}

/* refresh_view — the node as it is now, in serve->view. */
static void refresh_view(struct serve *serve)
{
    view_take(&serve->view, serve->config.board, clock_ms(), clock_wall_ms(),
              serve->config.hang_ms);
    if (serve->config.fill != NULL)
        serve->config.fill(serve->config.fill_arg, &serve->view);
    serve->view.history = &serve->history;
    serve->view.journal = &serve->journal;
    serve->view.settings = serve->config.settings;
}

/* take_sample — "120 \"Once upon a time\"", as rank 0 has posted it. */
static void take_sample(struct serve *serve)
{
    static char blob[BOARD_BLOB_MAX + 1];
    size_t n;
    const uint64_t turn = board_blob_revision(serve->config.board, BOARD_BLOB_SAMPLE);
    if (turn == serve->sample_turn ||
        !board_blob_copy(serve->config.board, BOARD_BLOB_SAMPLE, blob, &n))
        return;
    serve->sample_turn = turn;
    blob[n < BOARD_BLOB_MAX ? n : BOARD_BLOB_MAX] = 0;
    char *blank = strchr(blob, ' ');
    int64_t step = 0;
    if (blank == NULL)
        return;
    *blank = 0;
    cJSON *text = cJSON_Parse(blank + 1);
    if (text_i64(blob, 0, INT64_MAX, &step) == TEXT_OK && cJSON_IsString(text))
        history_sample(&serve->history, &serve->view, step, text->valuestring);
    cJSON_Delete(text);
}

/* restore_history — what an earlier run has left, as soon as it is read and the step is known from
 * which this one goes on. */
static void restore_history(struct serve *serve)
{
    static struct history old;
    struct text found;
    const struct board_worker *lead = serve->view.lead;
    if (lead == NULL || lead->rank != 0 || lead->begun_step < 0 ||
        !archive_read(serve->archive, &found))
        return;
    serve->is_restored = true;
    struct status_saved saved; /* of a run that has failed already: its sentence stays */
    status_save(&saved);
    if (found.len > 0 && history_read(found.data, found.len, &old) == ST_OK)
        history_read_prepend(&serve->history, &old, lead->begun_step);
    else if (found.len > 0)
        LOG_WARN("%s: %s", serve->config.archive_path, status_message());
    status_restore(&saved);
    text_free(&found);
}

/* save_history — the history goes to its file with each checkpoint, but not all the time, and at
 * the end. */
static void save_history(struct serve *serve, bool is_last)
{
    const struct board_checkpoint *newest = view_checkpoint(&serve->view);
    if (serve->archive == NULL)
        return;
    if (!serve->is_restored)
        restore_history(serve);
    if (!serve->is_restored || newest == NULL)
        return;
    if (!is_last &&
        (newest->step == serve->saved_step || clock_ms() - serve->saved_ms < SERVE_SAVE_MS))
        return;
    struct text t = {.limit = ARCHIVE_BYTES_MAX};
    history_write(&serve->history, &t);
    serve->saved_step = newest->step;
    serve->saved_ms = clock_ms();
    if (t.overflow)
        text_free(&t);
    else
        archive_write(serve->archive, &t);
}

static void observe(struct serve *serve, bool is_last)
{
    refresh_view(serve);
    take_sample(serve);
    history_observe(&serve->history, &serve->view);
    journal_collect(&serve->journal, serve->config.tail, serve->config.board,
                    serve->view.workers_n);
    save_history(serve, is_last);
}

static void sweep_on_time(evutil_socket_t fd, short what, void *arg)
{
    sweep_soon(fd, what, arg);
    observe(arg, false);
}

/* Called by evhttp for each connection it accepted. NULL makes evhttp use a stream of its own,
 * without our deadline but with its idle time-out; that happens only when memory is short. */
static struct bufferevent *open_stream(struct event_base *loop, void *arg)
{
    struct serve *serve = arg;
    if (serve->connections_n >= SERVE_CONNECTIONS_MAX - 1)
        sweep(serve); /* a burst of short connections leaves seats that are free already */
    if (serve->connections_n == SERVE_CONNECTIONS_MAX)
        return NULL; /* the listener rests, so this is not reached */
    /* CLOSE_ON_FREE leaves the closing to whoever lets go last. Without it evhttp closes while our
     * reference still holds the stream's events, and those would act on the next connection that
     * gets the same descriptor. The client does not wait for us: evhttp shuts the connection down
     * first. */
    struct bufferevent *stream = bufferevent_socket_new(loop, -1, BEV_OPT_CLOSE_ON_FREE);
    if (stream == NULL)
        return NULL;
    bufferevent_incref(stream);
    serve->connections[serve->connections_n++] =
        (struct serve_connection){.stream = stream, .until_ms = clock_ms() + SERVE_REQUEST_MS};
    if (serve->connections_n == SERVE_CONNECTIONS_MAX)
        evict_idle(serve);
    return stream;
}

static void renew(struct serve *serve, struct evhttp_request *request)
{
    const struct bufferevent *stream =
        evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
    int i = 0;
    while (i < serve->connections_n && serve->connections[i].stream != stream)
        i++;
    if (i == serve->connections_n)
        return;
    struct serve_connection renewed = serve->connections[i];
    renewed.until_ms = clock_ms() + SERVE_IDLE_MS;
    for (; i + 1 < serve->connections_n; i++)
        serve->connections[i] = serve->connections[i + 1];
    serve->connections[i] = renewed;
}

static void send_answer(struct evhttp_request *request, struct route_answer *answer, bool has_body)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    char length[32];
    text_format(length, sizeof(length), "%zu", answer->body.len);
    evhttp_add_header(headers, "Content-Type", answer->content_type);
    evhttp_add_header(headers, "Content-Length", length); /* for HEAD too */
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
    evhttp_add_header(headers, "Content-Security-Policy", answer->policy);
    evhttp_add_header(headers, "Referrer-Policy", "no-referrer");
    if (answer->allow != NULL)
        evhttp_add_header(headers, "Allow", answer->allow);
    /* What follows a body that nobody wanted is not to be taken for a request. */
    if (has_body || answer->allow != NULL)
        evhttp_add_header(headers, "Connection", "close");
    if (evhttp_request_get_command(request) != EVHTTP_REQ_HEAD) /* evhttp would send it */
        evbuffer_add(evhttp_request_get_output_buffer(request), answer->body.data,
                     answer->body.len);
    evhttp_send_reply(request, answer->code, answer->reason, NULL);
}

/* evhttp takes HTTP/0.7 and answers in the same, which no client reads. (Above 1 it refuses by
 * itself.) */
static bool has_version(struct evhttp_request *request)
{
    const bool is_known = request->major == 1;
    request->minor = is_known && request->minor == 0 ? 0 : 1;
    request->major = 1;
    return is_known;
}

/* is_for_us — asked for by a name of this node, in the header and, where the target is a whole URI,
 * there. */
static bool is_for_us(const struct serve *serve, struct evhttp_request *request)
{
    const char *host = evhttp_find_header(evhttp_request_get_input_headers(request), "Host");
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *target = uri != NULL ? evhttp_uri_get_host(uri) : NULL;
    return (host == NULL || allowed_hosts_has(&serve->allowed_hosts, host)) &&
           (target == NULL || target[0] == 0 || allowed_hosts_has(&serve->allowed_hosts, target));
}

/* refuse — and close. fault NULL: it is meant for another host. */
static void refuse(struct evhttp_request *request, const char *fault)
{
    struct route_answer answer;
    if (fault != NULL)
        route_refuse(400, "Bad Request", fault, &answer);
    else
        route_refuse(421, "Misdirected Request",
                     "the Host asked for is no name of this node; if it is one, add it to HOSTS",
                     &answer);
    send_answer(request, &answer, true);
    route_free(&answer);
}

static void on_request(struct evhttp_request *request, void *arg)
{
    struct serve *serve = arg;
    const struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *path = uri != NULL ? evhttp_uri_get_path(uri) : NULL;
    const char *fault = http_request_fault(headers, request->major == 1 ? request->minor : 1);
    const char *length = evhttp_find_header(headers, "Content-Length");
    enum evhttp_cmd_type method = evhttp_request_get_command(request);
    bool has_body = evhttp_find_header(headers, "Transfer-Encoding") != NULL ||
                    (length != NULL && strcmp(length, "0") != 0);
    struct route_answer answer;

    renew(serve, request);
    if (!has_version(request)) {
        evhttp_send_error(request, 505, "HTTP Version Not Supported");
        return;
    }
    if (method == EVHTTP_REQ_CONNECT)
        /* evhttp never closes after a CONNECT: a proxy's tunnel would begin */
        request->type = EVHTTP_REQ_POST;
    if (fault != NULL || !is_for_us(serve, request)) {
        refuse(request, fault);
        return;
    }
    refresh_view(serve);
    route_answer(path != NULL ? path : "", method == EVHTTP_REQ_GET || method == EVHTTP_REQ_HEAD,
                 has_body, &serve->view, &answer);
    send_answer(request, &answer, has_body);
    route_free(&answer);
    if (path != NULL && strcmp(path, "/status") == 0)
        serve->status_ms = clock_ms();
}

static enum status address_fail(const struct serve_config *config, const char *verb,
                                const char *why)
{
    return FAIL(ST_BAD_SETTING,
                "cannot %s STATUS_ADDR=%s STATUS_PORT=%d for the status endpoint: %s; give another "
                "STATUS_ADDR or STATUS_PORT, or turn it off with STATUS_PORT=0",
                verb, config->addr, config->port, why);
}

static enum status listen_on(const struct serve_config *config, const struct addrinfo *info,
                             int *fd_out)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0)
        return address_fail(config, "open a socket for", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, SERVE_BACKLOG) != 0) {
        enum status st = address_fail(config, "listen on", strerror(errno));
        close(fd);
        return st;
    }
    *fd_out = fd;
    return ST_OK;
}

/* Numbers only, IPv4 or IPv6 with or without brackets: an address to listen on is this machine's
 * own, and looking up a name could hang the start. localhost is the one name taken. */
static enum status open_socket(const struct serve_config *config, int *fd_out)
{
    char host[128], port[16];
    const char *addr = strcmp(config->addr, "localhost") == 0 ? "127.0.0.1" : config->addr;
    size_t n = strlen(addr);
    bool is_whole = addr[0] == '[' && addr[n - 1] == ']'
                        ? text_format(host, sizeof(host), "%.*s", (int)n - 2, addr + 1)
                        : text_copy(host, sizeof(host), addr);
    text_format(port, sizeof(port), "%d", config->port > 0 ? config->port : 0);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *list = NULL;
    int error = !is_whole || host[0] == 0 ? EAI_NONAME : getaddrinfo(host, port, &hints, &list);
    if (error != 0)
        return address_fail(config, "use",
                            error == EAI_NONAME ? "not an IPv4 or IPv6 address"
                                                : gai_strerror(error));
    enum status st = listen_on(config, list, fd_out);
    freeaddrinfo(list);
    return st;
}

static int port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } name;
    socklen_t n = sizeof(name);
    if (getsockname(fd, &name.any, &n) != 0)
        return -1;
    return ntohs(name.any.sa_family == AF_INET6 ? name.v6.sin6_port : name.v4.sin_port);
}

static void set_limits(struct serve *serve)
{
    evhttp_set_max_headers_size(serve->http, SERVE_HEADER_BYTES);
    evhttp_set_max_body_size(serve->http, SERVE_BODY_BYTES);
    evhttp_set_timeout(serve->http, SERVE_IDLE_MS / 1000);
    evhttp_set_allowed_methods(serve->http, 0xFFFF); /* all, known or not, come to us and get 405 */
    evhttp_set_bevcb(serve->http, open_stream, serve);
    evhttp_set_gencb(serve->http, on_request, serve);
}

static enum status start(struct serve *serve, int fd)
{
    static const struct timeval every = {0, SERVE_SWEEP_MS * 1000};
    serve->listener = evconnlistener_new(serve->config.loop, NULL, NULL,
                                         LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (serve->listener == NULL) {
        close(fd);
        return FAIL(ST_RETRY, "out of memory: the status endpoint's listener");
    }
    serve->http = evhttp_new(serve->config.loop);
    if (serve->http == NULL || evhttp_bind_listener(serve->http, serve->listener) == NULL) {
        evconnlistener_free(serve->listener);
        return FAIL(ST_RETRY, "out of memory: the status endpoint's server");
    }
    set_limits(serve);
    serve->sweep = event_new(serve->config.loop, -1, EV_PERSIST, sweep_on_time, serve);
    serve->soon = event_new(serve->config.loop, -1, 0, sweep_soon, serve);
    if (serve->sweep == NULL || serve->soon == NULL || event_add(serve->sweep, &every) != 0)
        return FAIL(ST_RETRY, "out of memory: the status endpoint's timer");
    return ST_OK;
}

static void take_names(struct serve *serve)
{
    const struct serve_config *config = &serve->config;
    bool is_whole =
        config->hosts == NULL || allowed_hosts_add(&serve->allowed_hosts, config->hosts);
    is_whole =
        (config->own == NULL || allowed_hosts_add(&serve->allowed_hosts, config->own)) && is_whole;
    allowed_hosts_add_own(&serve->allowed_hosts, "/etc/hosts");
    if (!is_whole)
        LOG_WARN("HOSTS is longer than %d bytes; what is behind that is not known as a name of "
                 "this node",
                 ALLOWED_HOSTS_NAMES_MAX);
}

enum status serve_open(const struct serve_config *config, struct serve **out)
{
    int fd = -1;
    TRY(open_socket(config, &fd));
    struct serve *serve = calloc(1, sizeof(*serve));
    if (serve == NULL) {
        close(fd);
        return FAIL(ST_RETRY, "out of memory: %zu bytes for the status endpoint", sizeof(*serve));
    }
    serve->config = *config;
    serve->port = port_of(fd);
    serve->saved_step = -1;
    take_names(serve);
    signal(SIGPIPE, SIG_IGN); /* a client that hangs up must not end the node */
    enum status st = start(serve, fd);
    if (st == ST_OK && config->archive_path != NULL && config->archive_path[0] != 0)
        st = archive_open(config->archive_path, &serve->archive);
    if (st != ST_OK) {
        serve_close(serve);
        return st;
    }
    *out = serve;
    return ST_OK;
}

void serve_await_poll(struct serve *serve)
{
    static const struct timeval turn = {0, SERVE_POLL_TURN_MS * 1000};
    if (serve == NULL || serve->status_ms == 0 || clock_ms() - serve->status_ms > SERVE_WATCHED_MS)
        return;
    serve->config.fill = NULL;
    serve->status_ms = 0;
    /* One more turn after the answer: it has yet to leave. */
    bool is_told = false;
    for (int64_t until_ms = clock_ms() + SERVE_POLL_WAIT_MS; clock_ms() < until_ms && !is_told;) {
        is_told = serve->status_ms != 0;
        event_base_loopexit(serve->config.loop, &turn);
        event_base_dispatch(serve->config.loop);
    }
}

void serve_close(struct serve *serve)
{
    if (serve == NULL)
        return;
    if (serve->archive != NULL)
        observe(serve, true);
    archive_close(serve->archive);
    if (serve->sweep != NULL)
        event_free(serve->sweep);
    if (serve->soon != NULL)
        event_free(serve->soon);
    if (serve->http != NULL)
        evhttp_free(serve->http); /* and the listener and all connections with it */
    for (int i = 0; i < serve->connections_n; i++)
        bufferevent_decref(serve->connections[i].stream);
    free(serve);
}

int serve_port(const struct serve *serve) { return serve->port; }

#ifdef FUZZ
#include "base/assert.h"

static struct event_base *fuzz_loop;
static struct serve *fuzz_serve;

static void fuzz_open(void)
{
    struct board *board;
    fuzz_loop = event_base_new();
    ASSERT(fuzz_loop != NULL && board_create(1, 1, &board) == ST_OK);
    board_node_publish(
        board, &(struct board_node){.n_nodes = 1, .workers_n = 1, .started_ms = clock_ms()});
    const struct serve_config config = {
        .loop = fuzz_loop, .board = board, .addr = "127.0.0.1", .port = -1, .hang_ms = 60000};
    ASSERT(serve_open(&config, &fuzz_serve) == ST_OK);
}

/* A connection that leaves nothing behind when it is closed: a million of them would use up all
 * ports. */
static int fuzz_dial(void)
{
    const struct linger reset = {1, 0};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)fuzz_serve->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
    while (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 && errno != EISCONN)
        /* the fuzzer's own timer */
        ASSERTF(errno == EINTR || errno == EALREADY, "%s", strerror(errno));
    return fd;
}

/* What the server says begins like an answer with a code of ours or of evhttp; ours are HTTP/1.0 or
 * 1.1. (In evhttp's own refusals stands the version that was asked in.) */
static void fuzz_check(const char *answer, size_t n)
{
    static const char *const codes[] = {" 200 ", " 400 ", " 404 ", " 405 ", " 413 ",
                                        " 417 ", " 421 ", " 501 ", " 503 ", " 505 "};
    char line[64] = "";
    bool is_known = n == 0;
    memcpy(line, answer, n < sizeof(line) - 1 ? n : sizeof(line) - 1);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        is_known |=
            text_starts(line, "HTTP/") && strncmp(line + strcspn(line, " "), codes[i], 5) == 0;
    ASSERTF(is_known, "%s", line);
    if (strstr(line, " 200 ") != NULL)
        ASSERTF(text_starts(line, "HTTP/1.0 ") || text_starts(line, "HTTP/1.1 "), "%s", line);
}

/* The bytes as a client sends them, then its end; the server hangs up by itself and keeps no
 * seat. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char answer[1 << 16];
    size_t sent = 0, n = 0;
    if (fuzz_serve == NULL)
        fuzz_open();
    const int fd = fuzz_dial();
    for (bool is_open = true; is_open;) {
        const ssize_t out =
            sent < size ? send(fd, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        sent = out > 0 ? sent + (size_t)out : sent;
        if (sent == size || (out < 0 && errno != EAGAIN))
            shutdown(fd, SHUT_WR);
        event_base_loop(fuzz_loop, EVLOOP_NONBLOCK);
        const ssize_t got = recv(fd, answer + n, sizeof(answer) - n, MSG_DONTWAIT);
        is_open = got > 0 || (got < 0 && errno == EAGAIN);
        n += got > 0 && n + (size_t)got < sizeof(answer) / 2 ? (size_t)got : 0;
    }
    close(fd);
    event_base_loop(fuzz_loop, EVLOOP_NONBLOCK);
    sweep(fuzz_serve);
    ASSERTF(fuzz_serve->connections_n == 0, "%d seats", fuzz_serve->connections_n);
    fuzz_check(answer, n);
    return 0;
}
#endif
