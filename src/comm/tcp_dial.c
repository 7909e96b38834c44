/* tcp_dial — this rank connects to one below it, and both prove themselves. A connection that ends
 * before the welcome is tried again for a while: where many strangers come at once it may have lost
 * its seat. Must not know messages. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp_inside.h"

#define AGAIN_NS ((int64_t)50000000)
#define GIVE_UP_NS ((int64_t)20000000000)
#define PROVE_NS ((int64_t)6000000000)

/* Not now, perhaps later. */
static void put_off(struct tcp_link *link, const char *why)
{
    int64_t now_ns = clock_ns();
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    if (now_ns - link->since_ns > GIVE_UP_NS) {
        link->dial = TCP_DIAL_NONE;
        tcp_link_lose(link, why);
        return;
    }
    link->dial = TCP_DIAL_LATER;
    link->dial_ns = now_ns + AGAIN_NS;
}

static void give_up(struct tcp_link *link, int error)
{
    link->dial = TCP_DIAL_NONE;
    tcp_link_lose(link, strerrordesc_np(error));
}

/* From the address that this rank listens at, so that a node with several is known by one. */
static void start(struct tcp_link *link)
{
    struct sockaddr_storage from = link->tcp->own;
    link->fd = socket(link->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    link->heard_n = link->auth.said_n = 0;
    if (link->fd < 0) {
        put_off(link, strerrordesc_np(errno));
        return;
    }
    if (from.ss_family == link->to.ss_family)
        tcp_where_bind(link->fd, &from);
    link->dial = TCP_DIAL_CONNECTING;
    link->dial_ns = clock_ns() + GIVE_UP_NS;
    if (connect(link->fd, (struct sockaddr *)&link->to, link->to_bytes) != 0 &&
        errno != EINPROGRESS)
        give_up(link, errno);
}

void tcp_dial_begin(struct tcp_link *link)
{
    link->since_ns = clock_ns();
    memcpy(link->auth.secret, link->tcp->ucx->secret, sizeof(link->auth.secret));
    start(link);
}

static void say_hello(struct tcp_link *link)
{
    const struct ucx *ucx = link->tcp->ucx;
    const struct tcp_auth_ids ids = {.generation = ucx->mine.generation,
                                     .client = ucx->rank,
                                     .server = link->peer->rank,
                                     .ranks = ucx->ranks};
    uint8_t hello[TCP_AUTH_HELLO_BYTES];
    int error = 0;
    socklen_t bytes = sizeof(error);
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) {
        give_up(link, error);
        return;
    }
    tcp_tune(link->fd);
    link->dial = TCP_DIAL_ANSWER;
    link->dial_ns = clock_ns() + PROVE_NS;
    if (!tcp_auth_make_hello(&link->auth, &ids, hello) ||
        send(link->fd, hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(hello))
        put_off(link, "it does not take a greeting");
}

/* 1: it is there; 0: not yet; -1: it never will be. */
static int hear(struct tcp_link *link, size_t want)
{
    ssize_t n = recv(link->fd, link->heard + link->heard_n, want - link->heard_n, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        return -1;
    link->heard_n += n > 0 ? (size_t)n : 0;
    if (link->heard_n < want)
        return 0;
    link->heard_n = 0;
    return 1;
}

/* An answer that proves nothing comes from a stranger in the peer's place. */
static const char *take_answer(struct tcp_link *link)
{
    uint8_t proof[TCP_AUTH_PROOF_BYTES];
    if (!tcp_auth_read_answer(&link->auth, link->heard))
        return "what answers there does not know this generation's secret";
    if (!tcp_auth_make_proof(&link->auth, proof) ||
        send(link->fd, proof, sizeof(proof), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(proof))
        return "it went away";
    link->dial = TCP_DIAL_WELCOME;
    return NULL;
}

static const char *take_welcome(struct tcp_link *link)
{
    int fd = link->fd;
    if (!tcp_auth_read_welcome(&link->auth, link->heard))
        return "what answers there does not know this generation's secret";
    if (!tcp_link_up(link, fd, &link->auth, true))
        return "out of memory";
    tcp_auth_forget(&link->auth, sizeof(link->auth));
    return NULL;
}

static unsigned hear_out(struct tcp_link *link)
{
    bool is_answer = link->dial == TCP_DIAL_ANSWER;
    int heard = hear(link, is_answer ? TCP_AUTH_ANSWER_BYTES : TCP_AUTH_WELCOME_BYTES);
    const char *why = NULL;
    if (heard > 0)
        why = is_answer ? take_answer(link) : take_welcome(link);
    else if (heard < 0)
        why = "it closes connections before a greeting";
    else if (clock_ns() > link->dial_ns)
        why = "it does not answer a greeting";
    if (why != NULL)
        put_off(link, why);
    return heard > 0;
}

static bool is_writable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    return poll(&poll_fd, 1, 0) > 0;
}

unsigned tcp_dial_look(struct tcp_link *link)
{
    switch (link->dial) {
    case TCP_DIAL_NONE:
        return 0;
    case TCP_DIAL_LATER:
        if (clock_ns() >= link->dial_ns)
            start(link);
        return 0;
    case TCP_DIAL_CONNECTING:
        if (is_writable(link->fd))
            say_hello(link);
        else if (clock_ns() > link->dial_ns)
            give_up(link, ETIMEDOUT);
        return 0;
    default:
        return hear_out(link);
    }
}
