/* tcp_accept — accepts connections from higher ranks. Each is pending until it has proved its rank.
 *
 * The port is open only while peers are missing. A pending connection has a few seconds and a
 * buffer of fixed size. Their number is limited: a new connection replaces the oldest one, and
 * connections without a valid HELLO are replaced first. Must not know messages. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/tcp/inside.h"

#define PENDING_EXTRA 64 /* pending connections in addition to one for each rank */
#define HANDSHAKE_NS ((int64_t)5000000000)
#define ACCEPT_AT_ONCE 64
#define LOG_MS 1000

static const char unauthenticated[] = "it does not have this generation's secret";

static atomic_int_fast64_t refused;

int64_t tcp_accept_refused(void) { return refused; }

void tcp_accept_refuse(struct tcp *tcp, int fd, const char *why)
{
    struct sockaddr_storage from;
    socklen_t bytes = sizeof(from);
    char name[64] = "a connected rank";
    int64_t now_ms = clock_ms();
    refused++;
    tcp->refused_n++;
    if (fd >= 0 && getpeername(fd, (struct sockaddr *)&from, &bytes) == 0)
        tcp_addr_text(&from, name, sizeof(name));
    if (fd >= 0)
        close(fd);
    if (tcp->refused_log_ms != 0 && now_ms - tcp->refused_log_ms < LOG_MS)
        return;
    LOG_WARN("closed %lld connection%s to the port of workers; the last, from %s: %s",
             (long long)tcp->refused_n, tcp->refused_n == 1 ? "" : "s", name, why);
    tcp->refused_log_ms = now_ms;
    tcp->refused_n = 0;
}

static void refuse_pending(struct tcp *tcp, struct tcp_pending *pending, const char *why)
{
    tcp_accept_refuse(tcp, pending->fd, why);
    pending->fd = -1;
    message_seal_wipe(&pending->auth, sizeof(pending->auth));
}

void tcp_accept_open(struct tcp *tcp)
{
    tcp->pending_n = PENDING_EXTRA + tcp->messenger->ranks;
    tcp->pending = memory_new((size_t)tcp->pending_n, sizeof(*tcp->pending));
    for (int i = 0; i < tcp->pending_n; i++)
        tcp->pending[i].fd = -1;
}

/* Returns a free slot, or the slot of the oldest pending connection, first among the connections
 * without a valid HELLO. */
static struct tcp_pending *find_slot(struct tcp *tcp)
{
    struct tcp_pending *oldest = &tcp->pending[0];
    for (int i = 0; i < tcp->pending_n; i++) {
        struct tcp_pending *pending = &tcp->pending[i];
        if (pending->fd < 0)
            return pending;
        bool is_less = oldest->has_hello && !pending->has_hello;
        if (is_less ||
            (oldest->has_hello == pending->has_hello && pending->since_ns < oldest->since_ns))
            oldest = pending;
    }
    refuse_pending(tcp, oldest, "too many pending connections");
    return oldest;
}

