/* comm — collective communication between the ranks of a job. Must not know models, training steps,
 * settings or the board.
 *
 * Words
 *   rank         one worker of the job: a process with one device
 *   place        position of a rank: its node, and its number `local` in the node;
 *                rank = node · locals + local. Every node has `locals` workers.
 *   comm         this rank's handle for a group of ranks, as ncclComm_t is in NCCL
 *   transport    the implementation that moves the bytes (enum comm_kind)
 *   generation   one set of processes that train together, and its number; the next generation
 *                opens new comms
 *
 * Use
 *   comm_begin_open(&config, &comm, address, &bytes);      the caller distributes the addresses
 *   comm_end_open(comm, generation, addresses, all_bytes); connects to all ranks
 *   comm_all_reduce_begin(comm, grads, grads, elems, &ticket);
 *   ... compute ...
 *   comm_wait(comm, ticket);                               grads now hold the sum of all ranks
 *   comm_close(comm);
 *
 * Order of sums. Each element is summed along a fixed binary tree over the ranks (sum.h). The tree
 * does not depend on message size, chunking, transport or call. So all_reduce yields the same bits
 * as reduce_scatter followed by all_gather, and THREADS the same bits as HOST. NCCL adds in its own
 * order: all ranks of a call get the same bits, but not the bits of the other transports.
 *
 * Threads. One thread makes all calls on a comm and on the comms split from it. comm_activity and
 * comm_times may be called from any thread. A thread of the comm, the queue thread, executes the
 * calls of comm_..._begin while the caller computes.
 *
 * Device memory. If config.dev is discrete (a GPU), buffers may lie in its memory or in the host's.
 * In one collective, the buffers of all ranks lie in the same kind of memory. Before a call, device
 * work on its buffers is finished (dev_sync) or ordered before the call (comm_wait_stream). When
 * the call has returned, or comm_wait for it, the device has finished the call too.
 *
 * Errors. ST_BUG before a call starts: wrong arguments; the comm stays usable. A call that has
 * started and fails ends the comm:
 *   ST_PEER   the job was aborted, a rank was late or lost; the message names the missing ranks
 *   ST_BUG    the ranks are in different calls; the message names both calls
 *   ST_FAULT, ST_BAD_SETTING   from NCCL
 * Every further call returns the same failure, and only comm_close is allowed. Open and alloc may
 * also return ST_RETRY, ST_BAD_SETTING, ST_DISAGREE, ST_NO_DEVICE and ST_STORE. */
#ifndef CONVOY_COMM_COMM_H
#define CONVOY_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "dev/dev.h"
#include "kernels/tensor.h"

#define COMM_RANKS_MAX 4096
#define COMM_ADDRESS_MAX 2048 /* bytes of one rank's packed address */
#define COMM_SECRET_BYTES 16

struct comm;

/* The transports. */
enum comm_kind {
    COMM_KIND_SELF,    /* one rank; nothing is sent */
    COMM_KIND_THREADS, /* ranks are threads of one process; for tests */
    COMM_KIND_HOST, /* ranks are processes: shared memory inside a node, TCP or UCX between nodes */
    COMM_KIND_NCCL, /* every rank has a GPU of its own */
    COMM_KIND_AUTO  /* NCCL if every rank has it, else HOST */
};

/* The network that carries messages between nodes under HOST. AUTO: UCX if every rank has an
 * InfiniBand or RoCE device (or UCX_TLS names tcp), else TCP. Ranks send each other these values:
 * keep their order. */
enum comm_net { COMM_NET_AUTO, COMM_NET_TCP, COMM_NET_UCX };

/* The position of this rank: in the job, among the nodes, among the workers of its node. */
struct comm_place {
    int rank, ranks;
    int node, nodes;
    int local, locals;
};

/* The call that a rank is in, or the last one it left: for diagnosing a stall. It has no buffers; a
 * call with its buffers is struct comm_call (transport.h), used inside comm only. */
struct comm_activity {
    char call[24]; /* "all_reduce", …; "" between calls */
    /* number of the call, or of the last finished one, counted together with the calls of splits;
     * from 1; 0: none yet */
    int64_t sequence;
    int64_t entered_ms; /* clock_ms at entry; between calls: when the last call was left */
    int64_t elems;
    /* If a device executes calls: clock_ms since which the thread that watches or executes them has
     * been inside one function of the device's libraries; 0: it is in none. None of these functions
     * waits. */
    int64_t stuck_ms;
};

