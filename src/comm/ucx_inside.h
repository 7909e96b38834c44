/* ucx_inside — what ucx.c and ucx_connect.c share with the drivers below them: connections, and
 * what came over them first.
 *
 * A driver moves tagged messages between two processes: ucx_ucp.c over UCX, tcp.c over sockets of
 * this program's own. It reports each end of a message by ucx_op_end and each lost connection by
 * ucx_on_lost. Neither knows the other. */
#ifndef CONVOY_COMM_UCX_INSIDE_H
#define CONVOY_COMM_UCX_INSIDE_H

#include <stddef.h>

#include "comm/ucx.h"

#define UCX_HELLO_MAGIC 0x796f766e6f630002u
#define UCX_HELLO_GROUP UCX_GROUPS /* the group of greetings (sequence 0) and farewells (1) */

struct ucx_hello {
    uint64_t magic;
    int64_t generation;
    int32_t rank, ranks;
    int32_t offers_gpu, unused;
};

struct ucx_peer {
    struct ucx *ucx;
    bool is_linked; /* the driver has a connection to it, or is making one */
    void *link;     /* the driver's */
    int rank;
    const char *why; /* it is lost; NULL while it lives */
    struct ucx_hello theirs;
    struct ucx_op greeted, heard; /* greeting: sent, received */
    struct ucx_op left, leaving;  /* farewell: received, sent */
    int64_t left_ns;              /* when the farewell was seen */
    int32_t bye;                  /* whom it lost, which made it leave; -1: nobody */
};

/* A driver's calls. `why` is a text that lasts: NULL means that all is well. */
struct ucx_driver {
    const char *name, *label; /* "tcp"; of error messages: "TCP" */
    /* open: *state_out is set also when a later step fails. */
    enum status (*open)(const struct ucx_config *config, void **state_out);
    void (*close)(void *state);
    enum status (*address)(void *state, bool is_near, void *out, int64_t cap, int64_t *bytes_out);
    /* reach: begins a connection to the peer. why it cannot. */
    const char *(*reach)(struct ucx *ucx, struct ucx_peer *peer, const void *address,
                         int64_t bytes);
    /* send, recv: begin; ended at once (ucx_op_end) or within progress. why they cannot. */
    const char *(*send)(struct ucx *ucx, struct ucx_op *op, const void *data, uint64_t tag);
    const char *(*recv)(struct ucx *ucx, struct ucx_op *op, void *data, uint64_t tag);
    unsigned (*progress)(struct ucx *ucx);  /* how much moved */
    void (*sleep)(struct ucx *ucx, int ms); /* until there is news */
    /* until all that was sent has left; false: it has not in that time */
    bool (*flush)(struct ucx *ucx, int64_t ns);
    /* closes connections: nothing touches the messages' memory afterwards */
    void (*drop)(struct ucx *ucx);
    void (*describe)(struct ucx *ucx, char *out, size_t cap);
};
extern const struct ucx_driver ucx_ucp_driver, tcp_driver;
bool ucx_ucp_reaches_gpu(const void *state);
int64_t tcp_accept_refused(void); /* connections closed, ever */

enum { UCX_DRIVER_TCP, UCX_DRIVER_UCP, UCX_DRIVERS_N };

struct ucx {
    const struct ucx_driver *driver; /* chosen */
    void *state;                     /* its own */
    void *states[UCX_DRIVERS_N];     /* of those opened, until one is chosen */
    struct ucx_config config;
    struct ucx_hello mine;
    const uint8_t *secret; /* of the generation, while connecting */
    int rank, ranks;
    struct ucx_peer *peers; /* ranks of them */
    struct ucx_op *busy;    /* list of what is under way */
    int lost;               /* the rank lost first, or -1 */
    struct ucx_op *failed;  /* …and the first message that failed, and why */
    const char *failed_why;
    bool is_broken;
    int32_t farewell;       /* as bye, from here */
    int64_t ended;          /* messages, ever */
    int64_t nap_ns, napped; /* of the last nap: how long, and `ended` before it */
    char name[64], why[160];
};

extern const char ucx_too_long[]; /* why: a message is longer than its receiver expects */

/* ucx_op_end — a message is over; why it failed, or NULL. ucx_on_lost — the peer's connection
 * ended. ucx_fail_unreached — ST_PEER: nothing came from that rank. */
void ucx_op_end(struct ucx_op *op, const char *why);
void ucx_on_lost(struct ucx_peer *peer, const char *why);
enum status ucx_fail_unreached(const struct ucx *ucx, int rank, const char *why);

#endif
