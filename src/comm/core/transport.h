/* transport — the table a transport fills, and what comm.c gives it.
 *
 * comm.c has checked the arguments, numbered the call and written down who waits in what before an
 * entry is called. It calls one entry at a time for a comm and all comms made from it by comm_split
 * (they share one order of calls), but not always from the same thread. An entry moves and adds,
 * and returns when the call's buffers belong to the caller again. Wherever it waits it asks
 * transport_check every few milliseconds at least, sleeps or yields when comm_ctx.spins is false,
 * and never waits in close. After an entry has failed comm.c calls none but close. Must not know
 * who calls comm. */
#ifndef CONVOY_COMM_TRANSPORT_H
#define CONVOY_COMM_TRANSPORT_H

#include <stdatomic.h>

#include "comm/core/comm.h"

enum comm_call_kind {
    COMM_CALL_NONE,
    COMM_CALL_OPEN,
    COMM_CALL_ALLOC,
    COMM_CALL_SPLIT,
    COMM_CALL_ALL_REDUCE,
    COMM_CALL_REDUCE_SCATTER,
    COMM_CALL_ALL_GATHER,
    COMM_CALL_ALL_TO_ALL, /* elems: of one part */
    COMM_CALL_BROADCAST,
    COMM_CALL_SEND,
    COMM_CALL_RECV,
    COMM_CALL_BARRIER,
    COMM_CALL_N
};

/* One call. out and in as in comm.h: reduce_scatter's out and all_gather's in are the part alone;
 * broadcast and recv have out, send has in (broadcast: in == out). peer: root, to, from; else
 * -1. */
struct comm_call {
    enum comm_call_kind kind;
    enum dtype dtype;
    int peer;
    int64_t sequence; /* send, recv: counted apart, for they are not the same on all ranks */
    int64_t elems;
    void *out;
    const void *in;
    int64_t entered_ns; /* clock_ns */
    struct dev_event
        *event; /* what on the device comes before the call; NULL: all of that is done */
};

/* What peers tell each other of a call at its entry, to find that they are not in the same one. */
struct comm_header {
    int64_t sequence, elems;
    int32_t peer;
    uint16_t kind, dtype;
};

struct transport_ops;
struct comm_queue;

/* What a transport sees of a comm. `config.place` is the comm's own: for a sub, that among its
 * members (nodes 1 per rank when its nodes have unequal numbers of members). */
struct comm_ctx {
    const struct transport_ops *ops;
    struct comm_config config;
    struct comm_ctx *parent; /* of a sub; NULL: a root */
    /* of a sub: the number of each member in the parent; NULL in a root */
    const int *ranks;
    void *state; /* the transport's own, set by begin_open and sub, freed by close */
    const struct comm_call *call; /* under way */
    bool has_gpu_direct;          /* `direct` may be called: on all ranks or on none */
    /* a core is free for waiting: in the caller's own thread, ranks ≤ cores */
    bool spins;
    /* the cores are busy computing what this call runs beside: in the comm's thread */
    bool rests;
    /* whose thread carries the call out beside the host's computing; else NULL */
    struct comm_queue *queue;
    atomic_bool *closing;       /* shared with the root: ends waits like an abort */
    _Atomic int64_t bytes_sent; /* the transport adds what leaves for other ranks */
    char why[240];              /* auto: why it took what it took */
};

