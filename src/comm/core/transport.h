/* transport — the table that a transport fills, and the guarantees of comm.c to it.
 *
 * Before comm.c calls an entry it has checked the arguments, numbered the call and recorded it. It
 * runs one entry at a time for a comm and all comms split from it, but not always on the same
 * thread. An entry moves and adds data, and returns when the call's buffers may be reused. After an
 * entry has failed, comm.c calls only close.
 *
 * An entry must
 *   - call transport_check at least every few milliseconds while it waits;
 *   - wait by ctx->wait_policy;
 *   - never wait in close. NCCL's waits for its finalize, at most a second.
 * Must not know the callers of comm. To add a transport: src/comm/README.md. */
#ifndef CONVOY_COMM_TRANSPORT_H
#define CONVOY_COMM_TRANSPORT_H

#include <stdatomic.h>

#include "comm/core/comm.h"
#include "comm/core/wait_policy.h"

enum comm_call_kind {
    COMM_CALL_NONE,
    COMM_CALL_OPEN,
    COMM_CALL_ALLOC,
    COMM_CALL_SPLIT,
    COMM_CALL_ALL_REDUCE,
    COMM_CALL_REDUCE_SCATTER,
    COMM_CALL_ALL_GATHER,
    COMM_CALL_ALL_TO_ALL, /* elems: elements of one part */
    COMM_CALL_BROADCAST,
    COMM_CALL_SEND,
    COMM_CALL_RECV,
    COMM_CALL_BARRIER,
    COMM_CALL_N
};

/* One call with its buffers, in the form that comm.c passes to a transport; other ranks and threads
 * see struct comm_activity instead. out and in are as in comm.h. broadcast has both (out == in),
 * send only `in`, recv only `out`. reduce_scatter's out and all_gather's in hold only this rank's
 * part. */
struct comm_call {
    enum comm_call_kind kind;
    enum dtype dtype;
    int peer;         /* root, to, from; else -1 */
    int64_t sequence; /* send, recv: numbered apart, because not all ranks make them */
    int64_t recorded; /* its number in comm_activity */
    int64_t elems;
    void *out;
    const void *in;
    int64_t entered_ns;      /* clock_ns */
    struct dev_event *event; /* the call runs after it on the device; NULL: nothing to wait for */
    comm_then_fn *then;      /* follows the call (comm_all_to_all_begin); NULL: nothing */
    void *then_arg;
};

/* The header that ranks exchange at the start of a call, to detect that they are in different
 * calls. */
struct comm_header {
    int64_t sequence, elems;
    int32_t peer;
    uint16_t kind, dtype;
};

/* Whether a rank has entered the call in progress. */
enum transport_entered { TRANSPORT_ENTERED_NO, TRANSPORT_ENTERED_YES, TRANSPORT_ENTERED_UNKNOWN };

struct transport_ops;
struct comm_queue;

/* The result of a transport's connection; a split has a copy of its parent's. */
struct transport_about {
    char backend[16], name[80]; /* comm_backend and comm_name; "": the name of the table */
    bool has_gpu_direct;        /* `gpu_direct` may be called; the same on all ranks */
    struct stream *stream;      /* the device executes the calls there, in order; NULL: none */
};

/* A comm as its transport sees it. config.place is the position in this comm. In a split whose
 * nodes have unequal numbers of members, every rank counts as a node of its own. */
struct comm_ctx {
    const struct transport_ops *ops;
    struct comm_config config;
    int64_t generation;      /* generation of the job; 0 until comm_end_open sets it */
    struct comm_ctx *parent; /* parent of a split; NULL in a root */
    const int *ranks;        /* split: each member's rank in the parent; NULL in a root */
    void *state;             /* the transport's own; set by begin_open and split, freed by close */
    struct transport_about about;
    const struct comm_call *call; /* the call in progress */
    enum wait_policy wait_policy; /* how the call in progress waits */
    /* The queue whose thread runs the call while the host computes; NULL: the caller's thread runs
     * it. */
    struct comm_queue *queue;
    /* The entry returns when the call is on the transport's stream. Its waits call `watch`, which
     * watches the calls in progress on the stream; NULL: there are none. */
    bool is_async;
    enum status (*watch)(struct comm_ctx *ctx, void *arg);
    void *watch_arg;
    _Atomic int64_t *stuck_ns;  /* renewed by transport_check; NULL: not used */
    atomic_bool *closing;       /* shared with the root; true ends waits like an abort */
    _Atomic int64_t bytes_sent; /* the transport adds the bytes that leave for other ranks */
    /* why this transport or network was chosen; "": there was no choice */
    char choice_reason[240];
};