struct comm_config {
    enum comm_kind kind;
    struct comm_place place;
    /* A call that lasts longer fails with ST_PEER. The message names the missing ranks. */
    int64_t timeout_ms;
    /* Called when a call has lasted timeout_ms: returns the current limit in milliseconds. From any
     * thread. NULL: the limit stays timeout_ms. */
    int64_t (*limit_ms)(void *arg);
    /* Called during every wait, from any thread, so it must be cheap. true: every call ends with
     * ST_PEER. NULL: never. */
    bool (*is_aborted)(void *arg);
    void *arg;
    /* NCCL: most SMs of a GPU that its kernels use (COMM_SMS); 0: NCCL chooses */
    int device_sms;
    struct dev *dev; /* this rank's device; outlives the comm; NULL: buffers lie in host memory */
    /* true: other ranks use the same cores, so waits yield immediately */
    bool is_oversubscribed;
    enum comm_net net; /* HOST, AUTO */
    /* The address that TCP listens on, and the address that reaches node 0: see
     * message/messenger.h. Both outlive comm_begin_open. */
    const char *data_addr, *master;
    /* COMM_SECRET_BYTES that only the ranks of this generation share: TCP and UCX authenticate
     * peers with them. Read by comm_end_open and comm_open_host only. NULL: both refuse to
     * connect. */
    const uint8_t *secret;
    int shm_fd; /* HOST with locals > 1: an empty memfd that the node's workers share; else -1 */
    struct shm_threads_world *threads; /* THREADS: the world that all ranks share */
};

/* comm_begin_open — begins to open a comm: allocates memory and sockets, and packs this rank's
 * address, *address_bytes of at most COMM_ADDRESS_MAX bytes at `address` (SELF, THREADS: 0 bytes).
 * Does not wait for peers. The caller then distributes the addresses. */
enum status comm_begin_open(const struct comm_config *config, struct comm **out, void *address,
                            int64_t *address_bytes);
/* comm_set_place — sets this rank's place. Call it between the two halves if the group has other
 * nodes than config.place of comm_begin_open. */
enum status comm_set_place(struct comm *comm, const struct comm_place *place);
/* comm_end_open — completes the opening: connects to the peers of this generation and waits for
 * them, up to the deadline. Refuses peers of another generation. addresses: ranks ×
 * COMM_ADDRESS_MAX bytes; bytes[r]: the bytes that rank r uses. */
enum status comm_end_open(struct comm *comm, int64_t generation, const void *addresses,
                          const int64_t *bytes);
/* comm_close — ends the comm. Also valid after begin only, or after a failed end. It does not wait
 * for peers, except that NCCL's finalize may wait for them for at most a second. */
void comm_close(struct comm *comm); /* accepts NULL */

/* comm_place — returns this rank's position. */
const struct comm_place *comm_place(const struct comm *comm);
/* comm_backend — returns the name of the transport and its network: "self", "threads", "shm",
 * "tcp", "ucx", "shm + tcp", "shm + ucx" or "nccl". This string and the next two are valid after
 * comm_end_open, until comm_close. */
const char *comm_backend(const struct comm *comm);
/* comm_name — returns the backend with details, for logs: "nccl 2.28.9", "ucx (rc_mlx5)". */
const char *comm_name(const struct comm *comm);
/* comm_choice_reason — returns why this transport or network was chosen; "": there was no
 * choice. */
const char *comm_choice_reason(const struct comm *comm);
/* comm_activity — writes the call that this rank is in now. Any thread, from comm_begin_open on. */
void comm_activity(const struct comm *comm, struct comm_activity *out);

/* comm_alloc — allocates memory for buffers: zeroed, aligned to 2 MiB, resident. If a node has
 * several workers, it is memory that they share, so they read each other's buffers without a copy.
 * On a discrete device it is device memory. Collective: all ranks call it with the same sizes in
 * the same order, while no call is in progress. Call it before comm_split if possible, since a
 * split reaches later memory by copies. Waits for the node's workers. Freed by comm_close. */
enum status comm_alloc(struct comm *comm, int64_t bytes, void **out);

/* comm_wait_stream — orders the next call that this thread makes or begins after all work submitted
 * to stream `s` so far. The device waits, not the host. If the next call is a job: all calls that
 * the job makes. Host memory: no effect. */
