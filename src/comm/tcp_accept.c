/* tcp_accept — connections to this rank: each is a stranger until it has proved which rank it is.
 *
 * Only while ranks are awaited: when all are connected the port is closed. A stranger has a few
 * seconds and a buffer of fixed size; there are only so many seats, and the oldest without a right
 * hello gives up its own first. Must not know messages. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/tcp_inside.h"

#define SEATS 64 /* of strangers, besides one for each rank */
#define PROVE_NS ((int64_t)5000000000)
#define ACCEPT_AT_ONCE 64
#define TELL_MS 1000

static const char unproved[] = "it does not know this generation's secret";

static atomic_int_fast64_t refused;

int64_t tcp_accept_refused(void) { return refused; }

void tcp_accept_refuse(struct tcp *tcp, int fd, const char *why)
{
    struct sockaddr_storage from;
    socklen_t bytes = sizeof(from);
    char name[64] = "a connected rank";
    int64_t now_ms = clock_ms();
    refused++;
    tcp->untold++;
    if (fd >= 0 && getpeername(fd, (struct sockaddr *)&from, &bytes) == 0)
        tcp_where_text(&from, name, sizeof(name));
    if (fd >= 0)
        close(fd);
    if (tcp->told_ms != 0 && now_ms - tcp->told_ms < TELL_MS)
        return;
    LOG_WARN("closed %lld connection%s to the port of workers; the last, of %s: %s",
             (long long)tcp->untold, tcp->untold == 1 ? "" : "s", name, why);
    tcp->told_ms = now_ms;
    tcp->untold = 0;
}

static void leave(struct tcp *tcp, struct tcp_guest *guest, const char *why)
{
    tcp_accept_refuse(tcp, guest->fd, why);
    guest->fd = -1;
    tcp_auth_forget(&guest->auth, sizeof(guest->auth));
}

enum status tcp_accept_open(struct tcp *tcp)
{
    const struct ucx *ucx = tcp->ucx;
    tcp->guests_n = SEATS + ucx->ranks;
    tcp->guests = calloc((size_t)tcp->guests_n, sizeof(*tcp->guests));
    if (tcp->guests == NULL)
        return FAIL(ST_RETRY, "out of memory: connections of %d ranks", ucx->ranks);
    for (int i = 0; i < tcp->guests_n; i++)
        tcp->guests[i].fd = -1;
    return ST_OK;
}

/* A free seat, or that of the oldest guest, one without a hello first. */
static struct tcp_guest *find_seat(struct tcp *tcp)
{
    struct tcp_guest *oldest = &tcp->guests[0];
    for (int i = 0; i < tcp->guests_n; i++) {
        struct tcp_guest *guest = &tcp->guests[i];
        if (guest->fd < 0)
            return guest;
        bool is_less = oldest->has_hello && !guest->has_hello;
        if (is_less ||
            (oldest->has_hello == guest->has_hello && guest->since_ns < oldest->since_ns))
            oldest = guest;
    }
    leave(tcp, oldest, "too many strangers at once");
    return oldest;
}

