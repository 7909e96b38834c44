/* comm — moving elements between the ranks of a job: one call per collective, whatever carries it.
 *
 * A rank is one worker. Ranks are numbered node by node, every node has the same number: rank =
 * node·locals + local. Transports (struct transport_ops, one file each): self (one rank), mem
 * (threads of one process as ranks: the laptop cluster of the tests), ucx (memory shared by the
 * workers of a node, TCP or UCX between nodes), nccl (ranks with a GPU each).
 * auto is one of the last two: nccl where every rank has it.
 *
 * The calls here hold what all transports share: checks, sequence numbers, deadlines, the abort
 * flag, timing, the record of who waits in what, and the thread that carries out what was begun, so
 * that communication runs beside computation. A transport only moves and adds.
 *
 * Order of sums: for each element the contributions are added along a fixed binary tree over the
 * ranks (sum_tree.h), whatever the message's size, the cut into pieces, the transport or the call.
 * So all_reduce, and reduce_scatter followed by all_gather, give the same bits, and mem and ucx do
 * too. Not so nccl, which adds in an order of its own: there all ranks of a call get the same bits,
 * and no more is promised.
 *
 * Where config.dev has memory apart from the host's, buffers may lie in either, all ranks' of one
 * call in the same; comm_alloc gives the device's. What was put on the device's streams before a
 * call must be done (dev_sync) when it is made or begun, or said by comm_wait_stream. When a call
 * returns, or its ticket has been waited for, the device has done it.
 *
 * It is given its world and never asks where its peers came from. Must not know models, steps,
 * settings or the board. */
#ifndef CONVOY_COMM_COMM_H
#define CONVOY_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "dev/dev.h"
#include "kernels/tensor.h"

#define COMM_RANKS_MAX 4096
#define COMM_ADDRESS_MAX 2048 /* bytes of one rank's address as a transport packs it */
#define COMM_SECRET_BYTES 16

struct comm;

enum comm_kind {
    COMM_KIND_SELF,
    COMM_KIND_THREADS,
    COMM_KIND_HOST,
    COMM_KIND_NCCL,
    COMM_KIND_AUTO
};

/* What carries numbers between nodes; see p2p.h. AUTO: UCX where every rank has a device for it,
 * else TCP. */
enum comm_net { COMM_NET_AUTO, COMM_NET_TCP, COMM_NET_UCX };

/* Where this rank stands. */
struct comm_place {
    int rank, ranks;
    int node, nodes;
    int local, locals; /* among the workers of this node */
};

/* What a rank is doing, for the one who asks why nothing moves. Readable from any thread. */
struct comm_activity {
    char call[24]; /* "all_reduce", …; "" when it is in none */
    /* of that call, else of the last one finished; from 1 in each life of a comm; 0: none yet */
    int64_t sequence;
    int64_t entered_ms; /* clock_ms when it was entered; in none: when the last one was left */
    int64_t elems;
};

struct comm_config {
    enum comm_kind kind;
    struct comm_place place;
    /* of the job; peers of another one are refused. Not known yet when an address is packed:
     * comm_end_open sets it */
    int64_t generation;
    int64_t timeout_ms; /* of one call: ST_PEER with the name of the call after this long */
    /* asked when a call has lasted for that: how long it may last as things are by now; from any
     * thread; NULL: no longer */
    int64_t (*limit_ms)(void *arg);
    /* asked while waiting, from any thread, cheap: true ends every call with ST_PEER; NULL:
     * never */
    bool (*is_aborted)(void *arg);
    void *arg;
    struct dev *dev; /* of this rank; outlives the comm; NULL: buffers lie in the host's memory */
    /* more ranks use these cores than the place tells: whoever waits gives way at once */
    bool is_oversubscribed;
    enum comm_net net;              /* ucx, auto */
    const char *data_addr, *master; /* where tcp listens: p2p.h; they outlive begin_open */
    /* COMM_SECRET_BYTES that only the ranks of this generation know, filled before comm_end_open,
     * which alone reads them: what proves ranks to each other over TCP. NULL: TCP refuses to
     * connect */
    const uint8_t *secret;
    /* ucx with locals > 1: an empty memfd that all workers of the node inherited; else -1 */
    int shm_fd;
    struct shm_threads_world *threads; /* mem: the world all threads share */
};

/* comm_begin_open, comm_end_open — two halves, for a transport's address must travel by another
 * road in between. begin: takes what this rank needs and packs its address (self, mem: 0 bytes).
 * end: meets the peers of this generation; addresses:
 * ranks × COMM_ADDRESS_MAX, bytes[rank] used of each. comm_close also undoes a begin alone; never
 * waits for peers. */
enum status comm_begin_open(const struct comm_config *config, struct comm **out, void *address,
                            int64_t *address_bytes);
enum status comm_end_open(struct comm *comm, int64_t generation, const void *addresses,
                          const int64_t *bytes);
