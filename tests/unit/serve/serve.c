/* serve — a real server on a free port; well-behaved and hostile clients on raw sockets. */
#include "harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include <cjson/cJSON.h>
#include <event2/event.h>

#include "base/board.h"
#include "serve/serve.h"

static struct event_base *loop;
static struct board *board;
static struct serve *serve;
static pthread_t loop_thread;
static atomic_bool loop_ends;
static struct board_node node;
static struct board_worker worker;

static void look_at_end(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    if (atomic_load(&loop_ends))
        event_base_loopbreak(loop);
}

static void *run_loop(void *arg)
{
    struct timeval every = {0, 10000};
    struct event *tick = event_new(loop, -1, EV_PERSIST, look_at_end, NULL);
    event_add(tick, &every);
    event_base_dispatch(loop);
    event_free(tick);
    return arg;
}

static int start_server(void **state)
{
    loop = event_base_new();
    if (board_create(1, 1, &board) != ST_OK)
        return -1;
    struct serve_config config = {.loop = loop,
                                  .board = board,
                                  .addr = "127.0.0.1",
                                  .port = -1,
                                  .hosts = "train.example.org",
                                  .hang_ms = 3600000};
    if (serve_open(&config, &serve) != ST_OK)
        return -1;
    node = (struct board_node){
        .n_nodes = 1, .workers_n = 1, .phase = BOARD_PHASE_STARTING, .started_ms = clock_ms()};
    board_node_publish(board, &node);
    worker =
        (struct board_worker){.phase = BOARD_PHASE_TRAINING, .step = 5, .steps = 10, .loss = 3.5};
    board_worker_publish(board, 0, &worker);
    board_heartbeat(board, 0);
    return pthread_create(&loop_thread, NULL, run_loop, NULL);
}

static int stop_server(void **state)
{
    atomic_store(&loop_ends, true);
    pthread_join(loop_thread, NULL);
    serve_close(serve);
    event_base_free(loop);
    board_close(board);
    return 0;
}

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)serve_port(serve))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void say(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* hung up on: what it answered is still to be read */
        bytes += sent;
        n -= (size_t)sent;
    }
}

/* How long a server of little work is silent on a machine of this load before it has nothing more
 * to say. */
static int quiet_ms(int ms)
{
    return (int)((double)ms * (harness_slow() < 3 ? harness_slow() : 3));
}

/* All it sends until it closes or says nothing, for first_ms before its first byte and for rest_ms
 * after that; "" when closed without a word. *closed: it hung up. */
static char *hear_for(int fd, int first_ms, int rest_ms, bool *closed)
{
    static char out[1 << 18];
    size_t n = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    *closed = false;
    while (n + 1 < sizeof(out) && poll(&ready, 1, n == 0 ? first_ms : rest_ms) > 0) {
        ssize_t got = recv(fd, out + n, sizeof(out) - 1 - n, 0);
        if (got <= 0) {
            *closed = true;
            break;
        }
        n += (size_t)got;
    }
    out[n] = 0;
    return out;
}
static char *hear(int fd, int rest_ms, bool *closed)
{
    return hear_for(fd, (int)harness_patience_ms(10000), rest_ms, closed);
}

static char *ask(const char *request)
{
    bool closed;
    int fd = dial();
    say(fd, request, strlen(request));
    char *answer = hear(fd, quiet_ms(1000), &closed);
    close(fd);
    return answer;
}

static char *get(const char *path)
{
    char request[256];
    text_format(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                path);
    return ask(request);
}

static int code_of(const char *answer)
{
    return text_starts(answer, "HTTP/1.") ? atoi(answer + 9) : -1;
}
static const char *body_of(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");
    return end != NULL ? end + 4 : "";
}

