/* tcp_inside — what the files of the TCP transport share. Only they include it.
 *
 * tcp.c: the driver. tcp_link.c: one proved connection, parts of messages in and out. tcp_accept.c:
 * others connect to this rank, and are strangers until they are proved. tcp_dial.c: this rank
 * connects to others. */
#ifndef CONVOY_COMM_TCP_INSIDE_H
#define CONVOY_COMM_TCP_INSIDE_H

#include <poll.h>
#include <sys/socket.h>

#include "comm/tcp_auth.h"
#include "comm/tcp_seal.h"
#include "comm/tcp_where.h"
#include "comm/ucx_inside.h"

/* read with each head: a short message whole, of a long one the beginning */
#define TCP_STAGE_BYTES (18 << 10)
#define TCP_EARLY_MANY 1024 /* messages of a peer that wait for their receiver */
#define TCP_EARLY_DEEP 16   /* …and of the largest that are sent at once, how many bytes */

/* A message that came before it was expected. */
struct tcp_early {
    struct tcp_early *next;
    uint64_t tag;
    int64_t total;
    bool is_whole;
    struct ucx_op *op; /* has begun to wait meanwhile */
    size_t cap;
    char data[];
};

/* The connection to one peer. fd -1: none. */
struct tcp_link {
    struct ucx_peer *peer;
    struct tcp *tcp;
    int fd;
    bool is_up;   /* proved */
    bool is_deaf; /* it takes nothing any more: only what it has sent is still read */
    bool is_held; /* what comes next is not expected yet, and not short: it stays in the kernel */
    /* out */
    struct tcp_seal out;
    struct ucx_op *out_first, *out_last;
    /* in */
    struct tcp_seal in;
    struct ucx_op *want_first, *want_last;
    struct tcp_early *early_first, *early_last, *spare;
    int64_t early_bytes, spare_bytes;
    int early_n;
    struct tcp_seal_head head; /* of the part under way */
    bool has_head;
    int64_t got;             /* bytes of that part */
    struct ucx_op *op;       /* the receive of the message under way */
    struct tcp_early *early; /* …or no receive waits for it yet */
    bool has_message;
    uint64_t tag;      /* of that message */
    int64_t total, at; /* …bytes in all; where its next part begins */
    uint8_t *stage;
    size_t stage_first, stage_end;
    /* connecting: of this rank to the peer */
    struct sockaddr_storage to;
    socklen_t to_bytes;
    enum {
        TCP_DIAL_NONE,
        TCP_DIAL_LATER,
        TCP_DIAL_CONNECTING,
        TCP_DIAL_ANSWER,
        TCP_DIAL_WELCOME
    } dial;
    int64_t dial_ns, since_ns; /* when to try again, or until when to wait; begun first */
    struct tcp_auth auth;
    uint8_t heard[TCP_AUTH_HELLO_BYTES];
    size_t heard_n;
};

/* A connection that is not proved yet. */
struct tcp_guest {
    int fd; /* -1: free */
    bool has_hello;
    int client;
    int64_t since_ns;
    struct tcp_auth auth;
    uint8_t heard[TCP_AUTH_HELLO_BYTES];
    size_t heard_n;
};

struct tcp {
    struct ucx *ucx; /* once connecting */
    int listen_fd;
    struct sockaddr_storage own;
    struct tcp_link *links; /* ranks */
    int links_n, missing;   /* not up yet */
    struct tcp_guest *guests;
    int guests_n;
    struct pollfd *polls;     /* room for all of these */
    struct tcp_link **polled; /* …the link of each; NULL: not a link's */
    int64_t early_max;
    int64_t told_ms; /* of strangers */
    int64_t untold;
};

/* ---- tcp_link ---- */
/* tcp_link_up — the handshake is over on this socket, which the link takes. false: out of
 * memory. */
bool tcp_link_up(struct tcp_link *link, int fd, const struct tcp_auth *auth, bool is_client);
void tcp_link_down(struct tcp_link *link); /* closes, forgets; accepts one that is not up */
/* tcp_link_lose — its peer is lost: why lasts. */
void tcp_link_lose(struct tcp_link *link, const char *why);
unsigned tcp_link_read(struct tcp_link *link);                /* bytes that came */
unsigned tcp_link_write(struct tcp_link *link);               /* bytes that left */
void tcp_link_want(struct tcp_link *link, struct ucx_op *op); /* a receive begins */

/* ---- tcp_accept ---- */
enum status tcp_accept_open(struct tcp *tcp);
/* takes and hears connections; returns how many were heard */
unsigned tcp_accept_look(struct tcp *tcp);
void tcp_accept_close(struct tcp *tcp); /* no rank is awaited any more */
int tcp_accept_polls(const struct tcp *tcp, struct pollfd *out);
/* tcp_accept_refuse — closes a stranger's connection, counts it, and warns at most once a
 * second. */
void tcp_accept_refuse(struct tcp *tcp, int fd, const char *why);

/* ---- tcp_dial ---- */
void tcp_dial_begin(struct tcp_link *link);
unsigned tcp_dial_look(struct tcp_link *link);

/* ---- tcp ---- */
bool tcp_tune(int fd);

#endif
