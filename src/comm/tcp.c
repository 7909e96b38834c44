/* tcp — the driver over TCP: sockets of this program's own, on one address, closed to all but the
 * ranks of a generation.
 *
 * A rank listens from its address's packing until all peers are connected, and then no more. Of
 * each two ranks the one with the higher number connects. What proves peers and messages is in
 * tcp_auth.h and tcp_seal.h; content travels readable.
 *
 * Waiting reads the sockets themselves while few are open, else asks poll(2) first. Must not know
 * calls. */
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
#include "base/must.h"
#include "base/text.h"
#include "comm/tcp_inside.h"
#include "comm/ucx_setup_env.h"

#define BACKLOG 4096
#define FEW 3                   /* connections that are read without asking which has news */
#define DIRECT_BYTES (64 << 10) /* of a message: sent within the call that begins it */

static struct tcp *state_of(const struct ucx *ucx) { return ucx->state; }

/* No delay for short messages; a host that is gone is noticed though nothing is sent to it. */
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

static enum status start_listening(struct tcp *tcp, socklen_t bytes)
{
    char name[64];
    tcp_where_text(&tcp->own, name, sizeof(name));
    tcp->listen_fd = socket(tcp->own.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (tcp->listen_fd < 0)
        return FAIL(ST_RETRY, "no socket for workers of other nodes: %s", strerror(errno));
    if (bind(tcp->listen_fd, (struct sockaddr *)&tcp->own, bytes) != 0)
        return errno == EADDRNOTAVAIL
                   ? FAIL(ST_RETRY,
                          "%s is no address of this node; DATA_ADDR names an interface or address "
                          "of it",
                          name)
                   : FAIL(ST_RETRY, "cannot listen on %s: %s", name, strerror(errno));
    bytes = sizeof(tcp->own);
    if (listen(tcp->listen_fd, BACKLOG) != 0 ||
        getsockname(tcp->listen_fd, (struct sockaddr *)&tcp->own, &bytes) != 0)
        return FAIL(ST_RETRY, "cannot listen on %s: %s", name, strerror(errno));
    return ST_OK;
}

static enum status open_tcp(const struct ucx_config *config, void **state_out)
{
    struct tcp *tcp = calloc(1, sizeof(*tcp));
    socklen_t bytes = 0;
    if (tcp == NULL)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for TCP", sizeof(*tcp));
    *state_out = tcp;
    tcp->listen_fd = -1;
    tcp->early_max = config->at_once;
    const char *asked = config->data_addr;
    char device[IF_NAMESIZE + 1];
    ucx_setup_env_device(device, sizeof(device));
    if (asked == NULL || asked[0] == 0)
        asked = device; /* what was said for UCX need not be said again */
    TRY(tcp_where(asked, config->master, &tcp->own, &bytes));
    return start_listening(tcp, bytes);
}

static void drop_tcp(struct ucx *ucx)
{
    struct tcp *tcp = state_of(ucx);
    tcp_accept_close(tcp);
    for (int i = 0; i < tcp->links_n; i++)
        if (tcp->links[i].peer != NULL)
            tcp_link_down(&tcp->links[i]);
    tcp->links_n = 0;
}

static void close_tcp(void *state)
{
    struct tcp *tcp = state;
    for (int i = 0; i < tcp->links_n; i++)
        if (tcp->links[i].peer != NULL)
            tcp_link_down(&tcp->links[i]);
    tcp_accept_close(tcp);
    free(tcp->links);
    free(tcp->polls);
    free(tcp->polled);
    free(tcp);
}

static enum status address(void *state, bool is_near, void *out, int64_t cap, int64_t *bytes_out)
{
    const struct tcp *tcp = state;
    struct tcp_where_card card;
    (void)is_near;
    ASSERT(cap >= (int64_t)sizeof(card));
    tcp_where_pack(&tcp->own, &card);
    memcpy(out, &card, sizeof(card));
    *bytes_out = (int64_t)sizeof(card);
    return ST_OK;
}

/* Before the first connection. */
static const char *take_memory(struct ucx *ucx, struct tcp *tcp)
{
    size_t ranks = (size_t)ucx->ranks;
    tcp->ucx = ucx;
    tcp->links = calloc(ranks, sizeof(*tcp->links));
    tcp->links_n = tcp->links != NULL ? ucx->ranks : 0;
    if (tcp->links == NULL || tcp_accept_open(tcp) != ST_OK)
        return "out of memory";
    size_t polls = ranks + (size_t)tcp->guests_n + 1;
    tcp->polls = calloc(polls, sizeof(*tcp->polls));
    tcp->polled = calloc(polls, sizeof(*tcp->polled));
    return tcp->polls != NULL && tcp->polled != NULL ? NULL : "out of memory";
}

static const char *reach(struct ucx *ucx, struct ucx_peer *peer, const void *to, int64_t bytes)
{
    struct tcp *tcp = state_of(ucx);
    struct tcp_where_card card;
    if (ucx->secret == NULL)
        return "no secret was given for this generation";
    const char *why = tcp->links == NULL ? take_memory(ucx, tcp) : NULL;
    if (why != NULL)
        return why;
    struct tcp_link *link = &tcp->links[peer->rank];
    if (bytes != (int64_t)sizeof(card))
        return "its address cannot be read";
    memcpy(&card, to, sizeof(card));
    if (!tcp_where_unpack(&card, &tcp->own, &link->to, &link->to_bytes))
        return "its address cannot be read";
    link->peer = peer;
    link->tcp = tcp;
    link->fd = -1;
    peer->link = link;
    tcp->missing++;
    if (peer->rank < ucx->rank)
        tcp_dial_begin(link);
    return NULL;
}

/* ---- messages ---- */

static const char *begin_send(struct ucx *ucx, struct ucx_op *op, const void *data, uint64_t tag)
{
    struct tcp_link *link = ucx->peers[op->peer].link;
    bool is_first = link->out_first == NULL;
    op->data = (char *)(uintptr_t)data;
    op->bits = tag;
    if (is_first)
        link->out_first = op;
    else
        link->out_last->after = op;
    link->out_last = op;
    if (is_first && link->is_up && op->bytes <= DIRECT_BYTES)
        tcp_link_write(link);
    return NULL;
}

static const char *begin_recv(struct ucx *ucx, struct ucx_op *op, void *data, uint64_t tag)
{
    op->data = data;
    op->bits = tag;
    tcp_link_want(ucx->peers[op->peer].link, op);
    return NULL;
}

/* ---- progress ---- */

static unsigned meet_ranks(struct tcp *tcp)
{
    unsigned moved = 0;
    for (int i = 0; i < tcp->ucx->rank; i++)
        if (tcp->links[i].peer != NULL && !tcp->links[i].is_up)
            moved += tcp_dial_look(&tcp->links[i]);
    moved += tcp_accept_look(tcp);
    if (tcp->missing == 0)
        tcp_accept_close(tcp);
    return moved;
}

/* Which of many have news: those that are asked to. */
static int poll_links(struct tcp *tcp, int n, int ms)
{
    for (int i = 0; i < tcp->links_n; i++) {
        struct tcp_link *link = &tcp->links[i];
        if (link->peer == NULL || link->fd < 0)
            continue;
        bool is_writing = link->dial == TCP_DIAL_CONNECTING ||
                          (link->is_up && link->out_first != NULL && !link->is_deaf);
        short events = (short)((link->is_held ? 0 : POLLIN) | (is_writing ? POLLOUT : 0));
        tcp->polled[n] = link;
        tcp->polls[n++] = (struct pollfd){.fd = link->fd, .events = events};
    }
    return poll(tcp->polls, (nfds_t)n, ms) > 0 ? n : 0;
}

/* What is held is not read, so its end would not be found. */
static void look_at_held(struct tcp *tcp, int n)
{
    for (int i = 0; i < n; i++)
        if (tcp->polled[i] != NULL && tcp->polled[i]->is_held &&
            (tcp->polls[i].revents & (POLLERR | POLLHUP)) != 0)
            tcp_link_lose(tcp->polled[i], "its connection broke");
}

static unsigned move_link(struct tcp_link *link)
{
    unsigned moved = link->out_first != NULL ? tcp_link_write(link) : 0;
    return moved + tcp_link_read(link);
}

static unsigned move_all(struct tcp *tcp)
{
    unsigned moved = 0;
    for (int i = 0; i < tcp->links_n; i++)
        if (tcp->links[i].is_up)
            moved += move_link(&tcp->links[i]);
    return moved;
}

static unsigned move_ready(struct tcp *tcp)
{
    unsigned moved = 0;
    int n = poll_links(tcp, 0, 0);
    look_at_held(tcp, n);
    for (int i = 0; i < n; i++) {
        struct tcp_link *link = tcp->polled[i];
        if (tcp->polls[i].revents == 0 || !link->is_up)
            continue;
        moved += move_link(link);
    }
    return moved;
}

static unsigned progress(struct ucx *ucx)
{
    struct tcp *tcp = state_of(ucx);
    if (tcp->links == NULL)
        return 0;
    unsigned moved = tcp->listen_fd >= 0 ? meet_ranks(tcp) : 0;
    return moved + (tcp->links_n <= FEW + 1 ? move_all(tcp) : move_ready(tcp));
}

static void sleep_tcp(struct ucx *ucx, int ms)
{
    struct tcp *tcp = state_of(ucx);
    if (tcp->links == NULL)
        return;
    int n = tcp_accept_polls(tcp, tcp->polls);
    for (int i = 0; i < n; i++)
        tcp->polled[i] = NULL;
    look_at_held(tcp, poll_links(tcp, n, ms));
}

/* ---- the end ---- */

static bool has_left(const struct tcp_link *link)
{
    int unsent = 0;
    if (link->fd < 0 || !link->is_up || link->is_deaf)
        return true;
    return link->out_first == NULL && (ioctl(link->fd, SIOCOUTQ, &unsent) != 0 || unsent == 0);
}

/* Until the peers' kernels have all that was sent: what this process has not read makes the kernel
 * cut a connection that is closed, with what still lies in it. */
static bool flush(struct ucx *ucx, int64_t ns)
{
    struct tcp *tcp = state_of(ucx);
    int64_t end_ns = clock_ns() + ns;
    for (;;) {
        bool is_done = true;
        unsigned moved = 0;
        for (int i = 0; i < tcp->links_n; i++) {
            if (tcp->links[i].peer == NULL || has_left(&tcp->links[i]))
                continue;
            is_done = false;
            moved += tcp_link_write(&tcp->links[i]);
        }
        if (is_done || clock_ns() > end_ns)
            return is_done;
        if (moved == 0)
            sched_yield();
    }
}

static void describe(struct ucx *ucx, char *out, size_t cap)
{
    (void)ucx;
    text_copy(out, cap, "tcp");
}

const struct ucx_driver tcp_driver = {
    .name = "tcp",
    .label = "TCP",
    .open = open_tcp,
    .close = close_tcp,
    .address = address,
    .reach = reach,
    .send = begin_send,
    .recv = begin_recv,
    .progress = progress,
    .sleep = sleep_tcp,
    .flush = flush,
    .drop = drop_tcp,
    .describe = describe,
};
