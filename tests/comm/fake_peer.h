/* fake_peer — a peer played by the test: the handshake, and single frames, valid or not. */
#ifndef CONVOY_TESTS_COMM_FAKE_PEER_H
#define CONVOY_TESTS_COMM_FAKE_PEER_H

#include "harness.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "comm/tcp/auth.h"
#include "comm/tcp/frame.h"
#include "comm/tcp/addr.h"
#include "comm/message/inside.h"

#define FAKE_PEER_TCP_AT 6 /* offset of TCP's part in an address */

struct fake_peer {
    int fd;
    struct tcp_auth auth;
    struct message_seal out;
};

static inline struct sockaddr_storage fake_peer_addr(const void *address, socklen_t *bytes)
{
    struct tcp_addr_packed packed;
    struct sockaddr_storage at, own = {.ss_family = AF_INET};
    memcpy(&packed, (const char *)address + FAKE_PEER_TCP_AT, sizeof packed);
    assert_true(tcp_addr_unpack(&packed, &own, &at, bytes));
    return at;
}

/* -1: the port is closed. */
static inline int fake_peer_connect(const void *address)
{
    socklen_t bytes;
    struct sockaddr_storage at = fake_peer_addr(address, &bytes);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&at, bytes) == 0)
        return fd;
    close(fd);
    return -1;
}

static inline bool fake_peer_read(int fd, void *out, size_t n)
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
static inline bool fake_peer_write(int fd, const void *data, size_t n)
{
    return send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* The whole handshake as a client. false: the server refused it. */
static inline bool fake_peer_authenticate(struct fake_peer *s, const void *address,
                                          const struct tcp_auth_ids *ids, const uint8_t *secret)
{
    uint8_t hello[TCP_AUTH_HELLO_BYTES], answer[TCP_AUTH_ANSWER_BYTES], proof[TCP_AUTH_PROOF_BYTES];
    uint8_t welcome[TCP_AUTH_WELCOME_BYTES];
    struct message_seal_keys keys;
    *s = (struct fake_peer){.fd = fake_peer_connect(address)};
    memcpy(s->auth.secret, secret, sizeof s->auth.secret);
    return s->fd >= 0 && tcp_auth_make_hello(&s->auth, ids, hello) &&
           fake_peer_write(s->fd, hello, sizeof hello) &&
           fake_peer_read(s->fd, answer, sizeof answer) && tcp_auth_read_answer(&s->auth, answer) &&
           tcp_auth_make_proof(&s->auth, proof) && fake_peer_write(s->fd, proof, sizeof proof) &&
           fake_peer_read(s->fd, welcome, sizeof welcome) &&
           tcp_auth_read_welcome(&s->auth, welcome) && tcp_auth_keys(&s->auth, true, &keys) &&
           message_seal_open(&s->out, &keys, true);
}

static inline uint64_t fake_peer_tag(int64_t generation, int group, int from,
                                     enum message_tag_class tag_class, int64_t sequence)
{
    return (uint64_t)(generation & 0xff) << 56 | (uint64_t)group << 44 | (uint64_t)from << 32 |
           (uint64_t)tag_class << 30 | (uint64_t)sequence;
}

/* Sends one frame. claimed: what its header says; NULL: the truth. */
static inline bool fake_peer_send(struct fake_peer *s, uint64_t tag, const void *data,
                                  int64_t bytes, const struct tcp_frame_header *claimed)
{
    struct tcp_frame_header header = {.tag = tag, .total = bytes, .bytes = bytes};
    uint8_t header_bytes[TCP_FRAME_HEADER_BYTES];
    return tcp_frame_write(&s->out, claimed != NULL ? claimed : &header, data, header_bytes) &&
           fake_peer_write(s->fd, header_bytes, sizeof header_bytes) &&
           (bytes == 0 || fake_peer_write(s->fd, data, (size_t)bytes));
}

/* The HELLO message by which message_connect ends. */
static inline bool fake_peer_send_hello(struct fake_peer *s, const struct tcp_auth_ids *ids)
{
    const struct message_hello hello = {
        MESSAGE_HELLO_MAGIC, ids->generation, ids->client, ids->ranks, 0, 0};
    return fake_peer_send(
        s, fake_peer_tag(ids->generation, MESSAGE_HELLO_GROUP, ids->client, MESSAGE_TAG_HEADER, 0),
        &hello, sizeof hello, NULL);
}

static inline void fake_peer_close(struct fake_peer *s)
{
    if (s->fd >= 0)
        close(s->fd);
    message_seal_close(&s->out);
}

#endif