enum status comm_wait_stream(struct comm *comm, struct stream *s);
/* comm_wait_event — does the same for an event; NULL: no effect. The caller keeps the event and
 * does not record it again until the call is finished, and flushes its stream (dev_flush)
 * before. */
void comm_wait_event(struct comm *comm, struct dev_event *event);

/* ---- Collectives
 *
 * All ranks make the same calls in the same order. Counts are elements, not bytes. Sums accept F32,
 * F64, BF16 and F16 (the last two summed in fp32, rounded once at the end). Other calls accept any
 * dtype. `elems` counts the whole buffer. Part r of a buffer is part_extent(elems, ranks, r) of
 * part.h: a multiple of 16 elements except the last part, and possibly empty. A buffer belongs to
 * the call until the call returns, or until comm_wait returns for its ticket. Each call blocks
 * until this rank's result is complete. ---- */

/* comm_all_reduce — sums `in` (elems) over all ranks into `out` (elems) on every rank. out == in is
 * allowed. */
enum status comm_all_reduce(struct comm *comm, struct tensor out, struct tensor in, int64_t elems);
/* comm_reduce_scatter — sums `in` (elems) over all ranks and writes part r of the sum to `out` on
 * rank r. `out` holds that part only. In place: out = in + the part's offset; the rest of `in` is
 * then undefined. */
enum status comm_reduce_scatter(struct comm *comm, struct tensor out, struct tensor in,
                                int64_t elems);
/* comm_all_gather — copies `in` of rank r, which holds part r only, to part r of `out` (elems) on
 * every rank. In place: in = out + the part's offset. */
enum status comm_all_gather(struct comm *comm, struct tensor out, struct tensor in, int64_t elems);
/* comm_all_to_all — copies block `rank` of rank r's `in` to block r of `out`. Both hold ranks ×
 * part_elems elements and must not overlap. */
enum status comm_all_to_all(struct comm *comm, struct tensor out, struct tensor in,
                            int64_t part_elems);
/* comm_broadcast — copies `data` (elems) of rank `root` to `data` of every rank. */
enum status comm_broadcast(struct comm *comm, struct tensor data, int64_t elems, int root);
/* comm_send — sends a message to rank `to`; the other ranks are not involved. elems and dtype are
 * the same at both ends. Returns when `data` may be reused. */
enum status comm_send(struct comm *comm, struct tensor data, int64_t elems, int to);
/* comm_recv — receives a message of rank `from` into `data`. */
enum status comm_recv(struct comm *comm, struct tensor data, int64_t elems, int from);
/* comm_barrier — returns after every rank has entered it. */
enum status comm_barrier(struct comm *comm);

/* ---- Calls during computation
 *
 * comm_..._begin puts a call in the queue and returns; the queue thread executes the calls in this
 * order. A blocking call first waits for all queued calls. ---- */

struct comm_ticket {
    int64_t sequence;
};
/* comm_all_reduce_begin — begins comm_all_reduce. Pass the ticket to comm_wait. */
enum status comm_all_reduce_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t elems, struct comm_ticket *ticket);
/* comm_reduce_scatter_begin — begins comm_reduce_scatter. */
enum status comm_reduce_scatter_begin(struct comm *comm, struct tensor out, struct tensor in,
                                      int64_t elems, struct comm_ticket *ticket);
/* comm_all_gather_begin — begins comm_all_gather. */
enum status comm_all_gather_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t elems, struct comm_ticket *ticket);
/* comm_then_fn — computes with the result of a call, in the queue thread. s: the stream on which
 * the device executes the call; work submitted to s belongs to the call. NULL: calls do not stay on
 * the device, the result is complete, and the function returns when its own work is complete. */
typedef enum status comm_then_fn(void *arg, struct stream *s);
/* comm_all_to_all_begin — begins comm_all_to_all; then(arg, …) follows as a part of the call. then
 * NULL: nothing follows. Part of an exact sum (mesh/grad/tree.h). */
enum status comm_all_to_all_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t part_elems, comm_then_fn *then, void *arg,
                                  struct comm_ticket *ticket);
/* comm_job_begin — queues a function: the queue thread calls job(arg) in its turn. The job makes
 * blocking calls on this comm, which run immediately, and may compute between them; it must not
 * begin calls. Its return value counts like the status of a call. Gradient compression is such a
 * job (mesh/grad/compress.h). */
enum status comm_job_begin(struct comm *comm, enum status (*job)(void *arg), void *arg,
                           struct comm_ticket *ticket);
