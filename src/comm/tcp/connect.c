/* tcp_connect — connects this rank to a lower one, and both authenticate. A connection that ends
 * before WELCOME is retried for a while: the peer may have dropped it among many others. Must not
 * know messages. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp/inside.h"

#define RETRY_NS ((int64_t)50000000)
#define GIVE_UP_NS ((int64_t)20000000000)
/* A peer listens before its address is distributed. Even so its port may refuse for a moment: a
 * firewall or a proxy of a new machine is not set up yet. If a peer has ended, its node reports it
 * meanwhile. */
#define REFUSED_NS ((int64_t)5000000000)
#define HANDSHAKE_NS ((int64_t)6000000000)

/* Closes the attempt. Another attempt follows unless limit_ns have passed since the first one. */
static void retry_within(struct tcp_conn *conn, int64_t limit_ns, const char *why)
{
    int64_t now_ns = clock_ns();
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
    if (now_ns - conn->since_ns > limit_ns) {
        conn->connect_state = TCP_CONNECT_NONE;
        tcp_conn_lose(conn, why);
        return;
    }
    conn->connect_state = TCP_CONNECT_RETRY;
    conn->timer_ns = now_ns + RETRY_NS;
}

static void retry_later(struct tcp_conn *conn, const char *why)
{
    retry_within(conn, GIVE_UP_NS, why);
}

static void end_attempt(struct tcp_conn *conn, int error)
{
    const bool may_pass = error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH;
    retry_within(conn, may_pass ? REFUSED_NS : 0, strerrordesc_np(error));
}

/* Connects from the address that this rank listens on, so that peers see one address of a node that
 * has several. */
static void start_attempt(struct tcp_conn *conn)
{
    struct sockaddr_storage from = conn->tcp->own;
    conn->fd = socket(conn->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    conn->received_n = conn->auth.transcript_n = 0;
    if (conn->fd < 0) {
        retry_later(conn, strerrordesc_np(errno));
        return;
    }
    if (from.ss_family == conn->to.ss_family)
        tcp_addr_bind(conn->fd, &from);
    conn->connect_state = TCP_CONNECT_SYN;
    conn->timer_ns = clock_ns() + GIVE_UP_NS;
    if (connect(conn->fd, (struct sockaddr *)&conn->to, conn->to_bytes) != 0 &&
        errno != EINPROGRESS)
        end_attempt(conn, errno);
}

void tcp_connect_begin(struct tcp_conn *conn)
{
    conn->since_ns = clock_ns();
    memcpy(conn->auth.secret, conn->tcp->messenger->secret, sizeof(conn->auth.secret));
    start_attempt(conn);
}

static void send_hello(struct tcp_conn *conn)
{
    const struct messenger *messenger = conn->tcp->messenger;
    const struct tcp_auth_ids ids = {.generation = messenger->mine.generation,
                                     .client = messenger->rank,
                                     .server = conn->peer->rank,
                                     .ranks = messenger->ranks};
    uint8_t hello[TCP_AUTH_HELLO_BYTES];
    int error = 0;
    socklen_t bytes = sizeof(error);
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
        end_attempt(conn, error);
        return;
    }
    tcp_tune(conn->fd);
    conn->connect_state = TCP_CONNECT_ANSWER;
    conn->timer_ns = clock_ns() + HANDSHAKE_NS;
    if (!tcp_auth_make_hello(&conn->auth, &ids, hello) ||
        send(conn->fd, hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(hello))
        retry_later(conn, "it does not accept the HELLO");
}

/* Reads the answer. If it does not authenticate, it comes from another process at the peer's
 * address. */
static const char *handle_answer(struct tcp_conn *conn)
{
    uint8_t proof[TCP_AUTH_PROOF_BYTES];
    if (!tcp_auth_read_answer(&conn->auth, conn->received))
        return "the process there does not have this generation's secret";
    if (!tcp_auth_make_proof(&conn->auth, proof) ||
        send(conn->fd, proof, sizeof(proof), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(proof))
        return "it closed the connection";
    conn->connect_state = TCP_CONNECT_WELCOME;
    return NULL;
}

static const char *handle_welcome(struct tcp_conn *conn)
{
    int fd = conn->fd;
    if (!tcp_auth_read_welcome(&conn->auth, conn->received))
        return "the process there does not have this generation's secret";
    if (!tcp_conn_up(conn, fd, &conn->auth, true))
        return "out of memory";
    message_seal_wipe(&conn->auth, sizeof(conn->auth));
    return NULL;
}

static unsigned receive_reply(struct tcp_conn *conn)
{
    bool is_answer = conn->connect_state == TCP_CONNECT_ANSWER;
    int received = tcp_accept_receive(conn->fd, conn->received, &conn->received_n,
                                      is_answer ? TCP_AUTH_ANSWER_BYTES : TCP_AUTH_WELCOME_BYTES);
    const char *why = NULL;
    if (received > 0)
        why = is_answer ? handle_answer(conn) : handle_welcome(conn);
    else if (received < 0)
        why = "it closes connections during the handshake";
    else if (clock_ns() > conn->timer_ns)
        why = "it does not answer the HELLO";
    if (why != NULL)
        retry_later(conn, why);
    return received > 0;
}

unsigned tcp_connect_progress(struct tcp_conn *conn)
{
    struct pollfd writable = {.fd = conn->fd, .events = POLLOUT};
    switch (conn->connect_state) {
    case TCP_CONNECT_NONE:
        return 0;
    case TCP_CONNECT_RETRY:
        if (clock_ns() >= conn->timer_ns)
            start_attempt(conn);
        return 0;
    case TCP_CONNECT_SYN:
        if (poll(&writable, 1, 0) > 0)
            send_hello(conn);
        else if (clock_ns() > conn->timer_ns)
            end_attempt(conn, ETIMEDOUT);
        return 0;
    default:
        return receive_reply(conn);
    }
}
