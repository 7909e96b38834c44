/* serve — see serve.h. The status endpoint on http_server, with the history and the log that it
 * shows.
 *
 * If all connections are in use, the ones longest without a request are closed: a client that sends
 * a request is answered, even if many others are silent or send one byte at a time. A keep-alive
 * client that loses its connection has to connect again, nothing more. */
#include "serve/serve.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "net/http_auth.h"
#include "net/http_request.h"
#include "net/http_server.h"
#include "serve/allowed_hosts.h"
#include "serve/archive.h"
#include "serve/history.h"
#include "serve/journal.h"
#include "serve/route.h"
#include "serve/stored_runs.h"
#include "serve/view.h"

#define SERVE_CONNECTIONS_MAX 64
#define SERVE_HEADER_BYTES 8192
/* bytes that are read and dropped, so that a POST gets 405, not a reset */
#define SERVE_BODY_BYTES 8192
#define SERVE_REQUEST_MS 5000 /* ms to send the first request */
#define SERVE_IDLE_MS 10000   /* ms between requests, and for each read or write */
#define SERVE_SWEEP_MS 500
#define SERVE_SAVE_MS 10000     /* ms between two writes of the history file */
#define SERVE_SAVE_MAX_MS 60000 /* the same without a new checkpoint */
#define SERVE_READ_MS 500       /* ms for the earlier run's file, at the end */
#define SERVE_READ_TURN_MS 50   /* the same in a sweep */
#define SERVE_WATCHED_MS 3000   /* ms after a request for /status: its client polls */
#define SERVE_POLL_WAIT_MS 1200 /* ms for that client's next request; the page sends one a second */
#define SERVE_POLL_TURN_MS 100
#define SERVE_EVICT_N 8 /* connections closed together when all are in use */
#define SERVE_BACKLOG 512

struct serve {
    struct serve_config config;
    struct http_server *http;
    int port;
    int64_t status_ms; /* when /status was last requested; 0: not yet */
    struct view view;  /* view of the last request or observation */
    struct history history;
    struct journal journal;
    uint64_t sample_turn;         /* revision of the last blob read */
    struct archive *archive;      /* NULL: the history is not kept */
    bool is_restored;             /* the earlier run's history was prepended, or there is none */
    int64_t saved_ms, saved_step; /* last write of the history, and its checkpoint's step */
    bool has_saved_end;
    bool has_worker; /* a worker has started, so there is something to keep */
    struct allowed_hosts allowed_hosts;
    struct http_auth auth;
};

/* Copies the node's current state into serve->view. */
static void refresh_view(struct serve *serve)
{
    view_copy(&serve->view, serve->config.board, clock_ms(), clock_wall_ms(),
              serve->config.hang_ms);
    if (serve->config.fill != NULL)
        serve->config.fill(serve->config.fill_arg, &serve->view);
    serve->view.history = &serve->history;
    serve->view.journal = &serve->journal;
    serve->view.settings = serve->config.settings;
}

/* Reads the sample that rank 0 publishes, the step and the text: 120 "Once upon a time". */
static void read_sample(struct serve *serve)
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
    if (text_parse_i64(blob, 0, INT64_MAX, &step) == TEXT_OK && cJSON_IsString(text))
        history_sample(&serve->history, &serve->view, step, text->valuestring);
    cJSON_Delete(text);
}

/* Returns the step at which this run resumed; -1: unknown so far. At the end of a run that did not
 * resume: HISTORY_ALL. */
static int64_t resumed_step(const struct serve *serve, bool is_last)
{
    const struct board_worker *first_worker = serve->view.first_worker;
    if (first_worker != NULL && first_worker->rank == 0 && first_worker->begun_step >= 0)
        return first_worker->begun_step;
    return is_last ? HISTORY_ALL : -1;
}

/* Prepends the earlier run's history, once the archive has been read and the step at which this run
 * resumed has been published. */
static void restore_history(struct serve *serve, bool is_over, bool is_last)
{
    static struct history old;
    struct text found;
    const int64_t step = resumed_step(serve, is_over), since_ms = clock_ms(),
                  most_ms = is_last ? SERVE_READ_MS : SERVE_READ_TURN_MS;
    if (step < 0)
        return;
    while (!archive_read(serve->archive, &found)) {
        if (clock_ms() - since_ms > most_ms)
            return;
        clock_sleep_ms(1);
    }
    serve->is_restored = true;
    struct status_saved saved; /* keeps the message of a run that has failed already */
    status_save(&saved);
    if (found.len > 0 && history_read(found.data, found.len, &old) == ST_OK)
        history_read_prepend(&serve->history, &old, step);
    else if (found.len > 0)
        LOG_WARN("%s: %s; the file is not used, and the curves begin anew",
                 serve->config.archive_path, status_message());
    status_restore(&saved);
    text_free(&found);
}

