/* stranger — the other end of a data connection, in the tests' hand: the handshake and single parts
 * of messages, right or wrong. */
#ifndef CONVOY_TESTS_COMM_STRANGER_H
#define CONVOY_TESTS_COMM_STRANGER_H

#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/tcp_auth.h"
#include "comm/tcp_seal.h"
#include "comm/tcp_where.h"
#include "comm/ucx_inside.h"

#define STRANGER_CARD_AT 6 /* of an address: TCP's part */

struct stranger {
    int fd;
    struct tcp_auth auth;
    struct tcp_seal out;
};

static inline struct sockaddr_storage stranger_where(const void *address, socklen_t *bytes)
{
    struct tcp_where_card card;
    struct sockaddr_storage at, own = {.ss_family = AF_INET};
    memcpy(&card, (const char *)address + STRANGER_CARD_AT, sizeof card);
    assert_true(tcp_where_unpack(&card, &own, &at, bytes));
    return at;
}

/* -1: nobody listens there. */
static inline int stranger_dial(const void *address)
{
    socklen_t bytes;
    struct sockaddr_storage at = stranger_where(address, &bytes);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&at, bytes) == 0)
        return fd;
    close(fd);
    return -1;
}

static inline bool stranger_get(int fd, void *out, size_t n)
{
    for (size_t done = 0; done < n;) {
        struct pollfd news = {.fd = fd, .events = POLLIN};
        if (poll(&news, 1, 10000) <= 0)
            return false;
        ssize_t got = recv(fd, (char *)out + done, n - done, 0);
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}
static inline bool stranger_put(int fd, const void *data, size_t n)
{
    return send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* The whole handshake as a client. false: it was not believed. */
static inline bool stranger_prove(struct stranger *s, const void *address,
                                  const struct tcp_auth_ids *who, const uint8_t *secret)
{
    uint8_t hello[TCP_AUTH_HELLO_BYTES], answer[TCP_AUTH_ANSWER_BYTES], proof[TCP_AUTH_PROOF_BYTES];
    uint8_t welcome[TCP_AUTH_WELCOME_BYTES];
    struct tcp_auth_keys keys;
    *s = (struct stranger){.fd = stranger_dial(address)};
    memcpy(s->auth.secret, secret, sizeof s->auth.secret);
    return s->fd >= 0 && tcp_auth_make_hello(&s->auth, who, hello) &&
           stranger_put(s->fd, hello, sizeof hello) && stranger_get(s->fd, answer, sizeof answer) &&
           tcp_auth_read_answer(&s->auth, answer) && tcp_auth_make_proof(&s->auth, proof) &&
           stranger_put(s->fd, proof, sizeof proof) &&
           stranger_get(s->fd, welcome, sizeof welcome) &&
           tcp_auth_read_welcome(&s->auth, welcome) && tcp_auth_keys(&s->auth, true, &keys) &&
           tcp_seal_open(&s->out, &keys, true);
}

static inline uint64_t stranger_tag(int64_t generation, int group, int from, enum ucx_lane lane,
                                    int64_t sequence)
{
    return (uint64_t)(generation & 0xff) << 56 | (uint64_t)group << 44 | (uint64_t)from << 32 |
           (uint64_t)lane << 30 | (uint64_t)sequence;
}

/* One part. claimed: what its head says, NULL: the truth. */
static inline bool stranger_say(struct stranger *s, uint64_t tag, const void *data, int64_t bytes,
                                const struct tcp_seal_head *claimed)
{
    struct tcp_seal_head head = {.tag = tag, .total = bytes, .bytes = bytes};
    uint8_t sealed[TCP_SEAL_BYTES];
    return tcp_seal_write(&s->out, claimed != NULL ? claimed : &head, data, sealed) &&
           stranger_put(s->fd, sealed, sizeof sealed) &&
           (bytes == 0 || stranger_put(s->fd, data, (size_t)bytes));
}

/* The greeting by which ucx_connect ends. */
static inline bool stranger_greet(struct stranger *s, const struct tcp_auth_ids *who)
{
    const struct ucx_hello hello = {
        UCX_HELLO_MAGIC, who->generation, who->client, who->ranks, 0, 0};
    return stranger_say(
        s, stranger_tag(who->generation, UCX_HELLO_GROUP, who->client, UCX_LANE_CALL, 0), &hello,
        sizeof hello, NULL);
}

static inline void stranger_close(struct stranger *s)
{
    if (s->fd >= 0)
        close(s->fd);
    tcp_seal_close(&s->out);
}

#endif