struct transport_ops {
    enum comm_kind kind;
    const char *name;
    /* moves memory of config.dev, else of the host; what lies on the other side, staging brings
     * */
    bool is_on_device;
    /* begin_open: takes what this rank needs, sets wire->state, packs its address (COMM_ADDRESS_MAX
     * bytes there); config.generation is set from end_open on.
     * end_open: meets the peers. close: after either, or after a failed begin_open; state may be
     * NULL. */
    enum status (*begin_open)(struct comm_ctx *ctx, void *address, int64_t *address_bytes);
    enum status (*end_open)(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes);
    void (*close)(struct comm_ctx *ctx);
    /* describe: name for people; NULL: `name`. Valid until close. */
    const char *(*describe)(const struct comm_ctx *ctx);
    /* alloc: comm_alloc for a root; freed by close. NULL: comm.c takes ordinary memory. */
    enum status (*alloc)(struct comm_ctx *ctx, int64_t bytes, void **out);
    /* sub: sets state of a new wire whose parent, ranks and place are set; closed before its
     * parent. */
    enum status (*split)(struct comm_ctx *ctx);
    /* entered: has that rank (of this wire) entered the call under way? 1 yes, 0 no, -1 not
     * known. */
    int (*entered)(const struct comm_ctx *ctx, int rank);
    enum status (*all_reduce)(struct comm_ctx *ctx, const struct comm_call *call);
    enum status (*reduce_scatter)(struct comm_ctx *ctx, const struct comm_call *call);
    enum status (*all_gather)(struct comm_ctx *ctx, const struct comm_call *call);
    enum status (*all_to_all)(struct comm_ctx *ctx, const struct comm_call *call);
    enum status (*broadcast)(struct comm_ctx *ctx, const struct comm_call *call);
    enum status (*send)(struct comm_ctx *ctx, const struct comm_call *call);
    enum status (*recv)(struct comm_ctx *ctx, const struct comm_call *call);
    enum status (*barrier)(struct comm_ctx *ctx, const struct comm_call *call);
    /* direct: a collective but all_to_all, between buffers in config.dev's memory, where
     * is_on_device is false but ctx->has_gpu_direct is set (by end_open, sub). NULL: none. */
    enum status (*gpu_direct)(struct comm_ctx *ctx, const struct comm_call *call);
};

extern const struct transport_ops comm_self_ops, shm_threads_ops, comm_p2p_ops, comm_nccl_ops,
    comm_auto_ops;

/* transport_find — the transport of a kind; NULL: none. One node needs no network.
 * transport_dispatch — the entry of the table that a call is for. */
const struct transport_ops *transport_find(enum comm_kind kind, const struct comm_place *place);
enum status transport_dispatch(struct comm_ctx *ctx, const struct comm_call *call);

/* transport_check — ask in every wait: ST_OK, or ST_PEER with the sentence when the job is aborted,
 * the comm is being closed, or the call is late (who has not entered is asked of `entered`). A
 * clock reading and a call: not in the innermost loop. */
enum status transport_check(const struct comm_ctx *ctx);
/* transport_fail_abandoned — ST_PEER: rank `by` has given the call up; names who has not entered
 * it. */
enum status transport_fail_abandoned(const struct comm_ctx *ctx, int by);

/* transport_header, transport_check_header — what this rank tells of its call; ST_BUG naming both
 * calls when a peer's differs. A send agrees with a recv. */
struct comm_header transport_header(const struct comm_call *call);
enum status transport_check_header(const struct comm_ctx *ctx, int rank,
                                   const struct comm_header *theirs);

/* transport_bytes — of the elements that a call counts: of one part for all_to_all, else of the
 * whole. */
static inline int64_t transport_bytes(const struct comm_call *call)
{
    return call->elems * (int64_t)dtype_bytes(call->dtype);
}

const char *transport_call_name(enum comm_call_kind kind); /* "all_reduce"; "" for none */
/* its number in the root: what people are told */
int transport_root_rank(const struct comm_ctx *ctx, int rank);

/* transport_pause — one turn of a spinning wait. transport_futex_wait — sleep until *word may
 * differ from seen, at most ms; the word may lie in memory shared by processes.
 * transport_futex_wake — wake all that sleep on it. */
static inline void transport_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}
void transport_futex_wait(_Atomic uint32_t *word, uint32_t seen, int ms);
void transport_futex_wake(_Atomic uint32_t *word);

/* transport_reserve — zeroed memory, 2 MiB-aligned, that costs nothing until it is touched.
 * transport_map — the same, touched. Both are given back by transport_unmap. */
enum status transport_reserve(int64_t bytes, void **out);
enum status transport_map(int64_t bytes, void **out);
void transport_unmap(void *data, int64_t bytes);

#endif