/* Writes the history and the last answers after each checkpoint, at most every SERVE_SAVE_MS, and
 * every SERVE_SAVE_MAX_MS; at the end of the run, and last of all. A run without a worker so far
 * leaves an earlier run's file as it is. */
static void save_record(struct serve *serve, bool is_last)
{
    const bool is_over = view_is_over(&serve->view), is_new_end = is_over && !serve->has_saved_end;
    serve->has_worker = serve->has_worker || serve->view.first_worker != NULL;
    if (serve->archive == NULL || !serve->has_worker)
        return;
    if (!serve->is_restored)
        restore_history(serve, is_last || is_over, is_last);
    const struct board_checkpoint *newest = view_checkpoint(&serve->view);
    const int64_t step = newest != NULL ? newest->step : -1, age_ms = clock_ms() - serve->saved_ms;
    const bool is_due =
        age_ms >= SERVE_SAVE_MAX_MS || (age_ms >= SERVE_SAVE_MS && step != serve->saved_step);
    if (!serve->is_restored || !(is_last || is_new_end || is_due))
        return;
    serve->has_saved_end = is_over;
    struct text t = {.limit = ARCHIVE_BYTES_MAX};
    stored_runs_write(&serve->view, &t);
    serve->saved_step = step;
    serve->saved_ms = clock_ms();
    if (!t.overflow) {
        archive_write(serve->archive, &t, resumed_step(serve, is_last || is_over) == HISTORY_ALL);
        return;
    }
    LOG_WARN("%s is not written: the settings or the log are too long", serve->config.archive_path);
    text_free(&t);
}

static void observe_job(struct serve *serve, bool is_last)
{
    if (serve->config.stored != NULL)
        return;
    refresh_view(serve);
    read_sample(serve);
    history_observe(&serve->history, &serve->view);
    journal_collect(&serve->journal, serve->config.tail, serve->config.board,
                    serve->view.workers_n);
    save_record(serve, is_last);
}

static void on_sweep(void *arg, bool is_timer)
{
    if (is_timer)
        observe_job(arg, false);
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
    /* Bytes after a refused body must not be parsed as a request. */
    if (has_body || answer->allow != NULL)
        evhttp_add_header(headers, "Connection", "close");
    /* evhttp would send the body of a HEAD */
    if (evhttp_request_get_command(request) != EVHTTP_REQ_HEAD)
        evbuffer_add(evhttp_request_get_output_buffer(request), answer->body.data,
                     answer->body.len);
    evhttp_send_reply(request, answer->code, answer->reason, NULL);
}

/* Returns true for HTTP/1. evhttp accepts HTTP/0.7 and answers in that version, which no client
 * reads. (It refuses versions above 1 itself.) */
static bool has_version(struct evhttp_request *request)
{
    const bool is_known = request->major == 1;
    request->minor = is_known && request->minor == 0 ? 0 : 1;
    request->major = 1;
    return is_known;
}

/* Returns true if the Host header, and the host of an absolute URI, are names of this node. */
static bool is_for_us(const struct serve *serve, struct evhttp_request *request)
{
    const char *host = evhttp_find_header(evhttp_request_get_input_headers(request), "Host");
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
    const char *target = uri != NULL ? evhttp_uri_get_host(uri) : NULL;
    return (host == NULL || allowed_hosts_has(&serve->allowed_hosts, host)) &&
           (target == NULL || target[0] == 0 || allowed_hosts_has(&serve->allowed_hosts, target));
}

/* Sends an error and closes. fault NULL: the request is meant for another host. */
static void refuse_request(struct evhttp_request *request, const char *fault)
{
    struct route_answer answer;
    if (fault != NULL)
        route_refuse(400, "Bad Request", fault, &answer);
    else
        route_refuse(421, "Misdirected Request",
                     "the requested Host is not a name of this node; if it is one, add it to HOSTS",
                     &answer);
    send_answer(request, &answer, true);
    route_free(&answer);
}

/* Refuses a request without the token. A browser then shows a login. */
static void refuse_without_token(struct evhttp_request *request)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    struct route_answer answer;
    route_refuse(
        401, "Unauthorized",
        "this node requires the token of its STATUS_TOKEN_FILE: send it as `Authorization: "
        "Bearer TOKEN`, or as the password of a login",
        &answer);
    evhttp_add_header(headers, "WWW-Authenticate", HTTP_AUTH_BEARER);
    evhttp_add_header(headers, "WWW-Authenticate", HTTP_AUTH_BASIC);
    send_answer(request, &answer, true);
    route_free(&answer);
}

