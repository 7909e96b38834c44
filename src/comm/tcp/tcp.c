/* tcp — the driver over TCP: sockets on one address, closed to all processes but the ranks of a
 * generation.
 *
 * A rank listens from the moment its address is packed until all peers are connected; then it
 * closes the port. The rank with the higher number connects to the lower one. auth.h authenticates
 * peers, frame.h messages. Content is not encrypted.
 *
 * Progress reads every socket if there are few, else only the sockets that poll(2) reports. Must
 * not know calls. */
#include <errno.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/tcp/inside.h"
#include "comm/ucx/env.h"

#define BACKLOG 4096
#define READ_ALL_MAX 3 /* most connections that are read without poll(2) */
/* calls of progress for one that also reads connections without an awaited message */
#define READ_UNAWAITED_EVERY 16
#define SEND_NOW_BYTES (64 << 10) /* longest message that is sent within the call that begins it */

static struct tcp *state_of(const struct messenger *messenger) { return messenger->state; }

/* Disables the delay of short messages, and enables keepalive, which reports a dead host even if
 * nothing is sent to it. */
bool tcp_tune(int fd)
{
    const int on = 1, idle = 5, every = 2, times = 3;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every)) == 0 &&
           setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times)) == 0;
}

/* ---- life ---- */

static enum status open_tcp(const struct message_config *config, void **state_out)
{
    struct tcp *tcp = memory_new(1, sizeof(*tcp));
    socklen_t bytes = 0;
    *state_out = tcp;
    tcp->listen_fd = -1;
    tcp->unexpected_max = config->eager_bytes;
    const char *asked = config->data_addr;
    char device[IF_NAMESIZE + 1];
    ucx_env_device(device, sizeof(device));
    if (asked == NULL || asked[0] == 0)
        asked = device; /* the device set for UCX applies to TCP too */
    TRY(tcp_addr_choose(asked, config->master, &tcp->own, &bytes));
    char name[64];
    tcp_addr_text(&tcp->own, name, sizeof(name));
    tcp->listen_fd = socket(tcp->own.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (tcp->listen_fd < 0)
        return FAIL(ST_RETRY, "no socket for workers of other nodes: %s", strerror(errno));
    if (bind(tcp->listen_fd, (struct sockaddr *)&tcp->own, bytes) != 0)
        return errno == EADDRNOTAVAIL
                   ? FAIL(ST_RETRY,
                          "%s is not an address of this node; set DATA_ADDR to an interface or "
                          "address of this node",
                          name)
                   : FAIL(ST_RETRY, "cannot listen on %s: %s", name, strerror(errno));
    bytes = sizeof(tcp->own);
    if (listen(tcp->listen_fd, BACKLOG) != 0 ||
        getsockname(tcp->listen_fd, (struct sockaddr *)&tcp->own, &bytes) != 0)
        return FAIL(ST_RETRY, "cannot listen on %s: %s", name, strerror(errno));
    return ST_OK;
}

static void drop_tcp(struct messenger *messenger)
{
    struct tcp *tcp = state_of(messenger);
    tcp_accept_close(tcp);
    for (int i = 0; i < tcp->conns_n; i++)
        if (tcp->conns[i].peer != NULL)
            tcp_conn_down(&tcp->conns[i]);
    tcp->conns_n = 0;
}

static void close_tcp(void *state)
{
    struct tcp *tcp = state;
    for (int i = 0; i < tcp->conns_n; i++)
        if (tcp->conns[i].peer != NULL)
            tcp_conn_down(&tcp->conns[i]);
    tcp_accept_close(tcp);
    free(tcp->conns);
    free(tcp->polls);
    free(tcp->polled);
    free(tcp);
}

static enum status address(void *state, bool is_intra_node, void *out, int64_t cap,
                           int64_t *bytes_out)
{
    const struct tcp *tcp = state;
    struct tcp_addr_packed packed;
    (void)is_intra_node;
    ASSERT(cap >= (int64_t)sizeof(packed));
    tcp_addr_pack(&tcp->own, &packed);
    memcpy(out, &packed, sizeof(packed));
    *bytes_out = (int64_t)sizeof(packed);
    return ST_OK;
}

static const char *begin_connect(struct messenger *messenger, struct message_peer *peer,
                                 const void *to, int64_t bytes)
{
    struct tcp *tcp = state_of(messenger);
    struct tcp_addr_packed packed;
    if (messenger->secret == NULL)
        return "no secret was given for this generation";
    if (tcp->conns == NULL) {
        /* Allocates before the first connection. */
        size_t ranks = (size_t)messenger->ranks;
        tcp->messenger = messenger;
        tcp->conns = memory_new(ranks, sizeof(*tcp->conns));
        tcp->conns_n = messenger->ranks;
        tcp_accept_open(tcp);
        size_t polls = ranks + (size_t)tcp->pending_n + 1;
        tcp->polls = memory_new(polls, sizeof(*tcp->polls));
        tcp->polled = memory_new(polls, sizeof(*tcp->polled));
    }
    struct tcp_conn *conn = &tcp->conns[peer->rank];
    if (bytes != (int64_t)sizeof(packed))
        return "its address cannot be read";
    memcpy(&packed, to, sizeof(packed));
    if (!tcp_addr_unpack(&packed, &tcp->own, &conn->to, &conn->to_bytes))
        return "its address cannot be read";
    conn->peer = peer;
    conn->tcp = tcp;
    conn->fd = -1;
    peer->conn = conn;
    tcp->missing++;
    if (peer->rank < messenger->rank)
        tcp_connect_begin(conn);
    return NULL;
}

static void address_text(const struct message_peer *peer, char *out, size_t cap)
{
    const struct tcp_conn *conn = peer->conn;
    if (conn != NULL && conn->to_bytes > 0)
        tcp_addr_text(&conn->to, out, cap);
}

/* ---- messages ---- */

static const char *begin_send(struct messenger *messenger, struct message_op *op, const void *data,
                              uint64_t tag)
{
    struct tcp_conn *conn = messenger->peers[op->peer].conn;
    bool is_first = conn->out_first == NULL;
    op->data = (char *)(uintptr_t)data;
    op->bits = tag;
    if (is_first)
        conn->out_first = op;
    else
        conn->out_last->after = op;
    conn->out_last = op;
    if (is_first && conn->is_up && op->bytes <= SEND_NOW_BYTES)
        tcp_conn_write(conn);
    return NULL;
}

static const char *begin_recv(struct messenger *messenger, struct message_op *op, void *data,
                              uint64_t tag)
{
    op->data = data;
    op->bits = tag;
    tcp_conn_post_recv(messenger->peers[op->peer].conn, op);
    return NULL;
}

/* ---- progress ---- */

static unsigned progress_handshakes(struct tcp *tcp)
{
    unsigned moved = 0;
    for (int i = 0; i < tcp->messenger->rank; i++)
        if (tcp->conns[i].peer != NULL && !tcp->conns[i].is_up)
            moved += tcp_connect_progress(&tcp->conns[i]);
    moved += tcp_accept_progress(tcp);
    if (tcp->missing == 0)
        tcp_accept_close(tcp);
    return moved;
}

/* Polls the connections after the n sockets already listed; returns the number of entries, or 0. */
static int poll_conns(struct tcp *tcp, int n, int ms)
{
    for (int i = 0; i < tcp->conns_n; i++) {
        struct tcp_conn *conn = &tcp->conns[i];
        if (conn->peer == NULL || conn->fd < 0)
            continue;
        bool is_writing = conn->connect_state == TCP_CONNECT_SYN ||
                          (conn->is_up && conn->out_first != NULL && !conn->is_write_closed);
        short events = (short)((conn->is_held ? 0 : POLLIN) | (is_writing ? POLLOUT : 0));
        tcp->polled[n] = conn;
        tcp->polls[n++] = (struct pollfd){.fd = conn->fd, .events = events};
    }
    return poll(tcp->polls, (nfds_t)n, ms) > 0 ? n : 0;
}

/* Checks the held connections by poll(2): they are not read, so reading does not find their end. */
static void check_held(struct tcp *tcp, int n)
{
    for (int i = 0; i < n; i++)
        if (tcp->polled[i] != NULL && tcp->polled[i]->is_held &&
            (tcp->polls[i].revents & (POLLERR | POLLHUP)) != 0)
            tcp_conn_lose(tcp->polled[i], "its connection broke");
}

static unsigned progress_conn(struct tcp_conn *conn, bool reads)
{
    unsigned moved = conn->out_first != NULL ? tcp_conn_write(conn) : 0;
    return moved + (reads ? tcp_conn_read(conn) : 0);
}

/* Reads all connections now and then, else only the awaited ones: a fruitless read costs as much as
 * a message. */
static unsigned progress_all(struct tcp *tcp)
{
    const bool reads_all = tcp->was_asleep || ++tcp->progress_n % READ_UNAWAITED_EVERY == 0;
    unsigned moved = 0;
    tcp->was_asleep = false;
    for (int i = 0; i < tcp->conns_n; i++) {
        struct tcp_conn *conn = &tcp->conns[i];
        if (conn->is_up)
            moved += progress_conn(conn, reads_all || tcp_conn_is_awaited(conn));
    }
    return moved;
}

static unsigned progress_ready(struct tcp *tcp)
{
    unsigned moved = 0;
    int n = poll_conns(tcp, 0, 0);
    check_held(tcp, n);
    for (int i = 0; i < n; i++) {
        struct tcp_conn *conn = tcp->polled[i];
        if (tcp->polls[i].revents == 0 || !conn->is_up)
            continue;
        moved += progress_conn(conn, true);
    }
    return moved;
}

static unsigned progress(struct messenger *messenger)
{
    struct tcp *tcp = state_of(messenger);
    if (tcp->conns == NULL)
        return 0;
    unsigned moved = tcp->listen_fd >= 0 ? progress_handshakes(tcp) : 0;
    return moved + (tcp->conns_n <= READ_ALL_MAX + 1 ? progress_all(tcp) : progress_ready(tcp));
}

static void sleep_tcp(struct messenger *messenger, int ms)
{
    struct tcp *tcp = state_of(messenger);
    if (tcp->conns == NULL)
        return;
    int n = tcp_accept_polls(tcp, tcp->polls);
    for (int i = 0; i < n; i++)
        tcp->polled[i] = NULL;
    check_held(tcp, poll_conns(tcp, n, ms));
    tcp->was_asleep = true;
}

/* ---- the end ---- */

static bool has_left(const struct tcp_conn *conn)
{
    int unsent = 0;
    if (conn->fd < 0 || !conn->is_up || conn->is_write_closed)
        return true;
    return conn->out_first == NULL && (ioctl(conn->fd, SIOCOUTQ, &unsent) != 0 || unsent == 0);
}

/* Waits until the peers' kernels have all sent bytes. If a socket is closed while it holds unread
 * bytes, the kernel resets the connection, and bytes in flight are lost. */
static bool flush(struct messenger *messenger, int64_t ns)
{
    struct tcp *tcp = state_of(messenger);
    int64_t end_ns = clock_ns() + ns;
    for (;;) {
        bool is_done = true;
        unsigned moved = 0;
        for (int i = 0; i < tcp->conns_n; i++) {
            if (tcp->conns[i].peer == NULL || has_left(&tcp->conns[i]))
                continue;
            is_done = false;
            moved += tcp_conn_write(&tcp->conns[i]);
        }
        if (is_done || clock_ns() > end_ns)
            return is_done;
        if (moved == 0)
            sched_yield();
    }
}

static void describe(struct messenger *messenger, char *out, size_t cap)
{
    (void)messenger;
    text_copy(out, cap, "tcp");
}

const struct message_driver tcp_driver = {
    .name = "tcp",
    .label = "TCP",
    .open = open_tcp,
    .close = close_tcp,
    .address = address,
    .connect = begin_connect,
    .send = begin_send,
    .recv = begin_recv,
    .progress = progress,
    .sleep = sleep_tcp,
    .flush = flush,
    .drop = drop_tcp,
    .describe = describe,
    .address_text = address_text,
    .link = tcp_conn_link,
};
