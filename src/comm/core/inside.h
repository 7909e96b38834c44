/* comm_inside — a comm as its own files share it: comm.c (open, close, calls, split), run.c
 * (executes calls), async.c (calls that the device executes). Other files use comm.h. */
#ifndef CONVOY_COMM_COMM_INSIDE_H
#define CONVOY_COMM_COMM_INSIDE_H

#include "comm/core/queue.h"
#include "comm/core/staging.h"

/* Memory of comm_alloc that the transport does not supply. */
struct comm_allocation {
    void *data;
    int64_t bytes;
    bool is_on_device;
};

/* The call that a rank is in: written by the thread that executes the call, readable from any
 * thread without a lock. A seqlock: `version` is odd while the fields change. */
struct comm_record {
    _Atomic uint32_t version;
    atomic_int kind;
    _Atomic int64_t sequence, entered_ns, elems;
};

/* Shared by a comm and all comms split from it. */
struct comm_root {
    struct comm_queue *queue;
    struct staging *staging;  /* NULL: the transport reaches all memory */
    struct comm_async *async; /* NULL: every call is done when the transport returns */
    struct dev_event *event;  /* from comm_wait_stream, for the next call; or NULL */
    _Atomic int64_t stuck_ns; /* of comm_activity; 0: not */
    atomic_bool closing, failed;
    enum status failed_st; /* the first failure; written once, before `failed` */
    struct status_saved failure;
    bool has_cores;        /* a core for each rank, so waits may spin */
    int64_t collectives_n; /* of the comm and its splits: what is recorded */
};

struct comm {
    struct comm_ctx ctx;
    struct comm_root *root; /* own or the parent's */
    struct comm *parent;
    int *ranks;               /* of a split: the members in the parent */
    int64_t calls_n, pairs_n; /* collectives and messages so far: their sequence numbers */
    struct comm_record record;
    _Atomic int64_t busy_ns, wait_ns, bytes_sent;
    struct comm_allocation *allocations;
    int allocations_n;
};

/* Executing calls (run.c).
 * _fail: keeps the first failure. _fail_again: returns it. _has_failed: there is one.
 * _number: numbers a call when it is executed.
 * _record: kind NONE: the call has ended. _add_times: to the comm and its parents.
 * _wait: counted in wait_ms. is_for_start: until the ticket's call was started.
 * _run: one blocking call, which it numbers. _put: appends to the queue.
 * _run_queued, _poll_queued: what the queue's thread does. */
void comm_run_fail(struct comm_root *root, enum status st);
enum status comm_run_fail_again(const struct comm_root *root);
bool comm_run_has_failed(const struct comm_root *root);
void comm_run_number(struct comm *comm, struct comm_call *call);
void comm_run_record(struct comm *comm, const struct comm_call *call, enum comm_call_kind kind,
                     int64_t at_ns);
void comm_run_add_times(struct comm *comm, int64_t busy_ns, int64_t wait_ns, int64_t bytes);
void comm_run_wait(struct comm *comm, int64_t ticket, bool is_for_start);
enum status comm_run(struct comm *comm, struct comm_call *call);
enum status comm_run_put(struct comm *comm, struct comm_queue_item *item,
                         struct comm_ticket *ticket);
void comm_run_queued(struct comm_queue_item *item);
int64_t comm_run_poll_queued(void *root, int64_t started);

/* Calls that the device executes (async.c): a transport with about.stream puts them there,
 * and the queue's thread watches them. All but _open, _close, _takes and _stream_wait run on that
 * thread.
 *
 * _takes        the call can be put on the stream as it is: no staging, something to move.
 * _run          puts the call of a ticket on the stream. Waits only until it is there, and watches
 *               the earlier calls meanwhile.
 * _poll         one look at all calls under way: ends those that the device has finished. After a
 *               failure all of them are ended. Returns the oldest ticket under way; 0: none.
 * _drain        waits until no call is under way.
 * _stream_wait  any thread, when the ticket's call is on the stream: `s` waits for its end. */
struct comm_async *comm_async_open(void);
void comm_async_close(struct comm_async *async); /* accepts NULL */
bool comm_async_takes(const struct comm *comm, const struct comm_call *call);
void comm_async_run(struct comm *comm, const struct comm_call *call, int64_t ticket);
int64_t comm_async_poll(struct comm_root *root);
void comm_async_drain(struct comm_root *root);
enum status comm_async_stream_wait(struct comm_async *async, int64_t ticket, struct stream *s);

#endif
