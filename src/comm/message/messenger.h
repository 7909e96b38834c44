/* messenger — tagged point-to-point messages between ranks of different nodes.
 *
 * Two drivers carry them: this program's own TCP transport (tcp/tcp.c), and UCX (ucx/ucx.c) for
 * InfiniBand and RoCE. Both authenticate each peer and each message, and compare content with a
 * checksum before the receive ends; only content in a GPU's memory has none. One rule on every rank
 * picks the driver once all addresses have arrived (choose.c). Must not depend on collectives or
 * interpret the bytes; UCX's own names stay in ucx/.
 *
 * One struct messenger for each worker process and generation of the job. It holds one connection
 * to each peer. The life of a message:
 *
 *   1. messenger_send and messenger_recv begin it and return immediately. The buffer belongs to the
 *      transport now.
 *   2. The tag decides which receive it matches: generation, group of ranks, sender, class and
 *      call. Messages with the same tag arrive in the order of sending. A late message of another
 *      generation or call matches nothing.
 *   3. A short message is sent eagerly: the receiver keeps it if no receive is posted yet. A long
 *      one waits for its receive (UCX: rendezvous; TCP: its bytes stay in the socket).
 *   4. The caller calls messenger_progress until messenger_is_done. messenger_progress moves bytes
 *      and calls the watch (deadline, abort) every few milliseconds, so every wait has an end.
 *      While nothing moves it spins, yields or sleeps.
 *   5. The buffer is the caller's again.
 *
 * A rank that ends sends each peer a GOAWAY message. It contains the rank whose loss made it end,
 * if there is one. So peers can distinguish an orderly end from a death. The transport detects a
 * dead peer (a TCP reset, an InfiniBand retry limit), and the error contains its rank. After a
 * failure the only calls allowed are messenger_lost, messenger_closed, messenger_abort and
 * messenger_close; none waits for a peer.
 *
 * One thread at a time, any thread (UCS_THREAD_MODE_SERIALIZED; comm.c keeps that order). Open it
 * after fork(2), not before. UCX_* variables of the environment work as UCX documents them. */
#ifndef CONVOY_COMM_MESSAGE_H
#define CONVOY_COMM_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/core/comm.h"
#include "comm/core/wait_policy.h"

#define MESSAGE_GROUPS 4095    /* groups of ranks that share the connections */
#define MESSAGE_RANKS_MAX 4096 /* a tag has twelve bits for the sender */
#define MESSAGE_DRIVER_HEADER_BYTES 64
enum message_tag_class {
    MESSAGE_TAG_HEADER, /* the first message of each call of a group */
    MESSAGE_TAG_PART,   /* contributions to a sum */
    MESSAGE_TAG_SUM,    /* finished sums */
    MESSAGE_TAG_PAIR,   /* send and recv */
};

/* A receive matches the messages with its tag. */
struct message_tag {
    int group;
    int from; /* the sender */
    enum message_tag_class tag_class;
    /* number of the call, 0 in classes without a number; only the low 30 bits are compared */
    int64_t sequence;
};

/* A message in progress. The caller keeps the struct until messenger_is_done or messenger_abort.
 * Zeroed: none. */
struct message_op {
    struct message_op *prev, *next; /* list of messages in progress */
    struct messenger *messenger;
    void *request;            /* UCX's request */
    struct message_op *after; /* the next in its peer's queue */
    char *data;
    int64_t moved; /* bytes sent or received */
    uint64_t bits; /* its tag */
    /* TCP: head of the frame in progress. UCX: head of the message */
    unsigned char head[MESSAGE_DRIVER_HEADER_BYTES];
    /* TCP: bytes of the frame in progress with its header, 0: none; bytes of it that have moved */
    int32_t frame_bytes, frame_moved;
    int peer;
    bool is_send;
    bool is_busy;   /* in progress */
    bool is_goaway; /* a GOAWAY message: its end wakes no caller and fails no call */
    /* set by the caller: the bytes lie in a GPU's memory; kept from message to message */
    bool is_gpu;
    int64_t bytes; /* bytes requested; in a finished receive: bytes received */
};

struct messenger;

/* The way to wait. check: called every few milliseconds; any status but ST_OK ends the wait. */
struct message_watch {
    enum status (*check)(void *arg);
    void *arg;
    enum wait_policy wait_policy;
    /* coalesce — sleeps for ns even if messages arrive, as a network card coalesces interrupts.
     * Used with WAIT_POLICY_SLEEP, for a large call that no thread waits for: a wake-up for every
     * 64 KiB would disturb the computation on that core, and its caches. Ends early and returns
     * false if a thread waits. NULL: every message wakes. */
    bool (*coalesce)(void *arg, int64_t ns);
};

struct message_config {
    enum comm_net net; /* the drivers that are allowed */
    /* shorter messages are sent eagerly, longer ones when the receiver has posted its receive (over
     * UCX: UCX_RNDV_THRESH in the environment wins) */
    int64_t eager_bytes;
    /* TCP: the address to listen on: a name, an address, a network interface. Empty or NULL: the
     * address from which `master` (a name or an address; NULL: 127.0.0.1) is reached. */
    const char *data_addr, *master;
    bool shares_cores; /* other ranks use this rank's cores too */
};

/* messenger_open — opens the allowed drivers. Errors: ST_NO_DEVICE with UCX's text; ST_RETRY: no
 * route to the master now; ST_BAD_SETTING. */
