/* ucx — tagged messages between ranks of different nodes: over UCX (InfiniBand, RoCE), or over TCP
 * by this program's own transport (tcp.h), which proves each peer and each message. The name is
 * older than the second of them.
 *
 * One struct ucx for a worker process and a life of its comm: one connection to each peer. Which of
 * the two carries it is decided when all addresses are known, by one rule on every rank
 * (ucx_choose.c).
 * Messages are begun here and then waited for in ucx_pump, which asks the caller's watch (deadline,
 * abort), so that no wait is without an end. A peer that dies is noticed by the transport's own
 * means (a TCP reset, an InfiniBand retry limit) and named by its rank. After a failure it is only
 * to be closed, and closing never waits for a peer.
 *
 * Messages from one rank to another with the same tag arrive in the order of sending. The tag says
 * whose life of the job, which group of ranks and which call a message belongs to: a late one is
 * never taken for another's.
 *
 * One thread at a time, any thread (UCS_THREAD_MODE_SERIALIZED; comm.c keeps that order). To be
 * opened after fork(2), not before. Settings named UCX_* in the environment work as UCX documents
 * them. Must not know what the bytes mean, nor collectives; UCX's own names stay inside ucx_ucp.c
 * and ucx_setup.c. */
#ifndef CONVOY_COMM_UCX_H
#define CONVOY_COMM_UCX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define UCX_GROUPS 4095    /* groups of ranks on the same connections */
#define UCX_RANKS_MAX 4096 /* a tag has twelve bits for who sends */
#define UCX_HEAD_BYTES 64
#define UCX_SECRET_BYTES 16
enum ucx_lane {
    UCX_LANE_CALL, /* the first message of each call of a group */
    UCX_LANE_DATA, /* what is to be added */
    UCX_LANE_DONE, /* what is finished */
    UCX_LANE_PAIR, /* send and recv */
};

/* Which messages match: those of the same tag. */
struct ucx_tag {
    int group;
    int from; /* the rank that sends */
    enum ucx_lane lane;
    /* of the call, 0 in the lanes whose messages come one after another; low 30 bits count */
    int64_t sequence;
};

/* A message under way, in the caller's memory until ucx_is_done or ucx_break. Zeroed: none. */
struct ucx_op {
    struct ucx_op *prev, *next; /* among those under way */
    struct ucx *ucx;
    void *request;        /* UCX's */
    struct ucx_op *after; /* tcp: the next of its peer's queue */
    char *data;
    int64_t moved;                      /* bytes of it that have left, or come */
    uint64_t bits;                      /* its tag */
    unsigned char head[UCX_HEAD_BYTES]; /* of the part under way */
    /* bytes of that part with its head; 0: none. Moved of these */
    int32_t part, part_moved;
    int peer;
    bool is_send;
    bool is_busy; /* under way */
    bool is_bye;  /* a farewell, which nobody waits for */
    /* set by who begins it: the bytes lie in a GPU's memory; kept from message to message */
    bool is_gpu;
    int64_t bytes; /* wanted; of a receive that is done: what came */
};

struct ucx;

/* Asked every few milliseconds of waiting; anything but ST_OK ends the wait. */
struct ucx_watch {
    enum status (*check)(void *arg);
    void *arg;
    bool spins; /* a core is free for waiting; else give way to others at once */
    bool rests; /* others have better to do than to take turns with a wait: sleep at once */
    /* nap: with `rests`, where nobody waits for what is moved, and much is: sleeps for so long,
     * whatever comes, or until somebody waits; false: somebody does. A wake-up for every 64 KiB
     * that come takes the core from those who compute, and the caches with it. NULL: not wanted. */
    bool (*nap)(void *arg, int64_t ns);
};

/* Which transports may be taken. */
enum ucx_net {
    UCX_NET_AUTO, /* UCX where every rank has a device for RDMA or names tcp in UCX_TLS, else TCP */
    UCX_NET_TCP,
    UCX_NET_UCX,
};
struct ucx_config {
    enum ucx_net net;
    /* messages below so many bytes are sent at once, larger ones when the receiver expects them
     * (over UCX: UCX_RNDV_THRESH in the environment wins) */
    int64_t at_once;
    /* tcp: where to listen: a name, an address, a network interface; empty or NULL: the address
     * from which `master` is reached, a name or an address (NULL: 127.0.0.1) */
    const char *data_addr, *master;
};

