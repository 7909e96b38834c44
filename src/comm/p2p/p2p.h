/* p2p — tagged messages between ranks of different nodes: over UCX (InfiniBand, RoCE), or over TCP
 * by this program's own transport (tcp.h), which proves each peer and each message. The name is
 * older than the second of them.
 *
 * One struct p2p for a worker process and a life of its comm: one connection to each peer. Which of
 * the two carries it is decided when all addresses are known, by one rule on every rank
 * (p2p_choose.c).
 * Messages are begun here and then waited for in p2p_progress, which asks the caller's watch
 * (deadline, abort), so that no wait is without an end. A peer that dies is noticed by the
 * transport's own means (a TCP reset, an InfiniBand retry limit) and named by its rank. After a
 * failure it is only to be closed, and closing never waits for a peer.
 *
 * Messages from one rank to another with the same tag arrive in the order of sending. The tag says
 * whose life of the job, which group of ranks and which call a message belongs to: a late one is
 * never taken for another's.
 *
 * One thread at a time, any thread (UCS_THREAD_MODE_SERIALIZED; comm.c keeps that order). To be
 * opened after fork(2), not before. Settings named UCX_* in the environment work as UCX documents
 * them. Must not know what the bytes mean, nor collectives; UCX's own names stay inside ucx.c
 * and ucx_setup.c. */
#ifndef CONVOY_COMM_P2P_H
#define CONVOY_COMM_P2P_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/core/wait_policy.h"

#define P2P_GROUPS 4095    /* groups of ranks on the same connections */
#define P2P_RANKS_MAX 4096 /* a tag has twelve bits for who sends */
#define P2P_DRIVER_HEADER_BYTES 64
#define P2P_SECRET_BYTES 16
enum p2p_tag_class {
    P2P_TAG_HEADER, /* the first message of each call of a group */
    P2P_TAG_PART,   /* what is to be added */
    P2P_TAG_SUM,    /* what is finished */
    P2P_TAG_PAIR,   /* send and recv */
};

/* Which messages match: those of the same tag. */
struct p2p_tag {
    int group;
    int from; /* the rank that sends */
    enum p2p_tag_class tag_class;
    /* of the call, 0 in the lanes whose messages come one after another; low 30 bits count */
    int64_t sequence;
};

/* A message under way, in the caller's memory until p2p_is_done or p2p_abort. Zeroed: none. */
struct p2p_op {
    struct p2p_op *prev, *next; /* among those under way */
    struct p2p *p2p;
    void *request;        /* UCX's */
    struct p2p_op *after; /* tcp: the next of its peer's queue */
    char *data;
    int64_t moved;                               /* bytes of it that have left, or come */
    uint64_t bits;                               /* its tag */
    unsigned char head[P2P_DRIVER_HEADER_BYTES]; /* of the part under way */
    /* bytes of that part with its head; 0: none. Moved of these */
    int32_t frame_bytes, frame_moved;
    int peer;
    bool is_send;
    bool is_busy;   /* under way */
    bool is_goaway; /* a goaway_cause, which nobody waits for */
    /* set by who begins it: the bytes lie in a GPU's memory; kept from message to message */
    bool is_gpu;
    int64_t bytes; /* wanted; of a receive that is done: what came */
};

struct p2p;

/* Asked every few milliseconds of waiting; anything but ST_OK ends the wait. */
struct p2p_watch {
    enum status (*check)(void *arg);
    void *arg;
    enum wait_policy wait_policy;
    /* nap — with WAIT_POLICY_SLEEP, for a large call that no thread waits for: sleeps for ns, even
     * if messages arrive, or until a thread waits; returns false if one does. A wake-up for every
     * 64 KiB that arrive would take the core, and its caches, from computation. NULL: no nap. */
    bool (*nap)(void *arg, int64_t ns);
};

/* Which transports may be taken. */
enum p2p_net {
    P2P_NET_AUTO, /* UCX where every rank has a device for RDMA or names tcp in UCX_TLS, else TCP */
    P2P_NET_TCP,
    P2P_NET_UCX,
};
struct p2p_config {
    enum p2p_net net;
    /* messages below so many bytes are sent at once, larger ones when the receiver expects them
     * (over UCX: UCX_RNDV_THRESH in the environment wins) */
    int64_t eager_bytes;
    /* tcp: where to listen: a name, an address, a network interface; empty or NULL: the address
     * from which `master` is reached, a name or an address (NULL: 127.0.0.1) */
    const char *data_addr, *master;
};

