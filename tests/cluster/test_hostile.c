/* Hostile connections to node 0: random bytes, another key, an older TLS, a hello without a key,
 * replayed sessions, broken requests under the right key. None is admitted, memory and descriptors
 * do not grow, and a right node still joins at once. CLUSTER_HOSTILE sets the number of sessions
 * (500 by default). */
#include "cluster/nodes.h"

#include <sys/resource.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/rand.h"
#include "cluster/message.h"
#include "net/psk.h"

static const char *token = "the right token";
static uint64_t draws;
static uint32_t draw(uint32_t n)
{
    return (uint32_t)rand_below(77, RAND_STREAM(TEST, 9), ++draws, n);
}

static int dial(int port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = {harness_patience_ms(3000) / 1000, 0};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    int64_t until_ms = clock_ms() + harness_patience_ms(5000); /* node 0 may not listen yet */
    while (connect(fd, (struct sockaddr *)&name, sizeof(name)) != 0 && errno == ECONNREFUSED &&
           clock_ms() < until_ms)
        clock_sleep_ms(20);
    if (getpeername(fd, (struct sockaddr *)&name, &(socklen_t){sizeof name}) != 0)
        fail_msg("cannot connect: %s", strerror(errno));
    return fd;
}

/* Reads until the other side closes the connection or pauses; out: the first bytes. */
static ssize_t drain(int fd, char *out, size_t cap)
{
    size_t n = 0;
    ssize_t got;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (n < cap && poll(&wait, 1, 300) > 0 && (got = read(fd, out + n, cap - n)) > 0)
        n += (size_t)got;
    return (ssize_t)n;
}

static void random_bytes(int port)
{
    uint8_t bytes[600];
    char back[4096];
    size_t n = 1 + draw(sizeof(bytes) - 1);
    int fd = dial(port);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)draw(256);
    if (draw(2) == 0) { /* looks like a TLS record */
        static const uint8_t head[] = {22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3};
        memcpy(bytes, head, n < sizeof(head) ? n : sizeof(head));
    }
    if (write(fd, bytes, n) > 0) {
        shutdown(fd, SHUT_WR);
        ssize_t got = drain(fd, back, sizeof(back) - 1);
        back[got > 0 ? got : 0] = 0;
        assert_null(strstr(back, "HTTP/1.1 200"));
    }
    close(fd);
}

/* A TLS handshake with this key and these versions; NULL: refused. A client of TLS 1.3 finishes
 * before the server has checked the key, so the first read decides. */
static SSL *shake(SSL_CTX *ctx, int fd)
{
    SSL *ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) == 1)
        return ssl;
    ERR_clear_error();
    SSL_free(ssl);
    return NULL;
}

static void other_key(int port, int version)
{
    struct psk wrong = {0};
    char byte;
    for (size_t i = 0; i < sizeof wrong.key; i++)
        wrong.key[i] = (uint8_t)draw(256);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (version == TLS1_3_VERSION)
        psk_set_client_ctx(ctx, &wrong);
    else {
        SSL_CTX_set_max_proto_version(ctx, version);
        SSL_CTX_set_cipher_list(ctx, "ALL:@SECLEVEL=0");
    }
    int fd = dial(port);
    SSL *ssl = shake(ctx, fd);
    if (ssl != NULL) {
        assert_true(SSL_read(ssl, &byte, 1) <= 0);
        ERR_clear_error();
        SSL_free(ssl);
    }
    SSL_CTX_free(ctx);
    close(fd);
}

/* ---- under the right key ---- */

static void right_key_bad_request(int port, SSL_CTX *ctx)
{
    static const char *bodies[] = {"{",
                                   "{}",
                                   "[]",
                                   "null",
                                   "\"x\"",
                                   "{\"protocol\":1}",
                                   "{\"protocol\":1,\"node_id\":-1}",
                                   "{\"protocol\":1,\"node_id\":1e99}",
                                   "{\"node_id\":1,\"instance\":\"00\"}"};
    char request[2048], back[2048] = "", body[1024];
    int fd = dial(port);
    SSL *ssl = shake(ctx, fd);
    assert_non_null(ssl);
    text_copy(body, sizeof(body), bodies[draw(sizeof(bodies) / sizeof(bodies[0]))]);
    if (draw(2) == 0) { /* a right message, truncated */
        struct text heartbeat = {0};
        struct message_heartbeat right = {.node_id = 1, .incarnation = {1, 2}, .sequence = 1};
        message_write_heartbeat(&heartbeat, &right, NULL, 0);
        text_copy(body, 1 + draw((uint32_t)heartbeat.len - 1), heartbeat.data);
        text_free(&heartbeat);
    }
    static const char *paths[] = {"/v1/say", "/v1/world", "/", "/v1/say/../world"};
    text_format(request, sizeof(request),
                "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
                draw(8) == 0 ? "GET" : "POST", paths[draw(4)],
                strlen(body) + (draw(8) == 0 ? 400000 : 0), body);
    assert_true(SSL_write(ssl, request, (int)strlen(request)) > 0);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, 200) > 0 && SSL_read(ssl, back, sizeof(back) - 1) > 0)
        assert_null(strstr(back, "HTTP/1.1 200"));
    ERR_clear_error();
    SSL_free(ssl);
    close(fd);
}

