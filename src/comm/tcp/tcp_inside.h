/* tcp_inside — what the files of the TCP transport share. Only they include it.
 *
 * tcp.c: the driver. tcp_conn.c: one proved connection, parts of messages in and out. tcp_accept.c:
 * others connect to this rank, and are strangers until they are proved. tcp_connect.c: this rank
 * connects to others. */
#ifndef CONVOY_COMM_TCP_INSIDE_H
#define CONVOY_COMM_TCP_INSIDE_H

#include <poll.h>
#include <sys/socket.h>

#include "comm/tcp/tcp_auth.h"
#include "comm/tcp/tcp_frame.h"
#include "comm/tcp/tcp_addr.h"
#include "comm/p2p/p2p_inside.h"

/* read with each head: a short message whole, of a long one the beginning */
#define TCP_BUFFER_BYTES (18 << 10)
#define TCP_UNEXPECTED_MAX 1024 /* messages of a peer that wait for their receiver */
#define TCP_UNEXPECTED_DEPTH 16 /* …and of the largest that are sent at once, how many bytes */

/* A message that came before it was expected. */
struct tcp_unexpected {
    struct tcp_unexpected *next;
    uint64_t tag;
    int64_t total;
    bool is_whole;
    struct p2p_op *op; /* has begun to wait meanwhile */
    size_t cap;
    char data[];
};

/* The connection to one peer. fd -1: none. */
struct tcp_conn {
    struct p2p_peer *peer;
    struct tcp *tcp;
    int fd;
    bool is_up;           /* proved */
    bool is_write_closed; /* it takes nothing any more: only what it has sent is still read */
    bool is_held; /* what comes next is not expected yet, and not short: it stays in the kernel */
    /* out */
    struct tcp_frame_state out;
    struct p2p_op *out_first, *out_last;
    /* in */
    struct tcp_frame_state in;
    struct p2p_op *posted_first, *posted_last;
    struct tcp_unexpected *unexpected_first, *unexpected_last, *spare;
    int64_t unexpected_bytes, spare_bytes;
    int unexpected_n;
    struct tcp_frame_header head; /* of the part under way */
    bool has_head;
    int64_t got;                       /* bytes of that part */
    struct p2p_op *op;                 /* the receive of the message under way */
    struct tcp_unexpected *unexpected; /* …or no receive waits for it yet */
    bool has_message;
    uint64_t tag;      /* of that message */
    int64_t total, at; /* …bytes in all; where its next part begins */
    uint8_t *buffer;
    size_t buffer_first, buffer_end;
    /* connecting: of this rank to the peer */
    struct sockaddr_storage to;
    socklen_t to_bytes;
    enum {
        TCP_CONNECT_NONE,
        TCP_CONNECT_RETRY,
        TCP_CONNECT_SYN,
        TCP_CONNECT_ANSWER,
        TCP_CONNECT_WELCOME
    } connect_state;
    int64_t timer_ns, since_ns; /* when to try again, or until when to wait; begun first */
    struct tcp_auth auth;
    uint8_t received[TCP_AUTH_HELLO_BYTES];
    size_t received_n;
};

/* A connection that is not proved yet. */
struct tcp_pending {
    int fd; /* -1: free */
    bool has_hello;
    int client;
    int64_t since_ns;
    struct tcp_auth auth;
    uint8_t received[TCP_AUTH_HELLO_BYTES];
    size_t received_n;
};

struct tcp {
    struct p2p *p2p; /* once connecting */
    int listen_fd;
    struct sockaddr_storage own;
    struct tcp_conn *conns; /* ranks */
    int conns_n, missing;   /* not up yet */
    struct tcp_pending *pending;
    int pending_n;
    struct pollfd *polls;     /* room for all of these */
    struct tcp_conn **polled; /* …the conn of each; NULL: not a conn's */
    int64_t unexpected_max;
    int64_t refused_log_ms; /* of strangers */
    int64_t refused_n;
};

/* ---- tcp_conn ---- */
/* tcp_conn_up — the handshake is over on this socket, which the conn takes. false: out of
 * memory. */
bool tcp_conn_up(struct tcp_conn *conn, int fd, const struct tcp_auth *auth, bool is_client);
void tcp_conn_down(struct tcp_conn *conn); /* closes, forgets; accepts one that is not up */
/* tcp_conn_lose — its peer is lost: why lasts. */
void tcp_conn_lose(struct tcp_conn *conn, const char *why);
unsigned tcp_conn_read(struct tcp_conn *conn);                     /* bytes that came */
unsigned tcp_conn_write(struct tcp_conn *conn);                    /* bytes that left */
void tcp_conn_post_recv(struct tcp_conn *conn, struct p2p_op *op); /* a receive begins */

/* ---- tcp_accept ---- */
enum status tcp_accept_open(struct tcp *tcp);
/* takes and hears connections; returns how many were received */
unsigned tcp_accept_progress(struct tcp *tcp);
void tcp_accept_close(struct tcp *tcp); /* no rank is awaited any more */
int tcp_accept_polls(const struct tcp *tcp, struct pollfd *out);
/* tcp_accept_refuse — closes a stranger's connection, counts it, and warns at most once a
 * second. */
void tcp_accept_refuse(struct tcp *tcp, int fd, const char *why);

/* ---- tcp_connect ---- */
void tcp_connect_begin(struct tcp_conn *conn);
unsigned tcp_connect_progress(struct tcp_conn *conn);

/* ---- tcp ---- */
bool tcp_tune(int fd);

#endif