enum status messenger_open(const struct message_config *config, struct messenger **out);
/* message_choose_pack — packs the address by which other ranks reach this worker over networks, at
 * most cap bytes. is_intra_node: also over links between processes of one node (NVLink), if that
 * fits into half of cap, since callers pack more with it. Errors: ST_NO_DEVICE: the node has more
 * network devices than cap bytes can describe. */
enum status message_choose_pack(struct messenger *messenger, bool is_intra_node, void *out,
                                int64_t cap, int64_t *bytes_out);
struct message_world {
    int64_t generation;
    int rank, ranks;
    const bool *is_peer;
    const void *addresses;
    int64_t stride;
    const int64_t *bytes;  /* bytes of each address */
    const uint8_t *secret; /* COMM_SECRET_BYTES: only the ranks of this generation have it */
    bool offers_gpu;       /* this rank can send and receive GPU memory directly */
};
/* message_connect — connects to each rank marked in is_peer and exchanges HELLO messages.
 * addresses: ranks × stride bytes. Blocks until all these peers are connected. Errors: ST_PEER
 * naming the rank; the errors of the watch. */
enum status message_connect(struct messenger *messenger, const struct message_world *world,
                            struct message_watch watch);
/* messenger_close — ends all messages in progress and frees everything. Waits at most 100 ms for
 * sent bytes to leave, and not at all after a failure. Accepts NULL. */
void messenger_close(struct messenger *messenger);
/* messenger_supports_gpu — returns true if this rank's UCX reports that it moves the memory of
 * NVIDIA GPUs. */
bool messenger_supports_gpu(const struct messenger *messenger);
/* messenger_rank_without_gpu — returns the first rank that did not offer it; -1: all did, and
 * messenger_send and messenger_recv accept GPU memory. Call it after message_connect. */
int messenger_rank_without_gpu(const struct messenger *messenger);
/* messenger_log_gpu — logs the path of a GPU's data, and the reason. */
void messenger_log_gpu(const struct messenger *messenger);
/* messenger_shares_cores — returns true if any rank shares its cores; all ranks return the same.
 * Call it after message_connect. */
bool messenger_shares_cores(const struct messenger *messenger);
/* messenger_name — returns the driver in use, with details for logs: "tcp", "ucx (rc_mlx5)". Call
 * this and the next two after message_connect. */
const char *messenger_name(const struct messenger *messenger);
/* messenger_driver_name — returns the same without details. */
const char *messenger_driver_name(const struct messenger *messenger);
/* messenger_choice_reason — returns why COMM_NET_AUTO chose this driver; else "". */
const char *messenger_choice_reason(const struct messenger *messenger);
/* messenger_link — does comm_link for the connection to a rank; false: the driver has no such
 * numbers. */
bool messenger_link(const struct messenger *messenger, int rank, struct comm_link *out);
/* messenger_refused — returns the number of unauthenticated connections that this process has
 * closed, plus messages that it has dropped because they were forged or damaged, since its
 * start. */
int64_t messenger_refused(void);

/* messenger_send — begins to send a message and returns immediately. The bytes belong to the
 * transport until messenger_is_done(op). */
enum status messenger_send(struct messenger *messenger, struct message_op *op, const void *data,
                           int64_t bytes, int to, struct message_tag tag);
/* messenger_recv — begins to receive a message in the same way. A message that is longer than
 * `bytes` fails. */
enum status messenger_recv(struct messenger *messenger, struct message_op *op, void *data,
                           int64_t bytes, struct message_tag tag);
/* messenger_is_done — returns true if the message has ended, or was never begun. */
static inline bool messenger_is_done(const struct message_op *op) { return !op->is_busy; }

/* The state of one wait; at its start all but `watch` is zero. */
struct message_wait {
    struct message_watch watch;
    int64_t idle_ns;  /* clock_ns since which nothing has moved; 0: something has moved */
    int64_t asked_ns; /* last call of the watch */
    int progressed_n; /* calls since then that moved something */
    /* the caller also waits for something that wakes no thread (a GPU): never sleep */
    bool is_polling;
};
/* messenger_progress — moves messages in progress. Returns when something moved, else after a few
 * milliseconds at most: it spins, then yields to other threads, then sleeps until something
 * arrives. Errors: ST_PEER naming the lost rank that a message in progress needs; the errors of the
 * watch. */
enum status messenger_progress(struct messenger *messenger, struct message_wait *wait);
/* messenger_abort — ends every message in progress after a failure; their buffers are the caller's
 * again. */
void messenger_abort(struct messenger *messenger);
struct message_loss {
    int rank;
    bool sent_goaway; /* it ended in order, after a failure or at its end, and was not lost */
    /* …because of the loss of this rank, to it or to its peer; -1: for another reason */
    int cause;
    bool is_damaged;   /* one of its messages arrived damaged */
    const char *text;  /* reason from the driver */
    const char *label; /* name of the driver: "UCX", "TCP" */
};
/* messenger_lost — returns the peer of the connection that ended first; false: none has. */
bool messenger_lost(const struct messenger *messenger, struct message_loss *out);
/* messenger_closed — returns a rank whose host closed or reset the connection without a GOAWAY
 * message: its process has ended. If there are several, the rank that was lost first. -1: there is
 * none. A timeout does not count. */
int messenger_closed(const struct messenger *messenger);

#endif