void comm_close(struct comm *comm); /* accepts NULL */

const struct comm_place *comm_place(const struct comm *comm);
const char *
comm_name(const struct comm *comm); /* for people: "self", "mem", "ucx (shm, tcp)", "nccl 2.28.9" */
const char *
comm_why(const struct comm *comm); /* auto, after comm_end_open: why this one; else "" */
void comm_activity(const struct comm *comm, struct comm_activity *out);

/* comm_alloc — memory for what will be reduced: where the workers of a node share memory it lies
 * there, so that they add straight from each other's buffers. Zeroed, aligned to 2 MiB, touched.
 * All ranks call it with the same size in the same order, before the first collective. Freed by
 * comm_close. */
enum status comm_alloc(struct comm *comm, int64_t bytes, void **out);

/* comm_wait_stream — the next call that this thread makes or begins (not a job) comes after all
 * that `s` has been given so far: the device waits for it, not the host. Nothing where memory is
 * the host's. */
enum status comm_wait_stream(struct comm *comm, struct stream *s);

/* ---- collectives. All ranks call the same ones in the same order; counts are in elements; dtypes
 * F32, F64 and BF16 (added in fp32, rounded once at the end). A buffer belongs to the call until it
 * returns, or until comm_wait. Part `rank` of a buffer of n elements is part_extent(n, ranks, rank)
 * of sum_tree.h: multiples of 16 elements but for the last, possibly empty. Errors: ST_PEER
 * (aborted, late, peer lost; the comm is then of no further use but to close), ST_BUG. ---- */

/* comm_all_reduce — everybody gets the sum of everybody's buffer. in place: out == in allowed. */
enum status comm_all_reduce(struct comm *comm, struct tensor out, struct tensor in, int64_t elems);
/* comm_reduce_scatter — rank r gets the sum of part r of everybody's `in` (elems in all). `out`
 * holds the part only, or is in + the part's offset (in place; the rest of `in` is then
 * undefined). */
enum status comm_reduce_scatter(struct comm *comm, struct tensor out, struct tensor in,
                                int64_t elems);
/* comm_all_gather — everybody's part, in `in`, comes together in `out` (elems in all); in place as
 * above. Any dtype. */
enum status comm_all_gather(struct comm *comm, struct tensor out, struct tensor in, int64_t elems);
/* comm_all_to_all — `in` and `out` hold ranks × part_elems elements: part p of `in` goes to p, part
 * r of `out` comes from rank r. Any dtype; out and in apart. */
enum status comm_all_to_all(struct comm *comm, struct tensor out, struct tensor in,
                            int64_t part_elems);
enum status comm_broadcast(struct comm *comm, struct tensor data, int64_t elems, int root);
/* comm_send — returns when `data` may be used again. */
enum status comm_send(struct comm *comm, struct tensor data, int64_t elems, int to);
enum status comm_recv(struct comm *comm, struct tensor data, int64_t elems, int from);
enum status comm_barrier(struct comm *comm);

/* The same, begun here and carried out in the order of beginning by the comm's own thread; the
 * ticket is waited for once. A blocking call first waits for everything begun before it. */
struct comm_ticket {
    int64_t sequence;
};
enum status comm_all_reduce_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t elems, struct comm_ticket *ticket);
enum status comm_reduce_scatter_begin(struct comm *comm, struct tensor out, struct tensor in,
                                      int64_t elems, struct comm_ticket *ticket);
enum status comm_all_gather_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t elems, struct comm_ticket *ticket);
/* comm_job_begin — a collective of the caller's making, in its place among what is begun: the
 * comm's thread calls job(arg), which makes blocking calls on this comm (they run at once) and may
 * compute between them. What it returns is what comm_wait returns; after a failure the comm is of
 * no further use. How gradients are compressed on the way (mesh/grad_compress.h). */
enum status comm_job_begin(struct comm *comm, enum status (*job)(void *arg), void *arg,
                           struct comm_ticket *ticket);
enum status comm_wait(struct comm *comm, struct comm_ticket ticket);

/* comm_split — the ranks of `ranks` (ascending, this one among them) as a comm of their own on the
 * same wires; all of them call it. Closed before its parent. */
enum status comm_split(struct comm *comm, const int *ranks, int ranks_n, struct comm **out);

/* comm_times — since the last call: how long the wire worked, and how long callers waited for
 * it. */
struct comm_times {
    double busy_ms, wait_ms;
    int64_t bytes_sent; /* to other ranks */
};
void comm_times(struct comm *comm, struct comm_times *out);

/* The mem transport's world: ranks threads, each opening a comm with kind MEM. nodes > 1 gives the
 * order of sums of that many nodes. Freed after the last close. */
struct shm_threads_world *shm_threads_world_new(int nodes, int locals);
void shm_threads_world_free(struct shm_threads_world *world);

#endif
