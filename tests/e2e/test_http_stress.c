/* A run under hostile clients: malformed requests by the ten thousand, a thousand connections that
 * send nothing, or a byte now and then. The node does not crash, keeps no descriptor and hardly any
 * memory, and answers /livez all the while.
 *
 * STRESS_REQUESTS and STRESS_SECONDS in the environment ask for more (`make stress`). The run is
 * the real executable, so that descriptors and memory are those of the supervisor alone. */
#include "harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/rand.h"
#include "free_port.h"

enum { IDLE = 500, DRIP = 500, PROBES_MAX = 100000 };

static int port;
static pid_t run;
static int usual; /* descriptors of the supervisor when nobody asks */
static int64_t requests, drip_ms;

/* ---- the run ---- */

static int64_t number_of(const char *name, int64_t otherwise)
{
    const char *value = getenv(name);
    int64_t n;
    return value != NULL && text_parse_i64(value, 1, INT32_MAX, &n) == TEXT_OK ? n : otherwise;
}

/* ---- clients ---- */

/* A connection that leaves nothing in TIME_WAIT when it is closed; -1: not taken. */
static int dial(void)
{
    const struct linger reset = {1, 0};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Sends it all, listens until the server hangs up or says nothing for wait_ms. Returns the code of
 * the first answer; 0: hung up without one; -1: silent. */
static int talk(const uint8_t *bytes, size_t n, int wait_ms)
{
    char answer[512];
    size_t have = 0, sent = 0;
    int code = -1;
    const int fd = dial();
    if (fd < 0)
        return -1;
    while (sent < n) {
        const ssize_t out = send(fd, bytes + sent, n - sent, MSG_NOSIGNAL);
        if (out <= 0)
            break; /* hung up on */
        sent += (size_t)out;
    }
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (poll(&ready, 1, wait_ms) > 0) {
        char dropped[4096];
        const ssize_t got = have < sizeof answer - 1
                                ? recv(fd, answer + have, sizeof answer - 1 - have, 0)
                                : recv(fd, dropped, sizeof dropped, 0);
        if (got <= 0) {
            code = 0;
            break;
        }
        have += have < sizeof answer - 1 ? (size_t)got : 0;
    }
    close(fd);
    answer[have] = 0;
    return have >= 12 && text_starts(answer, "HTTP/1.") ? atoi(answer + 9) : code;
}

static bool is_ok(const char *path)
{
    char ask[128];
    text_format(ask, sizeof ask, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
    return talk((const uint8_t *)ask, strlen(ask), (int)harness_patience_ms(5000)) == 200;
}

static int64_t live_ns(void)
{
    const int64_t start_ns = clock_ns();
    return is_ok("/livez") ? clock_ns() - start_ns : -1;
}

static int by_time(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double ms_at(int64_t *ns, int n, double share)
{
    qsort(ns, (size_t)n, sizeof *ns, by_time);
    return n > 0 ? (double)ns[(int)(share * (n - 1))] / 1e6 : 0;
}

/* ---- what the supervisor holds ---- */

static int descriptors(void)
{
    char path[64];
    int n = 0;
    text_format(path, sizeof path, "/proc/%d/fd", (int)run);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* Of its own: not the pages of libraries, which come in when their code is first run. */
static int64_t resident_kib(void)
{
    char path[64];
    long long pages = 0, resident = 0, shared = 0;
    text_format(path, sizeof path, "/proc/%d/statm", (int)run);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld %lld %lld", &pages, &resident, &shared), 3);
    fclose(f);
    return (resident - shared) * (sysconf(_SC_PAGESIZE) / 1024);
}

/* The number that stays the same for longer than a sweep of the seats takes. */
static int descriptors_at_rest(void)
{
    int before = -1, now = descriptors();
    for (; now != before; now = descriptors()) {
        before = now;
        harness_wait_ms(1200);
    }
    return now;
}

static void settle(void)
{
    /* seats are swept twice a second, kept 10 s at most */
    for (int64_t until_ms = clock_ms() + harness_patience_ms(12000);
         descriptors() > usual && clock_ms() < until_ms;)
        clock_sleep_ms(50);
}

static int start_run(void **state)
{
    struct rlimit files = {8192, 8192};
    setrlimit(RLIMIT_NOFILE, &files);
    requests = number_of("STRESS_REQUESTS", 10000);
    drip_ms = 1000 * number_of("STRESS_SECONDS", 10);
    port = free_port();
    run = fork();
    if (run == 0) {
        const char *build = getenv("BUILD");
        char path[512], port_setting[32];
        text_format(path, sizeof path, "%s/convoy", build != NULL ? build : "build");
        text_format(port_setting, sizeof port_setting, "STATUS_PORT=%d", port);
        const int null = open("/dev/null", O_RDWR);
        dup2(null, 1), dup2(null, 2);
        execl(path, path, "train", "STATUS_ADDR=127.0.0.1", port_setting, "MODEL=gpt2-nano",
              "DATA=synthetic", "LAYERS=1", "HEADS=2", "EMBED=16", "VOCAB=64", "CONTEXT=32",
              "SEQ_LEN=16", "BATCH_SIZE=1", "STEPS=1000000000", NULL);
        _exit(127);
    }
    for (int64_t until_ms = clock_ms() + harness_patience_ms(30000);
         !is_ok("/readyz") && clock_ms() < until_ms;)
        clock_sleep_ms(50);
    if (!is_ok("/readyz")) {
        kill(run, SIGKILL);
        return -1;
    }
    usual = descriptors_at_rest();
    return 0;
}

static int end_run(void **state)
{
    int how = 0;
    kill(run, SIGTERM);
    return waitpid(run, &how, 0) == run && WIFEXITED(how) && WEXITSTATUS(how) == 143 ? 0 : -1;
}

/* ---- malformed requests ---- */

static uint64_t draw(uint64_t request, uint64_t i, uint64_t n)
{
    return rand_below(20260104, RAND_STREAM(TEST, 4), request * 64 + i, n);
}

#define H "Host: x\r\n"
#define END "\r\n\r\n"
/* Written by hand: smuggling, lengths, chunks, versions, addresses, bytes that no header has. */
static const char *const by_hand[] = {
    "GET /status HTTP/1.1\r\nHost: a\r\nHost: b" END,
    "POST /status HTTP/1.1\r\n" H "Content-Length: 5\r\nTransfer-Encoding: chunked" END "0" END
    "GET /livez HTTP/1.1" END,
    "POST /status HTTP/1.1\r\n" H "Content-Length: 5\r\nContent-Length: 6" END "hello!",
    "POST /status HTTP/1.1\r\n" H "Content-Length: +5" END "hello",
    "POST /status HTTP/1.1\r\n" H "Content-Length: 5, 5" END "hello",
    "POST /status HTTP/1.1\r\n" H "Content-Length: 0x5" END "hello",
    "POST /status HTTP/1.1\r\n" H "Content-Length: 18446744073709551616" END "hello",
    "POST /status HTTP/1.1\r\n" H "Content-Length: 9223372036854775807" END "hello",
    "POST /status HTTP/1.1\r\n" H "Transfer-Encoding: chunked" END "ffffffffffffffff\r\nx",
    "POST /status HTTP/1.1\r\n" H "Transfer-Encoding: chunked" END "-1\r\nx\r\n0" END,
    "POST /status HTTP/1.1\r\n" H "Transfer-Encoding: chunked" END "5;ext=\"\r\nhello\r\n0" END,
    "POST /status HTTP/1.1\r\n" H "Transfer-Encoding: chunked" END "zz\r\nhello" END,
    "POST /status HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity" END "0" END,
    "POST /status HTTP/1.1\r\n" H "Transfer-Encoding: xchunked" END "0" END,
    "POST /status HTTP/1.1\r\n" H "Transfer-Encoding : chunked" END "0" END,
    "POST /status HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 100000000" END,
    "GET /status HTTP/1.1\r\n" H "X: a\r\n folded\r\n\tagain" END,
    "GET /status HTTP/1.1\r\n : no name" END,
    "GET /status HTTP/1.1\r\n: empty name" END,
    "GET /status HTTP/1.1\r\nHost" END,
    "GET /status HTTP/1.1\n\nGET /livez HTTP/1.1\n\n",
    "GET /status HTTP/1.1\rHost: x\r\r",
    "GET  /status  HTTP/1.1" END,
    "GET /status\tHTTP/1.1" END,
    "GET /status HTTP/0.9" END,
    "GET /status HTTP/1.1.1" END,
    "GET /status HTTP/9" END,
    "GET /status HTTP/-1.1" END,
    "GET /status http/1.1" END,
    "GET /status HTTP/1.1 extra" END,
    "GET /status" END,
    "GET" END,
    END END,
    " " END,
    "GET http://[::1/livez HTTP/1.1" END,
    "GET http://x:99999/livez HTTP/1.1" END,
    "GET //// HTTP/1.1" END,
    "GET http://user:pass@/ HTTP/1.1" END,
    "GET file:///etc/passwd HTTP/1.1" END,
    "GET * HTTP/1.1" END,
    "GET /%zz%%%00 HTTP/1.1" END,
    "GET /\xff\xfe\xc0\x80 HTTP/1.1" END,
    "GET /../../../../etc/passwd HTTP/1.1" END,
    "OPTIONS * HTTP/1.1\r\n" H "Content-Length: 0" END,
    "CONNECT x:443 HTTP/1.1" END,
    "TRACE / HTTP/1.1\r\n" H END,
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" END,
    "HTTP/1.1 200 OK" END,
    "GET /status HTTP/1.1\r\n" H "Upgrade: websocket\r\nConnection: Upgrade" END,
    "GET /status HTTP/1.1\r\n" H "Connection: close, keep-alive" END,
    "GET /status HTTP/1.1\r\n" H "Range: bytes=-1" END,
};

/* A request by hand, of many or long headers, cut, injured, or of noise. Returns its size. */
static size_t compose(uint64_t r, uint8_t *out, size_t cap)
{
    const char *hand = by_hand[draw(r, 1, sizeof by_hand / sizeof *by_hand)];
    size_t n = strlen(hand);
    memcpy(out, hand, n);
    switch (draw(r, 0, 16)) {
    case 0: /* headers without end */
        n = (size_t)snprintf((char *)out, cap, "GET /livez HTTP/1.1\r\n");
        for (uint64_t i = 0, k = draw(r, 2, 3000); i < k; i++)
            n += (size_t)snprintf((char *)out + n, cap - n, "X%llu: y\r\n", (unsigned long long)i);
        return n;
    case 1: /* one line without end */
        n = 10 + draw(r, 2, 40000);
        memset(out, 'A' + (int)draw(r, 3, 26), n);
        memcpy(out, "GET /", 5);
        return n;
    case 2: /* noise */
        n = 1 + draw(r, 2, 400);
        for (size_t i = 0; i < n; i++)
            out[i] = (uint8_t)draw(r, 3 + i % 32, 256 - i % 7);
        return n;
    case 3:
        return n;
    case 4:
        return draw(r, 2, n);
    default: /* injured in one to four places */
        for (uint64_t i = 0, k = 1 + draw(r, 2, 4); i < k; i++)
            out[draw(r, 3 + i, n)] = (uint8_t)draw(r, 9 + i, 256);
        return n;
    }
}

TEST(test_malformed_requests)
{
    static uint8_t bytes[1 << 16];
    static int64_t live[PROBES_MAX];
    int live_n = 0, by_code[6] = {0};
    for (uint64_t r = 0; r < 300; r++) /* so that what is taken once and kept is there already */
        talk(bytes, compose(r, bytes, sizeof bytes), 1);
    settle();
    const int64_t before_kib = resident_kib(), start_ms = clock_ms();
    for (uint64_t r = 0; r < (uint64_t)requests; r++) {
        /* waiting longer for what never comes */
        const int code = talk(bytes, compose(r, bytes, sizeof bytes), 1);
        by_code[code >= 100 && code < 600 ? code / 100 : 0]++;
        if (r % 20 == 0 && live_n < PROBES_MAX) {
            live[live_n] = live_ns();
            if (live[live_n++] < 0)
                fail_msg("/livez was not answered after %llu requests", (unsigned long long)r);
        }
    }
    const int64_t elapsed_ms = clock_ms() - start_ms;
    settle();
    const int64_t grown_kib = resident_kib() - before_kib;
    print_message(
        "# %lld malformed requests in %.1f s: %d answered 2xx, %d 4xx, %d 5xx, %d hung up or "
        "unanswered; /livez %d times: median %.2f ms, 99 %% %.2f ms, longest %.2f ms\n",
        (long long)requests, (double)elapsed_ms / 1e3, by_code[2], by_code[4], by_code[5],
        by_code[0], live_n, ms_at(live, live_n, 0.5), ms_at(live, live_n, 0.99),
        ms_at(live, live_n, 1));
    print_message("# descriptors %d before, %d after; memory grew by %lld KiB\n", usual,
                  descriptors(), (long long)grown_kib);
    assert_int_equal(descriptors(), usual);
    assert_true(by_code[4] > 0 && by_code[1] + by_code[3] == 0);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) /* they keep what is freed for a while */
    assert_in_range(grown_kib > 0 ? grown_kib : 0, 0, 1024);
#endif
}

/* ---- slow ones ---- */

static void drip(const int *fds, int from, int n, char byte)
{
    for (int i = from; i < n; i++)
        if (fds[i] >= 0)
            send(fds[i], &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* is_shut — the server hung up; it is let go of. */
static bool is_shut(int fd)
{
    char c;
    const ssize_t got = recv(fd, &c, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
}

/* redial — those that were hung up on come back, like a client that means harm. Returns how
 * many. */
static int redial(int *fds, int n)
{
    int again = 0;
    for (int i = 0; i < n; i++) {
        if (fds[i] >= 0 && !is_shut(fds[i]))
            continue;
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = dial();
        again++;
    }
    return again;
}

TEST(test_slow_connections)
{
    static int fds[IDLE + DRIP];
    static int64_t live[PROBES_MAX];
    static const char head[] = "GET /status HTTP/1.1\r\nHost: x\r\nX-Drip: ";
    int live_n = 0, most = 0;
    int64_t again = 0;
    for (int i = 0; i < IDLE + DRIP; i++) {
        fds[i] = dial();
        if (i >= IDLE && fds[i] >= 0)
            send(fds[i], head, sizeof head - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    for (int64_t until_ms = clock_ms() + drip_ms; clock_ms() < until_ms && live_n < PROBES_MAX;
         clock_sleep_ms(100)) {
        drip(fds, IDLE, IDLE + DRIP, 'a');
        again += redial(fds, IDLE + DRIP);
        live[live_n] = live_ns();
        if (live[live_n++] < 0)
            fail_msg("/livez was not answered beside %d slow connections", IDLE + DRIP);
        const int now = descriptors();
        most = now > most ? now : most;
    }
    for (int i = 0; i < IDLE + DRIP; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    const int64_t end_ms = clock_ms();
    settle();
    print_message("# %d idle and %d dripping connections for %.0f s, %lld times hung up on and "
                  "back: at most %d descriptors over the usual, free again after %.1f s\n",
                  IDLE, DRIP, (double)drip_ms / 1e3, (long long)again, most - usual,
                  (double)(clock_ms() - end_ms) / 1e3);
    print_message("# /livez %d times meanwhile: median %.2f ms, 99 %% %.2f ms, longest %.2f ms\n",
                  live_n, ms_at(live, live_n, 0.5), ms_at(live, live_n, 0.99),
                  ms_at(live, live_n, 1));
    assert_int_equal(descriptors(), usual);
    assert_in_range(most - usual, 0, 64);
    assert_true(ms_at(live, live_n, 1) < (double)harness_patience_ms(2000));
}

TEST(test_still_alive)
{
    assert_true(live_ns() >= 0);
    assert_int_equal(waitpid(run, NULL, WNOHANG), 0);
}

HARNESS_RUN_ALL_WITH(start_run, end_run)
