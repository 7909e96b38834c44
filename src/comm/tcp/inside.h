/* tcp_inside — declarations that the files of the TCP transport share. Only they include it.
 *
 *   tcp.c      the driver
 *   connect.c  this rank connects to lower ranks
 *   accept.c   higher ranks connect to this one; each connection is pending until authenticated
 *   auth.c     the handshake that authenticates both sides
 *   conn.c     one authenticated connection: frames of messages in and out
 *   frame.c    the header of a frame, and its protection */
#ifndef CONVOY_COMM_TCP_INSIDE_H
#define CONVOY_COMM_TCP_INSIDE_H

#include <poll.h>
#include <sys/socket.h>

#include "comm/tcp/auth.h"
#include "comm/tcp/frame.h"
#include "comm/tcp/addr.h"
#include "comm/message/inside.h"

/* bytes read together with each header: a short message as a whole, the beginning of a long one */
#define TCP_BUFFER_BYTES (18 << 10)
#define TCP_UNEXPECTED_MAX 1024 /* most unexpected messages kept for one peer */
#define TCP_UNEXPECTED_DEPTH 16 /* their bytes, as a multiple of the longest eager message */

/* A message that arrived before its receive was posted (MPI: unexpected). */
struct tcp_unexpected {
    struct tcp_unexpected *next;
    uint64_t tag;
    int64_t total;
    bool is_whole;
    struct message_op *op; /* a receive posted meanwhile */
    size_t cap;
    char data[];
};

/* The connection to one peer. fd -1: none. */
struct tcp_conn {
    struct message_peer *peer;
    struct tcp *tcp;
    int fd;
    bool is_up; /* authenticated */
    /* the peer reads no more bytes: only its remaining bytes are still read */
    bool is_write_closed;
    /* the next message is too long to keep and has no receive: it stays in the socket */
    bool is_held;
    /* out */
    struct message_seal out;
    struct message_op *out_first, *out_last;
    /* in */
    struct message_seal in;
    struct message_queue posted;
    struct tcp_unexpected *unexpected_first, *unexpected_last, *spare;
    int64_t unexpected_bytes, spare_bytes;
    int unexpected_n;
    struct tcp_frame_header head; /* header of the frame in progress */
    bool has_head;
    int64_t got;                       /* bytes received of that frame */
    struct message_op *op;             /* the receive of the message in progress */
    struct tcp_unexpected *unexpected; /* or memory for it, if no receive is posted yet */
    bool has_message;
    uint64_t tag;      /* tag of that message */
    int64_t total, at; /* its bytes; where its next frame begins */
    uint8_t *buffer;
    size_t buffer_first, buffer_end;
    /* while this rank connects to the peer */
    struct sockaddr_storage to;
    socklen_t to_bytes;
    enum {
        TCP_CONNECT_NONE,
        TCP_CONNECT_RETRY,
        TCP_CONNECT_SYN,
        TCP_CONNECT_ANSWER,
        TCP_CONNECT_WELCOME
    } connect_state;
    int64_t timer_ns, since_ns; /* when to retry, or until when to wait; when the attempts began */
    struct tcp_auth auth;
    uint8_t received[TCP_AUTH_HELLO_BYTES];
    size_t received_n;
};

/* A connection that is not authenticated yet. */
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
    struct messenger *messenger; /* once connecting */
    int listen_fd;
    struct sockaddr_storage own;
    struct tcp_conn *conns; /* one for each rank */
    int conns_n, missing;   /* peers without an authenticated connection */
    struct tcp_pending *pending;
    int pending_n;
    struct pollfd *polls;     /* room for all sockets */
    struct tcp_conn **polled; /* the connection of each; NULL: another socket */
    /* calls of progress that read all connections or only the awaited ones */
    unsigned progress_n;
    bool was_asleep; /* any connection may have ended the sleep */
    int64_t unexpected_max;
    int64_t refused_log_ms; /* last log line about refused connections */
    int64_t refused_n;      /* number of connections since that line */
};

/* ---- tcp_conn ---- */

/* tcp_conn_up — sets up the connection on a socket after the handshake, and owns the socket. false:
 * out of memory. */
bool tcp_conn_up(struct tcp_conn *conn, int fd, const struct tcp_auth *auth, bool is_client);
/* tcp_conn_down — closes the connection and wipes its keys; accepts a connection that is not up. */
void tcp_conn_down(struct tcp_conn *conn);
/* tcp_conn_lose — reports that the peer is lost; why: static memory. */
void tcp_conn_lose(struct tcp_conn *conn, const char *why);
unsigned tcp_conn_read(struct tcp_conn *conn);                         /* returns bytes received */
unsigned tcp_conn_write(struct tcp_conn *conn);                        /* returns bytes sent */
void tcp_conn_post_recv(struct tcp_conn *conn, struct message_op *op); /* a receive begins */
bool tcp_conn_is_awaited(const struct tcp_conn *conn); /* a caller's receive is in progress */
/* tcp_conn_link — implements link of struct message_driver. */
bool tcp_conn_link(const struct message_peer *peer, struct comm_link *out);

/* ---- tcp_accept ---- */

/* tcp_accept_open — allocates the pending connections, before the first tcp_accept_progress. */
void tcp_accept_open(struct tcp *tcp);
/* tcp_accept_receive — reads a handshake message of `want` bytes into `received`, which already
 * holds *received_n bytes. 1: complete; 0: not yet; -1: it never will be. */
int tcp_accept_receive(int fd, uint8_t *received, size_t *received_n, size_t want);
/* tcp_accept_progress — accepts connections and reads handshakes. Returns the number that made
 * progress. */
unsigned tcp_accept_progress(struct tcp *tcp);
void tcp_accept_close(struct tcp *tcp); /* closes the port and all pending connections */
/* tcp_accept_polls — writes the port and the pending connections to out, to poll them. Returns
 * their number. */
int tcp_accept_polls(const struct tcp *tcp, struct pollfd *out);
/* tcp_accept_refuse — closes an unauthenticated connection (fd ≥ 0), counts it, and warns at most
 * once a second. */
void tcp_accept_refuse(struct tcp *tcp, int fd, const char *why);

/* ---- tcp_connect ---- */

/* tcp_connect_begin — begins to connect to conn->to. If attempts fail for too long, the peer is
 * lost. */
void tcp_connect_begin(struct tcp_conn *conn);
/* tcp_connect_progress — continues the attempt without blocking. Returns 1 if a message of the
 * handshake arrived, else 0. */
unsigned tcp_connect_progress(struct tcp_conn *conn);

/* ---- tcp ---- */

/* tcp_tune — sends short messages without delay, and enables keepalive, which finds a dead host
 * within about 11 s. false: the kernel refused an option. */
bool tcp_tune(int fd);

#endif