/* ucx_open — Errors: ST_NO_DEVICE with UCX's text; ST_RETRY: no address leads to the master now;
 * ST_BAD_SETTING. */
enum status ucx_open(const struct ucx_config *config, struct ucx **out);
/* ucx_address — how others reach this worker: over networks; is_near: also over what only processes
 * of one node share (NVLink), where that fits into half of cap (some want to pack more beside it).
 * Errors: ST_NO_DEVICE, more network devices than cap bytes can tell. */
enum status ucx_address(struct ucx *ucx, bool is_near, void *out, int64_t cap, int64_t *bytes_out);
/* ucx_connect — an endpoint to each rank marked in is_peer, and a greeting both ways. addresses:
 * ranks × stride bytes. Errors: ST_PEER naming the rank; the watch's. */
struct ucx_world {
    int64_t generation;
    int rank, ranks;
    const bool *is_peer;
    const void *addresses;
    int64_t stride;
    const int64_t *bytes;  /* of each address */
    const uint8_t *secret; /* UCX_SECRET_BYTES, of this generation, known to its ranks alone */
    bool offers_gpu;       /* this rank would have a GPU's memory moved as it is */
};
enum status ucx_connect(struct ucx *ucx, const struct ucx_world *world, struct ucx_watch watch);
/* ucx_close — ends what is under way and frees everything. Waits at most a moment for what was
 * already sent to leave, and not at all after a failure. Accepts NULL. */
void ucx_close(struct ucx *ucx);
/* ucx_reaches_gpu — does this UCX say that it moves memory of NVIDIA's GPUs? ucx_without_gpu —
 * after ucx_connect: the first rank that did not offer it; -1: all did, and the GPU's memory may be
 * given to ucx_send and ucx_recv. ucx_tell_gpu — to the log, which way a GPU's numbers go, and
 * why. */
bool ucx_reaches_gpu(const struct ucx *ucx);
int ucx_without_gpu(const struct ucx *ucx);
void ucx_tell_gpu(const struct ucx *ucx);
const char *
ucx_name(const struct ucx *ucx); /* the transport in use, for people: "tcp", "ucx (rc_mlx5)" */
const char *ucx_why(const struct ucx *ucx); /* UCX_NET_AUTO: why this one; else "" */
int64_t ucx_refused(void); /* connections of strangers that this process has closed, ever */

/* ucx_send, ucx_recv — begin. The bytes belong to the transport until ucx_is_done(op). More bytes
 * than there is room for fail. */
enum status ucx_send(struct ucx *ucx, struct ucx_op *op, const void *data, int64_t bytes, int to,
                     struct ucx_tag tag);
enum status ucx_recv(struct ucx *ucx, struct ucx_op *op, void *data, int64_t bytes,
                     struct ucx_tag tag);
static inline bool ucx_is_done(const struct ucx_op *op) { return !op->is_busy; }

/* ucx_pump — move what is under way. Returns when something moved, else after a few milliseconds at
 * most, having spun, then given way to other threads, then slept until there is news. Errors:
 * ST_PEER naming the rank that was lost while something under way needed it; the watch's. */
struct ucx_wait {
    struct ucx_watch watch;
    int64_t idle_ns;  /* since when nothing moved; 0: it does */
    int64_t asked_ns; /* when the watch was asked last */
    int turns;        /* of moving since */
    /* something else is waited for too, which wakes nobody (a GPU): never sleeps */
    bool is_awake;
};
enum status ucx_pump(struct ucx *ucx, struct ucx_wait *wait);
/* ucx_break — after a failure: what is under way ends now and its buffers are the caller's
 * again. */
void ucx_break(struct ucx *ucx);
/* ucx_lost — whose connection ended first; false: nobody's. */
struct ucx_loss {
    int rank;
    bool has_left; /* it took its leave, so it failed or finished by itself and was not lost */
    /* …because it lost that rank, or heard that another had; -1: not because of that */
    int blamed;
    const char *text;  /* why, from the transport */
    const char *label; /* …which is this: "UCX", "TCP" */
};
bool ucx_lost(const struct ucx *ucx, struct ucx_loss *out);

#endif
