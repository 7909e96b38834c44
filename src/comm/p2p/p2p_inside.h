/* p2p_inside — what p2p.c and p2p_connect.c share with the drivers below them: connections, and
 * what came over them first.
 *
 * A driver moves tagged messages between two processes: ucx.c over UCX, tcp.c over sockets of
 * this program's own. It reports each end of a message by p2p_op_end and each lost connection by
 * p2p_on_lost. Neither knows the other. */
#ifndef CONVOY_COMM_P2P_INSIDE_H
#define CONVOY_COMM_P2P_INSIDE_H

#include <stddef.h>

#include "comm/p2p/p2p.h"

#define P2P_HELLO_MAGIC 0x796f766e6f630002u
#define P2P_HELLO_GROUP P2P_GROUPS /* the group of greetings (sequence 0) and farewells (1) */

struct p2p_hello {
    uint64_t magic;
    int64_t generation;
    int32_t rank, ranks;
    int32_t offers_gpu, unused;
};

struct p2p_peer {
    struct p2p *p2p;
    bool is_connected; /* the driver has a connection to it, or is making one */
    void *conn;        /* the driver's */
    int rank;
    const char *why; /* it is lost; NULL while it lives */
    struct p2p_hello theirs;
    struct p2p_op hello_send, hello_recv;   /* greeting: sent, received */
    struct p2p_op goaway_recv, goaway_send; /* goaway_cause: received, sent */
    int64_t goaway_ns;                      /* when the goaway_cause was seen */
    int32_t goaway_cause;                   /* whom it lost, which made it leave; -1: nobody */
};

/* A driver's calls. `why` is a text that lasts: NULL means that all is well. */
struct p2p_driver {
    const char *name, *label; /* "tcp"; of error messages: "TCP" */
    /* open: *state_out is set also when a later step fails. */
    enum status (*open)(const struct p2p_config *config, void **state_out);
    void (*close)(void *state);
    enum status (*address)(void *state, bool is_intra_node, void *out, int64_t cap,
                           int64_t *bytes_out);
    /* connect: begins a connection to the peer. why it cannot. */
    const char *(*connect)(struct p2p *p2p, struct p2p_peer *peer, const void *address,
                           int64_t bytes);
    /* send, recv: begin; ended at once (p2p_op_end) or within progress. why they cannot. */
    const char *(*send)(struct p2p *p2p, struct p2p_op *op, const void *data, uint64_t tag);
    const char *(*recv)(struct p2p *p2p, struct p2p_op *op, void *data, uint64_t tag);
    unsigned (*progress)(struct p2p *p2p);  /* how much moved */
    void (*sleep)(struct p2p *p2p, int ms); /* until there is news */
    /* until all that was sent has left; false: it has not in that time */
    bool (*flush)(struct p2p *p2p, int64_t ns);
    /* closes connections: nothing touches the messages' memory afterwards */
    void (*drop)(struct p2p *p2p);
    void (*describe)(struct p2p *p2p, char *out, size_t cap);
};
extern const struct p2p_driver ucx_driver, tcp_driver;
bool ucx_supports_gpu(const void *state);
int64_t tcp_accept_refused(void); /* connections closed, ever */

enum { P2P_DRIVER_TCP, P2P_DRIVER_UCX, P2P_DRIVERS_N };

struct p2p {
    const struct p2p_driver *driver; /* chosen */
    void *state;                     /* its own */
    void *states[P2P_DRIVERS_N];     /* of those opened, until one is chosen */
    struct p2p_config config;
    struct p2p_hello mine;
    const uint8_t *secret; /* of the generation, while connecting */
    int rank, ranks;
    struct p2p_peer *peers; /* ranks of them */
    struct p2p_op *busy;    /* list of what is under way */
    int lost;               /* the rank lost first, or -1 */
    struct p2p_op *failed;  /* …and the first message that failed, and why */
    const char *failed_why;
    bool is_broken;
    int32_t goaway_cause;   /* as bye, from here */
    int64_t ended;          /* messages, ever */
    int64_t nap_ns, napped; /* of the last nap: how long, and `ended` before it */
    char name[64], why[160];
};

extern const char p2p_truncated[]; /* why: a message is longer than its receiver expects */

/* p2p_op_end — a message is over; why it failed, or NULL. p2p_on_lost — the peer's connection
 * ended. p2p_fail_unreachable — ST_PEER: nothing came from that rank. */
void p2p_op_end(struct p2p_op *op, const char *why);
void p2p_on_lost(struct p2p_peer *peer, const char *why);
enum status p2p_fail_unreachable(const struct p2p *p2p, int rank, const char *why);

#endif
