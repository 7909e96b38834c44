/* message_inside — the types and functions that messenger.c and connect.c share with the drivers:
 * connections, and the messages by which each begins and ends.
 *
 * A driver moves tagged messages between two processes: ucx/ucx.c over UCX, tcp/tcp.c over TCP
 * sockets. It reports the end of each message by messenger_op_end and each lost connection by
 * messenger_on_lost. A driver must not call the other driver. */
#ifndef CONVOY_COMM_MESSAGE_INSIDE_H
#define CONVOY_COMM_MESSAGE_INSIDE_H

#include <stddef.h>

#include "comm/message/messenger.h"

#define MESSAGE_HELLO_MAGIC 0x796f766e6f630003u
/* the group of HELLO (sequence 0) and GOAWAY messages (sequence 1) */
#define MESSAGE_HELLO_GROUP MESSAGE_GROUPS

struct message_hello {
    uint64_t magic;
    int64_t generation;
    int32_t rank, ranks;
    int32_t offers_gpu, shares_cores;
};

struct message_peer {
    struct messenger *messenger;
    bool is_connected; /* the driver has a connection to the peer, or connects */
    void *conn;        /* the driver's state of the connection */
    int rank;
    const char *why; /* why the peer is lost; NULL: it is not */
    bool was_closed; /* set by the driver: the peer's host closed or reset the connection */
    struct message_hello theirs;
    struct message_op hello_send, hello_recv;   /* HELLO messages */
    struct message_op goaway_recv, goaway_send; /* GOAWAY messages */
    int64_t goaway_ns;                          /* when the GOAWAY message was seen */
    /* the lost rank that caused the peer's end; -1: none */
    int32_t goaway_cause;
};

/* A driver. A function that returns `const char *` returns NULL, or the reason of its failure in
 * static memory. */
struct message_driver {
    const char *name, *label; /* "tcp"; "TCP" in error messages */
    /* open — sets *state_out even if a later step fails. */
    enum status (*open)(const struct message_config *config, void **state_out);
    void (*close)(void *state);
    enum status (*address)(void *state, bool is_intra_node, void *out, int64_t cap,
                           int64_t *bytes_out);
    /* connect — begins a connection to the peer. */
    const char *(*connect)(struct messenger *messenger, struct message_peer *peer,
                           const void *address, int64_t bytes);
    /* send, recv — begin a message, which ends immediately (messenger_op_end) or within
     * progress. */
    const char *(*send)(struct messenger *messenger, struct message_op *op, const void *data,
                        uint64_t tag);
    const char *(*recv)(struct messenger *messenger, struct message_op *op, void *data,
                        uint64_t tag);
    unsigned (*progress)(struct messenger *messenger);  /* returns how much moved */
    void (*sleep)(struct messenger *messenger, int ms); /* returns when something has arrived */
    /* returns when all sent bytes have left; false: they have not within ns */
    bool (*flush)(struct messenger *messenger, int64_t ns);
    /* closes all connections; afterwards nothing accesses the messages' memory */
    void (*drop)(struct messenger *messenger);
    void (*describe)(struct messenger *messenger, char *out, size_t cap);
    /* writes the peer's address for messages; NULL: the driver's addresses are not readable */
    void (*address_text)(const struct message_peer *peer, char *out, size_t cap);
    /* comm_link of a connected peer; NULL: the driver has no such numbers */
    bool (*link)(const struct message_peer *peer, struct comm_link *out);
};
extern const struct message_driver ucx_driver, tcp_driver;
/* ucx_supports_gpu — returns true if this UCX reports that it moves the memory of NVIDIA GPUs.
 * state: the state of ucx_driver. */
bool ucx_supports_gpu(const void *state);
int64_t tcp_accept_refused(void); /* number of unauthenticated connections closed so far */
/* ucx_message_refused — returns the number of forged or damaged messages dropped so far. */
int64_t ucx_message_refused(void);

enum { MESSAGE_DRIVER_TCP, MESSAGE_DRIVER_UCX, MESSAGE_DRIVERS_N };

struct messenger {
    const struct message_driver *driver; /* the chosen one */
    void *state;                         /* its state */
    void *states[MESSAGE_DRIVERS_N];     /* the states of opened drivers */
    struct message_config config;
    struct message_hello mine;
    const uint8_t *secret; /* secret of the generation; set only while connecting */
    int rank, ranks;
    struct message_peer *peers; /* one for each rank */
    struct message_op *busy;    /* list of messages in progress */
    int lost;                   /* the rank that was lost first; -1: none */
    int closed;                 /* the value for messenger_closed, once this is broken */
    struct message_op *failed;  /* the first message that failed, and the reason */
    const char *failed_why;
    bool is_broken;
    int32_t goaway_cause; /* the lost rank in this rank's GOAWAY messages */
    int64_t ended;        /* number of messages that have ended so far */
    /* the last coalescing sleep: its length, and `ended` before it */
    int64_t coalesce_ns, coalesce_ended;
    char name[64], choice_reason[160];
};

/* Posted receives of one peer for which no message has arrived, in the order of posting. */
struct message_queue {
    struct message_op *first, *last;
};
/* messenger_queue_add — appends a receive to the queue. */
static inline void messenger_queue_add(struct message_queue *queue, struct message_op *op)
{
    if (queue->last != NULL)
        queue->last->after = op;
    else
        queue->first = op;
    queue->last = op;
}

/* Removes the first receive of this tag and returns it; NULL: none. */
static inline struct message_op *messenger_queue_take(struct message_queue *queue, uint64_t tag)
{
    struct message_op *before = NULL;
    for (struct message_op *op = queue->first; op != NULL; before = op, op = op->after) {
        if (op->bits != tag)
            continue;
        if (before != NULL)
            before->after = op->after;
        else
            queue->first = op->after;
        if (queue->last == op)
            queue->last = before;
        op->after = NULL;
        return op;
    }
    return NULL;
}

/* Reasons of failures. messenger_truncated: a message is longer than its receive.
 * messenger_damaged: a message differs from the message that the peer sent. */
extern const char messenger_truncated[], messenger_damaged[];

/* message_choose_open — opens the drivers that config.net allows. */
enum status message_choose_open(struct messenger *messenger);
/* message_choose_select — chooses the driver and closes the others. Errors: ST_DISAGREE: ranks have
 * different settings; ST_PEER: an address is damaged. */
enum status message_choose_select(struct messenger *messenger, const struct message_world *world);
/* message_choose_address — returns that rank's address for the chosen driver; NULL: it has sent
 * none. */
const void *message_choose_address(const struct messenger *messenger,
                                   const struct message_world *world, int rank, int64_t *bytes_out);
/* message_choose_close — closes all drivers that are open. */
void message_choose_close(struct messenger *messenger);

/* messenger_op_end — ends a message; why: the reason of its failure, or NULL. */
void messenger_op_end(struct message_op *op, const char *why);
/* messenger_on_lost — handles the end of the connection to the peer; why: static memory. */
void messenger_on_lost(struct message_peer *peer, const char *why);
/* messenger_fail_unreachable — returns ST_PEER: no connection to that rank was made. */
enum status messenger_fail_unreachable(const struct messenger *messenger, int rank,
                                       const char *why);

#endif