/* comm_wait — blocks until the ticket's call is finished. Returns ST_OK, or the comm's first
 * failure. Wait for each ticket once. */
enum status comm_wait(struct comm *comm, struct comm_ticket ticket);

/* ---- Calls that the device executes
 *
 * On a GPU over NCCL, the device executes begun calls with buffers in device memory, and no host
 * thread waits for one before it starts the next. A stream can wait instead of the host. The queue
 * thread is the watchdog: it checks NCCL's errors, the abort, and the deadline of each call,
 * counted from when the device could start the call. A failure ends the calls in progress, so the
 * streams that wait for them continue with undefined contents: call comm_check before you use
 * results. ---- */

/* comm_stays_on_device — returns true if the device executes calls with buffers in its memory. */
bool comm_stays_on_device(const struct comm *comm);
/* comm_wait_on — makes work submitted to `s` from now on run after the ticket's call. The host
 * waits at most until the call is on the device. If calls do not stay on the device, this is
 * comm_wait. */
enum status comm_wait_on(struct comm *comm, struct comm_ticket ticket, struct stream *s);
/* comm_check — returns ST_OK, or the comm's first failure. Does not wait. After the host has waited
 * (dev_sync) for a stream that waited for a call, it reports whether the call succeeded. */
enum status comm_check(const struct comm *comm);

/* comm_split — opens a comm of some ranks: `ranks` in ascending order, this rank among them,
 * numbered from 0 in the new comm. Collective among these ranks only. It shares the connections and
 * the queue of the parent. Close it before the parent. comm_activity compares ranks of different
 * splits if they make equal numbers of calls. */
enum status comm_split(struct comm *comm, const int *ranks, int ranks_n, struct comm **out);

/* ---- Host memory next to calls that the device executes ---- */

/* comm_open_host — if calls stay on the device, opens a second comm of the same ranks over the HOST
 * transport, with connections and a queue of its own: its calls delay no call of this comm.
 * Collective; call it once, right after comm_end_open, with the same config: the secret is read
 * again. If a rank has no network for it, that rank logs the reason, and there is none. comm_close
 * closes it. */
enum status comm_open_host(struct comm *comm);
/* comm_host — returns the comm by which host memory is sent without a detour over the device: that
 * second comm, or `comm` itself if its calls do not stay on the device. NULL: there is none. One
 * thread makes the calls of both. */
struct comm *comm_host(struct comm *comm);

/* Milliseconds and bytes of comm_times.
 *   busy_ms     time in which the transport executed calls, on the queue thread or the caller's
 *   wait_ms     time in which the caller's thread was blocked in comm_wait or in a blocking call.
 *               Jobs do not count. The program reports the part that falls into a training step:
 *               wait_ms in /status and in the metrics file, rank_wait_seconds in /metrics.
 *   bytes_sent  bytes sent to other ranks */
struct comm_times {
    double busy_ms, wait_ms;
    int64_t bytes_sent;
};
/* comm_times — returns the times and bytes since its last call, and starts again from 0. Splits
 * count in their parent, and the bytes of comm_host in the comm. */
void comm_times(struct comm *comm, struct comm_times *out);

struct comm_link {
    int64_t segments_sent, segments_resent; /* TCP segments; resent: the retransmitted ones */
    int64_t rtt_us, rtt_us_min;             /* the kernel's smoothed round trip, and its least */
};
/* comm_link — returns the network's figures for this rank's connection to another rank, since it
 * was opened. Call it while no call is in progress. false: the transport has no figures (only this
 * program's own TCP has), the rank is this one, or the comm has failed. */
bool comm_link(const struct comm *comm, int rank, struct comm_link *out);

/* comm_closed_rank — returns the rank whose host closed or reset its connection to this one
 * although the rank announced no end: most likely its process died. Call it after a failure, before
 * comm_close, on a comm that was not split. -1: there is no such rank, or the transport cannot
 * detect it (TCP can; UCX can unless it reports a timeout). */
int comm_closed_rank(const struct comm *comm);

/* shm_threads_world_new — creates the world of the THREADS transport, for tests: ranks are threads,
 * and each opens a comm on it. nodes > 1 yields the sum order of that number of nodes. NULL: out of
 * memory. Free it after the last comm_close. */
struct shm_threads_world *shm_threads_world_new(int nodes, int locals);
/* shm_threads_world_free — frees the world. Accepts NULL. */
void shm_threads_world_free(struct shm_threads_world *world);

#endif