static void say(SSL *ssl, const struct message_heartbeat *heartbeat,
                const struct message_join *join, int64_t hold_ms, const char *after)
{
    struct text body = {0}, request = {0};
    message_write_heartbeat(&body, heartbeat, join, hold_ms);
    text_add(&request, "POST /v1/say HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", body.len);
    text_add_bytes(&request, body.data, body.len);
    text_add(&request, "%s", after);
    assert_true(SSL_write(ssl, request.data, (int)request.len) > 0);
    text_free(&body);
    text_free(&request);
}

/* A member sends a second request while its heartbeat is held. That must not end node 0. */
static void pipelined_while_held(int port, SSL_CTX *ctx)
{
    char back[8192] = "";
    struct message_heartbeat heartbeat = {.node_id = 1, .incarnation = {7, 7}, .sequence = 1};
    struct message_join join = {MESSAGE_PROTOCOL, 2, 1, 1, "x", agree, 0, NULL, {0, 0}};
    struct message_reply reply;
    int fd = dial(port);
    SSL *ssl = shake(ctx, fd);
    assert_non_null(ssl);
    say(ssl, &heartbeat, &join, 0, "");
    int got = SSL_read(ssl, back, sizeof(back) - 1);
    assert_true(got > 0 && strstr(back, "HTTP/1.1 200") != NULL);
    char *body = strstr(back, "\r\n\r\n");
    if (strlen(body) <= 4) /* only the headers have arrived */
        got += SSL_read(ssl, back + got, (int)sizeof(back) - 1 - got);
    body = strstr(back, "\r\n\r\n") + 4;
    assert_int_equal(message_read_reply(body, strlen(body), &reply), ST_OK);
    assert_int_equal(reply.answer, MESSAGE_ANSWER_MEMBER);
    heartbeat.sequence = 2;
    heartbeat.revision = reply.revision;
    say(ssl, &heartbeat, NULL, 500, "");
    for (int i = 0; i < 20; i++) {
        clock_sleep_ms(20);
        if (SSL_write(ssl, "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n", 39) <= 0)
            break;
    }
    harness_wait_ms(300);
    ERR_clear_error();
    SSL_free(ssl);
    close(fd);
}

/* ---- a recorded session ---- */

static char recorded[65536];
static size_t recorded_n;