int tcp_accept_receive(int fd, uint8_t *received, size_t *received_n, size_t want)
{
    ssize_t n = recv(fd, received + *received_n, want - *received_n, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return -1;
    *received_n += n > 0 ? (size_t)n : 0;
    if (*received_n < want)
        return 0;
    *received_n = 0;
    return 1;
}

static bool send_reply(int fd, const uint8_t *data, size_t n)
{
    return send(fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

/* Returns the connection that this rank expects from that rank, or NULL: a rank connects only to
 * lower ranks. */
static struct tcp_conn *find_awaited(const struct tcp *tcp, int rank)
{
    struct tcp_conn *conn = &tcp->conns[rank];
    return rank > tcp->messenger->rank && conn->peer != NULL && !conn->is_up ? conn : NULL;
}

static const char *handle_hello(struct tcp *tcp, struct tcp_pending *pending)
{
    const struct messenger *messenger = tcp->messenger;
    struct tcp_auth_ids ids = {.generation = messenger->mine.generation,
                               .client = -1,
                               .server = messenger->rank,
                               .ranks = messenger->ranks};
    uint8_t answer[TCP_AUTH_ANSWER_BYTES];
    if (!tcp_auth_read_hello(&pending->auth, &ids, pending->received))
        return unauthenticated;
    pending->client = ids.client;
    pending->has_hello = true;
    if (find_awaited(tcp, ids.client) == NULL)
        return "that rank is connected already";
    return tcp_auth_make_answer(&pending->auth, answer) &&
                   send_reply(pending->fd, answer, sizeof(answer))
               ? NULL
               : "it closed the connection";
}

static const char *handle_proof(struct tcp *tcp, struct tcp_pending *pending)
{
    struct tcp_conn *conn = find_awaited(tcp, pending->client);
    uint8_t welcome[TCP_AUTH_WELCOME_BYTES];
    if (!tcp_auth_read_proof(&pending->auth, pending->received))
        return unauthenticated;
    if (conn == NULL)
        return "that rank is connected already";
    if (!tcp_auth_make_welcome(&pending->auth, welcome) ||
        !send_reply(pending->fd, welcome, sizeof(welcome)) ||
        !tcp_conn_up(conn, pending->fd, &pending->auth, false))
        return "it closed the connection";
    tcp_tune(pending->fd);
    pending->fd = -1;
    message_seal_wipe(&pending->auth, sizeof(pending->auth));
    return NULL;
}

static unsigned progress_pending(struct tcp *tcp, struct tcp_pending *pending, int64_t now_ns)
{
    int received =
        tcp_accept_receive(pending->fd, pending->received, &pending->received_n,
                           pending->has_hello ? TCP_AUTH_PROOF_BYTES : TCP_AUTH_HELLO_BYTES);
    const char *why = NULL;
    if (received < 0)
        why = "it closed without authenticating";
    else if (received > 0)
        why = pending->has_hello ? handle_proof(tcp, pending) : handle_hello(tcp, pending);
    else if (now_ns - pending->since_ns > HANDSHAKE_NS)
        why = "it did not authenticate in time";
    if (why != NULL)
        refuse_pending(tcp, pending, why);
    return received > 0;
}

unsigned tcp_accept_progress(struct tcp *tcp)
{
    unsigned moved = 0;
    for (; moved < ACCEPT_AT_ONCE; moved++) {
        int fd = accept4(tcp->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
        struct tcp_pending *pending = find_slot(tcp);
        *pending = (struct tcp_pending){.fd = fd, .since_ns = clock_ns()};
        memcpy(pending->auth.secret, tcp->messenger->secret, sizeof(pending->auth.secret));
    }
    int64_t now_ns = clock_ns();
    for (int i = 0; i < tcp->pending_n; i++)
        if (tcp->pending[i].fd >= 0)
            moved += progress_pending(tcp, &tcp->pending[i], now_ns);
    return moved;
}

int tcp_accept_polls(const struct tcp *tcp, struct pollfd *out)
{
    int n = 0;
    if (tcp->listen_fd >= 0)
        out[n++] = (struct pollfd){.fd = tcp->listen_fd, .events = POLLIN};
    for (int i = 0; i < tcp->pending_n; i++)
        if (tcp->pending[i].fd >= 0)
            out[n++] = (struct pollfd){.fd = tcp->pending[i].fd, .events = POLLIN};
    return n;
}

void tcp_accept_close(struct tcp *tcp)
{
    for (int i = 0; i < tcp->pending_n; i++)
        if (tcp->pending[i].fd >= 0)
            refuse_pending(tcp, &tcp->pending[i], "all ranks are connected");
    free(tcp->pending);
    tcp->pending = NULL;
    tcp->pending_n = 0;
    if (tcp->listen_fd >= 0)
        close(tcp->listen_fd);
    tcp->listen_fd = -1;
}