TEST(paths)
{
    board_heartbeat(board, 0);
    static const struct {
        const char *path;
        int code;
        const char *holds;
    } cases[] = {
        {"/status", 200, "\"schema\":1,"},
        {"/status?x=1", 200, "\"step\":5"},
        {"/metrics", 200, "convoy_step 5\n"},
        {"/livez", 200, "\"live\":true"},
        {"/healthz", 200, "\"live\":true"},
        {"/readyz", 200, "\"ready\":true"},
        {"/", 200, "<!doctype html>"},
        {"/nope", 404, "/status"},
        {"/history", 200, "\"points\":{"},
        {"/x", 404, "{\"error\":{\"code\":404,"},
        {"/status/", 404, "error"},
        {"/STATUS", 404, "error"},
        {"/../etc/passwd", 404, "error"},
        {"/status%00", 404, "error"},
        {"//status", 404, "error"},
        {"/history.csv", 200, "seconds,step,phase,loss,"},
        {"/settings", 200, "{\"settings\":[]}"},
        {"/log", 200, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *answer = get(cases[i].path);
        if (code_of(answer) != cases[i].code)
            print_message("# %s: %.60s\n", cases[i].path, answer);
        assert_int_equal(code_of(answer), cases[i].code);
        assert_non_null(strstr(body_of(answer), cases[i].holds));
    }
    const char *answer = get("/metrics");
    assert_non_null(strstr(answer, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    answer = get("/status");
    assert_non_null(strstr(answer, "Content-Type: application/json\r\n"));
    cJSON *root = cJSON_Parse(body_of(answer));
    assert_non_null(root);
    cJSON_Delete(root);
    assert_non_null(strstr(answer, "Content-Security-Policy: default-src 'none';"));
    assert_non_null(
        strstr(get("/"), "Content-Security-Policy: default-src 'none'; script-src 'sha256-"));
    assert_int_equal(code_of(ask("GET http://x/livez HTTP/1.1\r\nHost: x\r\n\r\n")), 200);
    assert_int_equal(code_of(ask("GET /livez HTTP/1.0\r\n\r\n")), 200);
}

TEST(head_has_no_body)
{
    const char *answer = ask("HEAD /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_int_equal(code_of(answer), 200);
    assert_string_equal(body_of(answer), "");
    const char *length = strstr(answer, "Content-Length: ");
    assert_non_null(length);
    assert_true(atoi(length + 16) > 500);
}

TEST(other_methods_are_405)
{
    static const char *const methods[] = {"POST",  "PUT",   "DELETE", "OPTIONS",
                                          "TRACE", "PATCH", "BREW",   "get"};
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        char request[128];
        text_format(request, sizeof(request),
                    "%s /status HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", methods[i]);
        const char *answer = ask(request);
        if (code_of(answer) != 405)
            print_message("# %s: %.60s\n", methods[i], answer);
        assert_int_equal(code_of(answer), 405);
        assert_non_null(strstr(answer, "\r\nAllow: GET, HEAD\r\n"));
    }
    assert_int_equal(
        code_of(ask("POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")), 405);
    assert_int_equal(
        code_of(ask("POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\nabc")), 413);
    assert_int_equal(
        code_of(ask("GET /status HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")), 413);
    assert_int_equal(code_of(ask("GET /status HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                                 "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")),
                     413);
}

static void assert_refused(const char *request, size_t n)
{
    bool closed;
    int fd = dial();
    say(fd, request, n);
    shutdown(fd, SHUT_WR);
    const char *answer = hear(fd, quiet_ms(2000), &closed);
    close(fd);
    bool refused = (answer[0] == 0 && closed) || (code_of(answer) >= 400 && code_of(answer) < 500);
    if (!refused)
        print_message("# %.50s -> %.50s\n", request, answer);
    assert_true(refused);
}

TEST(malformed_requests_are_4xx)
{
    static const char *const bad[] = {
        "\r\n\r\n",
        "GARBAGE\r\n\r\n",
        "GET\r\n\r\n",
        "GET /status\r\n\r\n",
        "GET /status HTTP/9.9.9\r\n\r\n",
        "GET /status FTP/1.1\r\n\r\n",
        "GET /status HTTP/2.0\r\n\r\n",
        "GET /status HTTP/1.1\r\nno colon here\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", /* TLS hello */
        "GET \x01\x02 HTTP/1.1\r\n\r\n",
        "POST /status HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /status HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST /status HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /status HTTP/1.1",
        "",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused(bad[i], strlen(bad[i]));
    assert_refused("GET /sta\0tus HTTP/1.1\r\n\r\n", 25);
    assert_int_equal(code_of(get("/livez")), 200);
}

/* The answer is one that clients of today read. */
TEST(other_versions_are_refused)
{
    assert_true(text_starts(ask("GET /livez HTTP/0.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 505 "));
    assert_true(text_starts(ask("GET /livez HTTP/1.9\r\nHost: x\r\nConnection: close\r\n\r\n"),
                            "HTTP/1.1 200 "));
}

TEST(oversized_headers_are_4xx)
{
    static char big[200000];
    int n = snprintf(big, sizeof(big), "GET /status HTTP/1.1\r\nX: ");
    memset(big + n, 'h', 100000);
    memcpy(big + n + 100000, "\r\n\r\n", 4);
    assert_refused(big, (size_t)n + 100004); /* one long header */
    n = snprintf(big, sizeof(big), "GET /");
    memset(big + n, 'p', 100000);
    memcpy(big + n + 100000, " HTTP/1.1\r\n\r\n", 13);
    assert_refused(big, (size_t)n + 100013); /* a long path */
    memset(big, 'x', sizeof(big));
    assert_refused(big, sizeof(big)); /* no line at all */
    n = snprintf(big, sizeof(big), "GET /status HTTP/1.1\r\n");
    for (int i = 0; i < 3000; i++)
        n += snprintf(big + n, sizeof(big) - (size_t)n, "X%d: y\r\n", i);
    n += snprintf(big + n, sizeof(big) - (size_t)n, "\r\n");
    assert_refused(big, (size_t)n); /* many small headers */
    n = snprintf(big, sizeof(big), "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: ");
    memset(big + n, 'h', 7000);
    memcpy(big + n + 7000, "\r\n\r\n", 5);
    assert_int_equal(code_of(ask(big)), 200); /* under the limit */
}

TEST(pipelined_requests_are_all_answered)
{
    const char *answer =
        ask("GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /nope HTTP/1.1\r\nHost: x\r\n\r\n"
            "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    const char *second = strstr(answer + 1, "HTTP/1.1 "),
               *third = second != NULL ? strstr(second + 1, "HTTP/1.1 ") : NULL;
    assert_non_null(third);
    assert_int_equal(code_of(answer), 200);
    assert_int_equal(code_of(second), 404);
    assert_int_equal(code_of(third), 200);
}

TEST(hang_ups_are_survived)
{
    for (int i = 0; i < 200; i++) {
        int fd = dial();
        say(fd, "GET /status HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
            (size_t)(i * 3) % 66);
        struct linger reset = {1, 0};
        if (i % 2 == 0)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(fd);
    }
    assert_int_equal(code_of(get("/livez")), 200);
}

/* Bytes trickle in faster than any idle time-out: the whole request has 5 s all the same. */
TEST(a_slow_request_is_cut_off)
{
    bool closed = false;
    const int64_t start = clock_ms();
    const int fd = dial();
    for (int i = 0; !closed && clock_ms() - start < harness_patience_ms(8000); i++) {
        say(fd, i == 0 ? "GET /status HTTP/1.1\r\nX: " : "x", i == 0 ? 25 : 1);
        assert_string_equal(hear_for(fd, 200, 200, &closed), "");
    }
    assert_true(closed);
    assert_in_range(clock_ms() - start, 4500, harness_patience_ms(6500));
    close(fd);
}

static bool is_open(int fd) { return recv(fd, &(char){0}, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN; }

/* A hundred silent clients have no more than 64 seats between them, and give them up, the oldest
 * first, to one that asks; who asks keeps its seat before those that do not. */
TEST(silent_clients_give_up_their_seats)
{
    static const char ask_and_stay[] = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
    int seats[100], open_n = 0;
    bool closed;
    for (int i = 0; i < 60; i++)
        seats[i] = dial();
    say(seats[0], ask_and_stay, strlen(ask_and_stay));
    assert_int_equal(code_of(hear(seats[0], quiet_ms(300), &closed)), 200);
    for (int i = 60; i < 100; i++)
        seats[i] = dial();
    const int64_t start = clock_ms();
    assert_int_equal(code_of(get("/livez")), 200);
    assert_in_range(clock_ms() - start, 0, harness_patience_ms(1000));
    for (int i = 0; i < 100; i++)
        open_n += is_open(seats[i]);
    assert_in_range(open_n, 32, 64);
    assert_true(is_open(seats[0]) && !is_open(seats[1]) && is_open(seats[99]));
    for (int i = 0; i < 100; i++)
        close(seats[i]);
}

TEST(judgement_shows)
{
    board_request(board, BOARD_REQUEST_TERMINATE);
    assert_int_equal(code_of(get("/readyz")), 503);
    assert_int_equal(code_of(get("/livez")), 200);
    board_request_done(board, BOARD_REQUEST_TERMINATE);
    node.phase = BOARD_PHASE_FAILED;
    node.error = (struct board_error){.code = 74, .message = "disk \"full\""};
    board_node_publish(board, &node);
    assert_int_equal(code_of(get("/healthz")), 200); /* it ends by itself */
    const char *answer = get("/readyz");
    assert_int_equal(code_of(answer), 503);
    assert_non_null(strstr(body_of(answer),
                           "{\"error\":{\"code\":503,\"message\":\"failed: disk \\\"full\\\"\"}}"));
    node.phase = BOARD_PHASE_STARTING;
    node.error.code = 0;
    board_node_publish(board, &node);
}

TEST(bad_addresses_say_what_to_do)
{
    struct serve *other = NULL;
    struct serve_config config = {
        .loop = loop, .board = board, .addr = "127.0.0.1", .port = serve_port(serve), .hang_ms = 1};
    assert_int_equal(serve_open(&config, &other), ST_BAD_SETTING);
    char port[32];
    text_format(port, sizeof(port), "STATUS_PORT=%d", serve_port(serve));
    assert_non_null(strstr(status_message(), port));
    assert_non_null(strstr(status_message(), "STATUS_ADDR=127.0.0.1"));
    assert_non_null(strstr(status_message(), strerror(EADDRINUSE)));
    assert_non_null(strstr(status_message(), "STATUS_PORT=0"));
    static const char *const bad[] = {"",     "not an address", "256.1.1.1",       "[::1",
                                      "::1]", "203.0.113.7",    "example.invalid", "[]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        config.addr = bad[i];
        config.port = -1;
        assert_int_equal(serve_open(&config, &other), ST_BAD_SETTING);
        assert_non_null(strstr(status_message(), bad[i]));
    }
    assert_null(other);
    serve_close(NULL);
}

TEST(ipv6_works)
{
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (probe < 0 || bind(probe, (struct sockaddr *)&to, sizeof(to)) != 0) {
        if (probe >= 0)
            close(probe);
        HARNESS_SKIP("no IPv6 loopback on this machine");
    }
    close(probe);
    static const char *const addrs[] = {"::1", "::"};
    for (size_t i = 0; i < 2; i++) {
        /* never run: the kernel connects all the same */
        struct event_base *base = event_base_new();
        struct serve_config config = {
            .loop = base, .board = board, .addr = addrs[i], .port = -1, .hang_ms = 1};
        struct serve *other;
        assert_int_equal(serve_open(&config, &other), ST_OK);
        int fd = socket(AF_INET6, SOCK_STREAM, 0);
        to.sin6_port = htons((uint16_t)serve_port(other));
        assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
        close(fd);
        serve_close(other);
        event_base_free(base);
    }
}

/* The server looks by itself, whether anybody asks or not. */
TEST(history_by_itself)
{
    worker.step = 7777; /* of no other test; behind what the tests before it left */
    worker.step_ms_n = 1;
    worker.phase = BOARD_PHASE_TRAINING;
    board_worker_publish(board, 0, &worker);
    const char *answer = "";
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000);
         clock_ms() < until_ms && strstr(answer, "7777") == NULL;) {
        clock_sleep_ms(50);
        answer = body_of(get("/history"));
    }
    assert_non_null(strstr(answer, "7777"));
    assert_non_null(strstr(answer, "\"kind\":\"phase\",\"text\":\"training\""));
}

/* What two readers could take differently, or what was meant for another host: refused, and the
 * connection ends, so that what follows is no second request. */
TEST(ambiguous_or_foreign)
{
#define NEXT "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    static const struct {
        int code;
        const char *ask;
    } rows[] = {
        {400, "GET /livez HTTP/1.1\r\n\r\n" NEXT},
        {400, "GET /livez HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n" NEXT},
        {400,
         "POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n" NEXT},
        {400, "GET /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n" NEXT},
        {400, "POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: "
              "chunked\r\n\r\n0\r\n\r\n" NEXT},
        {421, "GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n" NEXT},
        {421, "GET /livez HTTP/1.0\r\nHost: evil.example:8080\r\n\r\n" NEXT},
        {421, "GET http://evil.example/livez HTTP/1.1\r\nHost: x\r\n\r\n" NEXT},
        {421, "GET //evil.example/livez HTTP/1.1\r\nHost: x\r\n\r\n" NEXT},
        {405, "CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n" NEXT},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool closed;
        int fd = dial();
        say(fd, rows[i].ask, strlen(rows[i].ask));
        const char *answer = hear(fd, quiet_ms(1000), &closed);
        close(fd);
        if (code_of(answer) != rows[i].code || !closed ||
            strstr(answer + 1, "HTTP/1.1 200") != NULL)
            fail_msg("%s was answered %s", rows[i].ask, answer);
    }
    assert_int_equal(code_of(ask("GET /livez HTTP/1.0\r\n\r\n")), 200);
    assert_int_equal(
        code_of(ask("GET /livez HTTP/1.1\r\nHost: 10.1.2.3:31000\r\nConnection: close\r\n\r\n")),
        200);
    assert_int_equal(
        code_of(ask("GET /livez HTTP/1.1\r\nHost: [fd00::7]\r\nConnection: close\r\n\r\n")), 200);
    assert_int_equal(
        code_of(ask("GET /livez HTTP/1.1\r\nHost: train.example.org\r\nConnection: close\r\n\r\n")),
        200);
}

HARNESS_RUN_ALL_WITH(start_server, stop_server)