static unsigned accept_some(struct tcp *tcp)
{
    unsigned n = 0;
    for (; n < ACCEPT_AT_ONCE; n++) {
        int fd = accept4(tcp->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
        struct tcp_guest *guest = find_seat(tcp);
        *guest = (struct tcp_guest){.fd = fd, .since_ns = clock_ns()};
        memcpy(guest->auth.secret, tcp->ucx->secret, sizeof(guest->auth.secret));
    }
    return n;
}

/* A message of so many bytes: 1 it is there, 0 not yet, -1 it never will be. */
static int hear(struct tcp_guest *guest, size_t want)
{
    ssize_t n = recv(guest->fd, guest->heard + guest->heard_n, want - guest->heard_n, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return -1;
    guest->heard_n += n > 0 ? (size_t)n : 0;
    if (guest->heard_n < want)
        return 0;
    guest->heard_n = 0;
    return 1;
}

static bool reply(int fd, const uint8_t *data, size_t n)
{
    return send(fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

/* A link that is awaited from that rank, or NULL: it dials only those below it. */
static struct tcp_link *awaited(const struct tcp *tcp, int rank)
{
    struct tcp_link *link = &tcp->links[rank];
    return rank > tcp->ucx->rank && link->peer != NULL && !link->is_up ? link : NULL;
}

static const char *take_hello(struct tcp *tcp, struct tcp_guest *guest)
{
    const struct ucx *ucx = tcp->ucx;
    struct tcp_auth_ids ids = {
        .generation = ucx->mine.generation, .client = -1, .server = ucx->rank, .ranks = ucx->ranks};
    uint8_t answer[TCP_AUTH_ANSWER_BYTES];
    if (!tcp_auth_read_hello(&guest->auth, &ids, guest->heard))
        return unproved;
    guest->client = ids.client;
    guest->has_hello = true;
    if (awaited(tcp, ids.client) == NULL)
        return "that rank is connected";
    return tcp_auth_make_answer(&guest->auth, answer) && reply(guest->fd, answer, sizeof(answer))
               ? NULL
               : "it went away";
}

static const char *take_proof(struct tcp *tcp, struct tcp_guest *guest)
{
    struct tcp_link *link = awaited(tcp, guest->client);
    uint8_t welcome[TCP_AUTH_WELCOME_BYTES];
    if (!tcp_auth_read_proof(&guest->auth, guest->heard))
        return unproved;
    if (link == NULL)
        return "that rank is connected";
    if (!tcp_auth_make_welcome(&guest->auth, welcome) ||
        !reply(guest->fd, welcome, sizeof(welcome)) ||
        !tcp_link_up(link, guest->fd, &guest->auth, false))
        return "it went away";
    tcp_tune(guest->fd);
    guest->fd = -1;
    tcp_auth_forget(&guest->auth, sizeof(guest->auth));
    return NULL;
}

static unsigned listen_to(struct tcp *tcp, struct tcp_guest *guest, int64_t now_ns)
{
    int heard = hear(guest, guest->has_hello ? TCP_AUTH_PROOF_BYTES : TCP_AUTH_HELLO_BYTES);
    const char *why = NULL;
    if (heard < 0)
        why = "it went away unproved";
    else if (heard > 0)
        why = guest->has_hello ? take_proof(tcp, guest) : take_hello(tcp, guest);
    else if (now_ns - guest->since_ns > PROVE_NS)
        why = "it said nothing that proves it";
    if (why != NULL)
        leave(tcp, guest, why);
    return heard > 0;
}

unsigned tcp_accept_look(struct tcp *tcp)
{
    unsigned moved = accept_some(tcp);
    int64_t now_ns = clock_ns();
    for (int i = 0; i < tcp->guests_n; i++)
        if (tcp->guests[i].fd >= 0)
            moved += listen_to(tcp, &tcp->guests[i], now_ns);
    return moved;
}

int tcp_accept_polls(const struct tcp *tcp, struct pollfd *out)
{
    int n = 0;
    if (tcp->listen_fd >= 0)
        out[n++] = (struct pollfd){.fd = tcp->listen_fd, .events = POLLIN};
    for (int i = 0; i < tcp->guests_n; i++)
        if (tcp->guests[i].fd >= 0)
            out[n++] = (struct pollfd){.fd = tcp->guests[i].fd, .events = POLLIN};
    return n;
}

void tcp_accept_close(struct tcp *tcp)
{
    for (int i = 0; i < tcp->guests_n; i++)
        if (tcp->guests[i].fd >= 0)
            leave(tcp, &tcp->guests[i], "all ranks are connected");
    free(tcp->guests);
    tcp->guests = NULL;
    tcp->guests_n = 0;
    if (tcp->listen_fd >= 0)
        close(tcp->listen_fd);
    tcp->listen_fd = -1;
}