static void on_request(void *arg, struct evhttp_request *request, struct http_server_conn *conn)
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

    if (conn != NULL)
        http_server_renew(serve->http, conn, SERVE_IDLE_MS);
    if (!has_version(request)) {
        evhttp_send_error(request, 505, "HTTP Version Not Supported");
        return;
    }
    if (method == EVHTTP_REQ_CONNECT)
        /* evhttp never closes after CONNECT, which opens a proxy's tunnel */
        request->type = EVHTTP_REQ_POST;
    if (fault != NULL || !is_for_us(serve, request)) {
        refuse_request(request, fault);
        return;
    }
    const char *route = path != NULL ? path : "";
    if (!route_is_probe(route) &&
        !http_auth_is_granted(&serve->auth, evhttp_find_header(headers, "Authorization"))) {
        refuse_without_token(request);
        return;
    }
    if (serve->config.stored != NULL)
        route = stored_runs_view(serve->config.stored, route, &serve->view);
    else
        refresh_view(serve);
    route_answer(route, method == EVHTTP_REQ_GET || method == EVHTTP_REQ_HEAD, has_body,
                 &serve->view, &answer);
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

/* Opens the socket. Numeric addresses only: the address is this machine's own, and resolving a name
 * could hang the start. localhost is the only name accepted. */
static enum status open_socket(const struct serve_config *config, int *fd_out)
{
    char port[16];
    const char *addr = strcmp(config->addr, "localhost") == 0 ? "127.0.0.1" : config->addr;
    text_format(port, sizeof(port), "%d", config->port > 0 ? config->port : 0);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *list = NULL;
    int error = addr[0] == 0 ? EAI_NONAME : getaddrinfo(addr, port, &hints, &list);
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

static enum status start_server(struct serve *serve, int fd)
{
    const struct http_server_config config = {
        .name = "the status endpoint",
        .loop = serve->config.loop,
        .header_bytes_max = SERVE_HEADER_BYTES,
        .body_bytes_max = SERVE_BODY_BYTES,
        .request_ms = SERVE_REQUEST_MS,
        .idle_s = SERVE_IDLE_MS / 1000,
        .sweep_ms = SERVE_SWEEP_MS,
        .methods = 0xFFFF, /* all methods: on_request answers 405 to the others */
        .conns_max = SERVE_CONNECTIONS_MAX,
        .evict_n = SERVE_EVICT_N,
        .on_sweep = on_sweep,
        .on_request = on_request,
        .arg = serve};
    return http_server_open(&config, fd, &serve->http);
}

enum status serve_open(const struct serve_config *config, struct serve **out)
{
    int fd = -1;
    TRY(open_socket(config, &fd));
    struct serve *serve = memory_new(1, sizeof(*serve));
    serve->config = *config;
    serve->port = port_of(fd);
    serve->saved_step = -1;
    bool is_whole =
        config->hosts == NULL || allowed_hosts_add(&serve->allowed_hosts, config->hosts);
    is_whole =
        (config->own == NULL || allowed_hosts_add(&serve->allowed_hosts, config->own)) && is_whole;
    allowed_hosts_add_own(&serve->allowed_hosts, "/etc/hosts");
    if (!is_whole)
        LOG_WARN("HOSTS is longer than %d bytes; names beyond that are not accepted",
                 ALLOWED_HOSTS_NAMES_MAX);
    http_auth_init(&serve->auth, config->token);
    serve->config.token = NULL; /* the caller wipes it */
    signal(SIGPIPE, SIG_IGN);   /* a client that disconnects must not end the node */
    enum status st = start_server(serve, fd);
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
    serve->status_ms = 0;
    /* One more turn of the loop after the answer, to send it. */
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
        observe_job(serve, true);
    archive_close(serve->archive);
    http_server_close(serve->http);
    free(serve);
}

int serve_port(const struct serve *serve) { return serve->port; }

const char *serve_url(const struct serve *serve, char *out)
{
    const char *addr = serve->config.addr;
    const bool is_any = strcmp(addr, "0.0.0.0") == 0 || strcmp(addr, "::") == 0;
    const char *host = is_any ? "127.0.0.1" : addr;
    text_format(out, SERVE_URL_BYTES,
                strchr(host, ':') != NULL ? "http://[%s]:%d/" : "http://%s:%d/", host, serve->port);
    return out;
}

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

/* Opens a connection that is reset when it is closed: a million in TIME_WAIT would use up all
 * ports. */
static int fuzz_dial(void)
{
    const struct linger reset = {1, 0};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)fuzz_serve->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
    while (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 && errno != EISCONN)
        /* interrupted by the fuzzer's timer */
        ASSERTF(errno == EINTR || errno == EALREADY, "%s", strerror(errno));
    return fd;
}

/* Checks that a response begins with a status line whose code is ours or evhttp's; ours are
 * HTTP/1.0 or 1.1. (evhttp's own refusals repeat the version of the request.) */
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

/* Sends the bytes, then closes; the server closes too and keeps no connection. */
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
    http_server_sweep(fuzz_serve->http);
    const int left = http_server_conns_n(fuzz_serve->http);
    ASSERTF(left == 0, "%d connections", left);
    fuzz_check(answer, n);
    return 0;
}
#endif
