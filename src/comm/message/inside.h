/* p2p_inside — what p2p.c and p2p_connect.c share with the drivers: connections, and the messages
 * by which each begins and ends.
 *
 * A driver moves tagged messages between two processes: ucx/ucx.c over UCX, tcp/tcp.c over TCP
 * sockets. It reports the end of each message by p2p_op_end and each lost connection by
 * p2p_on_lost. A driver must not know the other. */
#ifndef CONVOY_COMM_P2P_INSIDE_H
#define CONVOY_COMM_P2P_INSIDE_H

#include <stddef.h>

#include "comm/message/message.h"

#define P2P_HELLO_MAGIC 0x796f766e6f630003u
/* the group of HELLO (sequence 0) and GOAWAY messages (sequence 1) */
#define P2P_HELLO_GROUP P2P_GROUPS

struct p2p_hello {
    uint64_t magic;
    int64_t generation;
    int32_t rank, ranks;
    int32_t offers_gpu, shares_cores;
};

struct p2p_peer {
    struct p2p *p2p;
    bool is_connected; /* the driver has a connection to it, or connects */
    void *conn;        /* the driver's state of it */
    int rank;
    const char *why; /* the reason why it is lost; NULL: it lives */
    bool was_closed; /* set by the driver: the peer's host closed or reset the connection */
    struct p2p_hello theirs;
    struct p2p_op hello_send, hello_recv;   /* HELLO messages */
    struct p2p_op goaway_recv, goaway_send; /* GOAWAY messages */
    int64_t goaway_ns;                      /* when the GOAWAY message was seen */
    int32_t goaway_cause;                   /* the lost rank that made it end; -1: none */
};

/* A driver. A function that returns `const char *` returns NULL, or the reason of its failure in
 * static memory. */
struct p2p_driver {
    const char *name, *label; /* "tcp"; in error messages: "TCP" */
    /* open: *state_out is set also when a later step fails. */
    enum status (*open)(const struct p2p_config *config, void **state_out);
    void (*close)(void *state);
    enum status (*address)(void *state, bool is_intra_node, void *out, int64_t cap,
                           int64_t *bytes_out);
    /* connect: begins a connection to the peer. */
    const char *(*connect)(struct p2p *p2p, struct p2p_peer *peer, const void *address,
                           int64_t bytes);
    /* send, recv: begin a message, which ends at once (p2p_op_end) or within progress. */
    const char *(*send)(struct p2p *p2p, struct p2p_op *op, const void *data, uint64_t tag);
    const char *(*recv)(struct p2p *p2p, struct p2p_op *op, void *data, uint64_t tag);
    unsigned (*progress)(struct p2p *p2p);  /* returns how much moved */
    void (*sleep)(struct p2p *p2p, int ms); /* returns when there is news */
    /* returns when all sent bytes have left; false: they have not in that time */
    bool (*flush)(struct p2p *p2p, int64_t ns);
    /* closes all connections; afterwards nothing touches the messages' memory */
    void (*drop)(struct p2p *p2p);
    void (*describe)(struct p2p *p2p, char *out, size_t cap);
    /* the peer's address for messages; NULL: the driver's addresses are not for people */
    void (*address_text)(const struct p2p_peer *peer, char *out, size_t cap);
    /* comm_link of a connected peer; NULL: the driver does not know */
    bool (*link)(const struct p2p_peer *peer, struct comm_link *out);
};
extern const struct p2p_driver ucx_driver, tcp_driver;
bool ucx_supports_gpu(const void *state);
int64_t tcp_accept_refused(void);  /* unauthenticated connections closed, ever */
int64_t ucx_message_refused(void); /* messages that were not authentic or damaged, ever */

enum { P2P_DRIVER_TCP, P2P_DRIVER_UCX, P2P_DRIVERS_N };

struct p2p {
    const struct p2p_driver *driver; /* the chosen one */
    void *state;                     /* its state */
    void *states[P2P_DRIVERS_N];     /* the states of opened drivers */
    struct p2p_config config;
    struct p2p_hello mine;
    const uint8_t *secret; /* of the generation; only while connecting */
    int rank, ranks;
    struct p2p_peer *peers; /* one for each rank */
    struct p2p_op *busy;    /* list of messages under way */
    int lost;               /* the rank lost first; -1: none */
    int closed;             /* once it is broken: p2p_closed */
    struct p2p_op *failed;  /* the first message that failed, and the reason */
    const char *failed_why;
    bool is_broken;
    int32_t goaway_cause; /* what this rank's GOAWAY messages carry */
    int64_t ended;        /* messages that have ended, ever */
    /* the last coalescing sleep: its length, and `ended` before it */
    int64_t coalesce_ns, coalesce_ended;
    char name[64], choice_reason[160];
};

/* Receives of one peer that have no message yet, in the order in which they were posted. */
struct p2p_queue {
    struct p2p_op *first, *last;
};
/* p2p_queue_take — the first one of this tag, taken out; NULL: none. */
void p2p_queue_add(struct p2p_queue *queue, struct p2p_op *op);
struct p2p_op *p2p_queue_take(struct p2p_queue *queue, uint64_t tag);

/* Reasons. p2p_truncated: a message is longer than its receive. p2p_damaged: a peer's message is
 * not what the peer has sent. */
extern const char p2p_truncated[], p2p_damaged[];

/* p2p_op_end — a message has ended; why: the reason of its failure, or NULL.
 * p2p_on_lost — the connection to the peer has ended; why: static memory.
 * p2p_fail_unreachable — ST_PEER: no connection to that rank was made. */
void p2p_op_end(struct p2p_op *op, const char *why);
void p2p_on_lost(struct p2p_peer *peer, const char *why);
enum status p2p_fail_unreachable(const struct p2p *p2p, int rank, const char *why);

#endif