struct transport_ops {
    const char *name;
    /* true: moves memory of config.dev; false: host memory. Staging copies the rest. */
    bool is_on_device;
    /* begin_open — allocates memory and sockets, sets ctx->state, packs this rank's address (at
     * most COMM_ADDRESS_MAX bytes). The generation is not set yet. */
    enum status (*begin_open)(struct comm_ctx *ctx, void *address, int64_t *address_bytes);
    /* end_open — connects to the peers; sets ctx->about. */
    enum status (*end_open)(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes);
    /* split — sets the state of a new ctx, which has a copy of its parent's `about`, and whose
     * parent, ranks and place are set. Closed before its parent. */
    enum status (*split)(struct comm_ctx *ctx);
    /* close — may follow any of them, also a failure; state may be NULL. */
    void (*close)(struct comm_ctx *ctx);
    /* alloc — comm_alloc for a root; freed by close. *out stays NULL if the transport has no memory
     * of its own: comm.c uses ordinary memory then. NULL: it never has. */
    enum status (*alloc)(struct comm_ctx *ctx, int64_t bytes, void **out);
    /* run — executes one call: a collective, send, recv or barrier. */
    enum status (*run)(struct comm_ctx *ctx, const struct comm_call *call);
    /* gpu_direct — executes a collective between buffers in config.dev's memory if is_on_device is
     * false; not all_to_all, send or recv. Called only if about.has_gpu_direct. NULL: none. */
    enum status (*gpu_direct)(struct comm_ctx *ctx, const struct comm_call *call);
    /* The next three may be NULL if the transport has no such information.
     * entered — returns whether that rank of this ctx has entered the call in progress. */
    enum transport_entered (*entered)(const struct comm_ctx *ctx, int rank);
    /* link — does comm_link for another rank of this ctx. */
    bool (*link)(const struct comm_ctx *ctx, int rank, struct comm_link *out);
    /* closed — does comm_closed_rank for a root. */
    int (*closed)(const struct comm_ctx *ctx);
    /* The next two are for a transport with about.stream, whose collectives, send and recv observe
     * ctx->is_async.
     *
     * check — returns an error of the communicator during a call in progress; ctx->call is that
     * call. */
    enum status (*check)(struct comm_ctx *ctx);
    /* abort_all — called after a failure: ends the calls of all comms of the root, on the device
     * too. */
    void (*abort_all)(struct comm_ctx *ctx);
};

extern const struct transport_ops shm_threads_ops, comm_nodes_ops, comm_nccl_ops, comm_auto_ops;

/* transport_find — returns the table of a kind; NULL: none. HOST on one node needs no network, so
 * its table is comm_shm_ops. */
const struct transport_ops *transport_find(enum comm_kind kind, const struct comm_place *place);
/* transport_dispatch — calls the table's entry for this call. */
enum status transport_dispatch(struct comm_ctx *ctx, const struct comm_call *call);

/* transport_check — checks whether the call in progress must end. Call it in every wait. It reads a
 * clock and calls is_aborted, so keep it out of innermost loops. Returns ST_OK, or ST_PEER when
 *   - the job is aborted,
 *   - the comm is being closed, or
 *   - the call is late: the message names the ranks that have not entered it (`entered`). */
enum status transport_check(const struct comm_ctx *ctx);
/* transport_watch — does transport_check, and calls ctx->watch if it is set. */
enum status transport_watch(struct comm_ctx *ctx);
/* transport_fail_abandoned — returns ST_PEER: rank `by` has ended the call. The message names the
 * ranks that have not entered it. */
enum status transport_fail_abandoned(const struct comm_ctx *ctx, int by);

/* transport_header — returns the header that describes a call to peers. */
struct comm_header transport_header(const struct comm_call *call);
/* transport_check_header — returns ST_OK, or ST_BUG naming both calls if rank's header describes
 * another call. A send matches a recv. */
enum status transport_check_header(const struct comm_ctx *ctx, int rank,
                                   const struct comm_header *theirs);

/* transport_bytes — returns the bytes of call->elems: of one part for all_to_all, else of the whole
 * buffer. */
static inline int64_t transport_bytes(const struct comm_call *call)
{
    return call->elems * (int64_t)dtype_bytes(call->dtype);
}

const char *transport_call_name(enum comm_call_kind kind); /* "all_reduce"; "" for NONE */
/* transport_root_rank — returns the rank's number in the root comm, which messages show. */
int transport_root_rank(const struct comm_ctx *ctx, int rank);

/* transport_pause — executes one iteration of a spinning wait. */
static inline void transport_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}
/* transport_futex_wait — sleeps until *word may differ from `seen`, at most ms milliseconds; the
 * word may lie in memory that processes share. */
void transport_futex_wait(_Atomic uint32_t *word, uint32_t seen, int ms);
/* transport_futex_wake — wakes all sleepers on it. */
void transport_futex_wake(_Atomic uint32_t *word);

/* transport_reserve — reserves zeroed memory, aligned to 2 MiB, whose pages cost nothing until they
 * are touched. */
enum status transport_reserve(int64_t bytes, void **out);
/* transport_map — does the same and touches the pages. */
enum status transport_map(int64_t bytes, void **out);
/* transport_unmap — frees either. */
void transport_unmap(void *data, int64_t bytes);

#endif