/* p2p_open — Errors: ST_NO_DEVICE with UCX's text; ST_RETRY: no address leads to the master now;
 * ST_BAD_SETTING. */
enum status p2p_open(const struct p2p_config *config, struct p2p **out);
/* p2p_address — how others reach this worker: over networks; is_intra_node: also over what only
 * processes of one node share (NVLink), where that fits into half of cap (some want to pack more
 * beside it). Errors: ST_NO_DEVICE, more network devices than cap bytes can tell. */
enum status p2p_address(struct p2p *p2p, bool is_intra_node, void *out, int64_t cap,
                        int64_t *bytes_out);
/* p2p_connect — an endpoint to each rank marked in is_peer, and a greeting both ways. addresses:
 * ranks × stride bytes. Errors: ST_PEER naming the rank; the watch's. */
struct p2p_world {
    int64_t generation;
    int rank, ranks;
    const bool *is_peer;
    const void *addresses;
    int64_t stride;
    const int64_t *bytes;  /* of each address */
    const uint8_t *secret; /* P2P_SECRET_BYTES, of this generation, known to its ranks alone */
    bool offers_gpu;       /* this rank would have a GPU's memory moved as it is */
};
enum status p2p_connect(struct p2p *p2p, const struct p2p_world *world, struct p2p_watch watch);
/* p2p_close — ends what is under way and frees everything. Waits at most a moment for what was
 * already sent to leave, and not at all after a failure. Accepts NULL. */
void p2p_close(struct p2p *p2p);
/* p2p_supports_gpu — does this UCX say that it moves memory of NVIDIA's GPUs? p2p_rank_without_gpu
 * — after p2p_connect: the first rank that did not offer it; -1: all did, and the GPU's memory may
 * be given to p2p_send and p2p_recv. p2p_log_gpu — to the log, which way a GPU's numbers go, and
 * why. */
bool p2p_supports_gpu(const struct p2p *p2p);
int p2p_rank_without_gpu(const struct p2p *p2p);
void p2p_log_gpu(const struct p2p *p2p);
/* p2p_name — the driver in use, with details for logs: "tcp", "ucx (rc_mlx5)". p2p_driver_name — the
 * same without details. After p2p_connect. */
const char *p2p_name(const struct p2p *p2p);
const char *p2p_driver_name(const struct p2p *p2p);
const char *p2p_why(const struct p2p *p2p); /* P2P_NET_AUTO: why this one; else "" */
int64_t p2p_refused(void); /* connections of strangers that this process has closed, ever */

/* p2p_send, p2p_recv — begin. The bytes belong to the transport until p2p_is_done(op). More bytes
 * than there is room for fail. */
enum status p2p_send(struct p2p *p2p, struct p2p_op *op, const void *data, int64_t bytes, int to,
                     struct p2p_tag tag);
enum status p2p_recv(struct p2p *p2p, struct p2p_op *op, void *data, int64_t bytes,
                     struct p2p_tag tag);
static inline bool p2p_is_done(const struct p2p_op *op) { return !op->is_busy; }

/* p2p_progress — move what is under way. Returns when something moved, else after a few
 * milliseconds at most, having spun, then given way to other threads, then slept until there is
 * news. Errors: ST_PEER naming the rank that was lost while something under way needed it; the
 * watch's. */
struct p2p_wait {
    struct p2p_watch watch;
    int64_t idle_ns;  /* since when nothing moved; 0: it does */
    int64_t asked_ns; /* when the watch was asked last */
    int progressed_n; /* of moving since */
    /* something else is waited for too, which wakes nobody (a GPU): never sleeps */
    bool is_polling;
};
enum status p2p_progress(struct p2p *p2p, struct p2p_wait *wait);
/* p2p_abort — after a failure: what is under way ends now and its buffers are the caller's
 * again. */
void p2p_abort(struct p2p *p2p);
/* p2p_lost — whose connection ended first; false: nobody's. */
struct p2p_loss {
    int rank;
    bool sent_goaway; /* it took its leave, so it failed or finished by itself and was not lost */
    /* …because it lost that rank, or heard that another had; -1: not because of that */
    int cause;
    const char *text;  /* why, from the transport */
    const char *label; /* …which is this: "UCX", "TCP" */
};
bool p2p_lost(const struct p2p *p2p, struct p2p_loss *out);

#endif