/* Records what a right client sends in a whole session, byte for byte. */
static void record(int port, SSL_CTX *ctx)
{
    int fd = dial(port);
    SSL *ssl = SSL_new(ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    struct message_heartbeat heartbeat = {.node_id = 1, .incarnation = {8, 8}, .sequence = 1};
    struct message_join join = {MESSAGE_PROTOCOL, 2, 1, 1, "x", agree, 0, NULL, {0, 0}};
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    for (int i = 0; i < 10 && !SSL_is_init_finished(ssl); i++) {
        char bytes[8192];
        SSL_do_handshake(ssl);
        int n = BIO_read(out, bytes, sizeof(bytes));
        if (n > 0) {
            memcpy(recorded + recorded_n, bytes, (size_t)n);
            recorded_n += (size_t)n;
            assert_true(write(fd, bytes, (size_t)n) == n);
        }
        ssize_t got = SSL_is_init_finished(ssl) ? 0 : read(fd, bytes, sizeof(bytes));
        if (got > 0)
            BIO_write(in, bytes, (int)got);
    }
    assert_true(SSL_is_init_finished(ssl));
    say(ssl, &heartbeat, &join, 0, "");
    char bytes[16384];
    int n = BIO_read(out, bytes, sizeof(bytes));
    memcpy(recorded + recorded_n, bytes, (size_t)n);
    recorded_n += (size_t)n; /* recorded, not sent on */
    SSL_free(ssl);
    close(fd);
}

/* ---- memory and descriptors of node 0 ---- */

static long kib_of(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    text_format(path, sizeof(path), "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    }
    if (f != NULL)
        fclose(f);
    return kib;
}

static int fds_of(pid_t pid)
{
    char path[64];
    int n = 0;
    for (int fd = 0; fd < 2000; fd++) {
        text_format(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
        n += access(path, F_OK) == 0 || readlink(path, (char[8]){0}, 8) > 0;
    }
    return n;
}

static void one_bad_session(int port, SSL_CTX *ctx)
{
    uint32_t kind = draw(100);
    if (kind < 35)
        random_bytes(port);
    else if (kind < 40) {
        static const char request[] =
            "POST /v1/say HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
        char back[1024];
        int fd = dial(port);
        assert_true(write(fd, request, sizeof(request) - 1) > 0);
        ssize_t got = drain(fd, back, sizeof(back) - 1);
        back[got > 0 ? got : 0] = 0;
        assert_null(strstr(back, "HTTP/1.1 200"));
        close(fd);
    } else if (kind < 60)
        other_key(port, TLS1_3_VERSION);
    else if (kind < 70)
        other_key(port, TLS1_2_VERSION);
    else if (kind < 80) {
        char back[4096];
        int fd = dial(port);
        if (write(fd, recorded, recorded_n) > 0) {
            shutdown(fd, SHUT_WR);
            drain(fd, back, sizeof(back));
        }
        close(fd);
    } else
        right_key_bad_request(port, ctx);
}

TEST(none_is_admitted)
{
    struct node zero, one;
    struct psk psk;
    char port_text[8], line[256];
    int port = free_port(), sessions_n = harness_number("CLUSTER_HOSTILE", 500);
    text_format(port_text, sizeof(port_text), "%d", port);
    start_words(&zero, 0, (const char *[]){"2", "127.0.0.1", port_text, token, agree, "900000"}, 6);
    harness_wait_ms(500);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    assert_int_equal(psk_derive(token, &psk), ST_OK);
    assert_true(psk_set_client_ctx(ctx, &psk));
    record(port, ctx);
    for (int i = 0; i < 200; i++)
        one_bad_session(port, ctx);
    harness_wait_ms(300);
    long kib = kib_of(zero.pid);
    int fds = fds_of(zero.pid);
    int64_t start_ms = clock_ms();
    /* The allocator keeps what the peak has needed. A leak would go on in the second half. */
    long half_kib = 0;
    for (int i = 0; i < sessions_n; i++) {
        one_bad_session(port, ctx);
        if (i == sessions_n / 2)
            half_kib = kib_of(zero.pid);
    }
    int64_t elapsed_ms = clock_ms() - start_ms;
    for (int64_t until_ms = clock_ms() + harness_patience_ms(10000);
         fds_of(zero.pid) != fds && clock_ms() < until_ms;)
        clock_sleep_ms(100); /* node 0 closes the last strangers */
    long end_kib = kib_of(zero.pid);
    print_message("# %d bad sessions in %.1f s: none admitted, memory %+ld KiB, of which in the "
                  "second half %+ld, descriptors %+d\n",
                  sessions_n, (double)elapsed_ms / 1e3, end_kib - kib, end_kib - half_kib,
                  fds_of(zero.pid) - fds);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) /* sanitizers keep freed memory */
    assert_true(end_kib - half_kib < 1024 && end_kib - kib < 4096);
#endif
    assert_int_equal(fds_of(zero.pid), fds);
    pipelined_while_held(port, ctx);
    harness_wait_ms(800); /* node 0 sees that its connection is closed */
    start_words(&one, 1, (const char *[]){"2", "127.0.0.1", port_text, token, agree}, 5);
    expect(&zero, "world 1", 3000, line, sizeof(line));
    SSL_CTX_free(ctx);
    command(&one, "leave");
    command(&zero, "leave");
    assert_int_equal(exit_of(&zero), 0); /* a sanitizer would exit otherwise */
    assert_int_equal(exit_of(&one), 0);
}

/* ---- many silent connections ---- */

#define CROWD 2000

/* Starts a process that holds CROWD connections, and opens each one again that node 0 closes. They
 * come from one address, or from 250. Each of its descriptors is a connection. */
static pid_t hold_crowd(int port, bool is_of_many)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct rlimit limit = {CROWD + 100, CROWD + 100};
    static struct pollfd all[CROWD];
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < CROWD; i++)
        all[i] = (struct pollfd){.fd = -1, .events = POLLIN | POLLRDHUP};
    for (int from = 0; getppid() != 1;) {
        for (int i = 0; i < CROWD; i++) {
            struct sockaddr_in own = {.sin_family = AF_INET};
            if (all[i].fd >= 0 && all[i].revents != 0) {
                close(all[i].fd);
                all[i].fd = -1;
            }
            all[i].revents = 0;
            if (all[i].fd >= 0)
                continue;
            all[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            own.sin_addr.s_addr =
                htonl(INADDR_LOOPBACK + 1 + (is_of_many ? (uint32_t)(from++ % 250) : 0));
            if (bind(all[i].fd, (const struct sockaddr *)&own, sizeof(own)) == 0)
                (void)connect(all[i].fd, (const struct sockaddr *)&to, sizeof(to));
        }
        poll(all, CROWD, 10);
    }
    _exit(0);
}

/* Kills node 1 and starts it again. Returns how long it takes to be back. */
static int64_t rejoin_ms(struct node *zero, struct node *one, int port, int world)
{
    char port_text[8], word[32], line[256];
    text_format(port_text, sizeof(port_text), "%d", port);
    text_format(word, sizeof(word), "world %d", world);
    end_node(one);
    clock_sleep_ms(1500); /* node 0 has seen its end */
    int64_t start_ms = clock_ms();
    start_words(one, 1, (const char *[]){"2", "127.0.0.1", port_text, token, agree}, 5);
    expect(zero, word, 15000, line, sizeof(line));
    return clock_ms() - start_ms;
}

/* Waits for at most 5 s until node 0 holds no more than `few` descriptors in three readings in a
 * row, and returns the last reading. Node 0 accepts the dead connections of the backlog in bursts
 * of 64, so a single low reading may stand between two bursts. */
static int fds_after_crowd(pid_t pid, int few)
{
    int fds = fds_of(pid);
    int low_n = 0;
    for (int64_t until_ms = clock_ms() + harness_patience_ms(5000);
         low_n < 3 && clock_ms() < until_ms;) {
        clock_sleep_ms(100);
        fds = fds_of(pid);
        low_n = fds <= few ? low_n + 1 : 0;
    }
    return fds;
}

/* A silent connection is closed after one second; half a TLS hello counts as silence. */
TEST(a_silent_connection_is_closed_after_a_second)
{
    struct node zero;
    char port_text[8], byte;
    int port = free_port();
    text_format(port_text, sizeof(port_text), "%d", port);
    start_words(&zero, 0, (const char *[]){"2", "127.0.0.1", port_text, token, agree}, 5);
    harness_wait_ms(500);
    for (int i = 0; i < 2; i++) {
        int64_t start_ms = clock_ms();
        int fd = dial(port);
        if (i == 1)
            assert_int_equal(write(fd, "\x16\x03\x01\x00\xc8\x01", 6), 6);
        assert_int_equal(read(fd, &byte, 1), 0);
        assert_in_range(clock_ms() - start_ms, 800, harness_patience_ms(2900));
        close(fd);
    }
    end_node(&zero);
}

/* 2,000 silent connections, from one address and then from many, opened again as node 0 closes
 * them. A lost node is back within 5 s. Node 0 holds few of the connections, and none after their
 * end. */
TEST(silent_connections_do_not_lock_a_node_out)
{
    struct node zero, one;
    char port_text[8];
    int port = free_port();
    text_format(port_text, sizeof(port_text), "%d", port);
    start_words(&zero, 0,
                (const char *[]){"2", "127.0.0.1", port_text, token, agree, "60000", "1", "9"}, 8);
    start_words(&one, 1, (const char *[]){"2", "127.0.0.1", port_text, token, agree}, 5);
    expect(&zero, "world 1", 6000, NULL, 0);
    int before = fds_of(zero.pid);
    for (int i = 0; i < 2; i++) {
        pid_t crowd = hold_crowd(port, i == 1);
        clock_sleep_ms(1000);
        int64_t elapsed_ms = rejoin_ms(&zero, &one, port, 2 + i);
        print_message(
            "# %d silent connections of %s: back in %lld ms, node 0 holds %d descriptors more\n",
            CROWD, i == 1 ? "250 addresses" : "one address", (long long)elapsed_ms,
            fds_of(zero.pid) - before);
        assert_in_range(elapsed_ms, 0, harness_patience_ms(5000));
        assert_in_range(fds_of(zero.pid), 0, before + 300);
        kill(crowd, SIGKILL);
        waitpid(crowd, NULL, 0);
    }
    assert_in_range(fds_after_crowd(zero.pid, before + 4), before - 4, before + 4);
    end_node(&zero);
    end_node(&one);
}

NODES_MAIN(NULL)
