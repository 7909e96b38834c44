/* comm_inside — the state of a comm, for its own files: comm.c (open, close, calls, split), run.c
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
    struct comm *host;        /* the result of comm_open_host; NULL: none */
    _Atomic int64_t stuck_ns; /* ns for stuck_ms of comm_activity; 0: in no library */
    atomic_bool closing, failed;
    enum status failed_st; /* the first failure; written once, before `failed` */
    struct status_saved failure;
    bool has_cores;        /* a core for each rank, so waits may spin */
    int64_t collectives_n; /* collectives of the comm and its splits, for comm_record */
};

struct comm {
    struct comm_ctx ctx;
    struct comm_root *root; /* own or the parent's */
    struct comm *parent;
    int *ranks;               /* split: each member's rank in the parent */
    int64_t calls_n, pairs_n; /* collectives and messages so far: their sequence numbers */
    struct comm_record record;
    _Atomic int64_t busy_ns, wait_ns, bytes_sent;
    struct comm_allocation *allocations;
    int allocations_n;
};

/* ---- executing calls (run.c) ---- */

/* comm_run_fail — keeps the first failure. */
void comm_run_fail(struct comm_root *root, enum status st);
/* comm_run_fail_again — returns the first failure. */
enum status comm_run_fail_again(const struct comm_root *root);
/* comm_run_has_failed — returns true if a call has failed. Any thread. */
bool comm_run_has_failed(const struct comm_root *root);
/* comm_run_number — numbers a call when it is executed. */
void comm_run_number(struct comm *comm, struct comm_call *call);
/* comm_run_record — records the call for comm_activity. kind NONE: the call has ended. */
void comm_run_record(struct comm *comm, const struct comm_call *call, enum comm_call_kind kind,
                     int64_t at_ns);
/* comm_run_add_times — adds to the times of the comm and its parents. */
void comm_run_add_times(struct comm *comm, int64_t busy_ns, int64_t wait_ns, int64_t bytes);
/* comm_run_wait — waits for the ticket's call and counts the time in wait_ms. is_for_start: only
 * until the call was started. */
void comm_run_wait(struct comm *comm, int64_t ticket, bool is_for_start);
/* comm_run — numbers and executes one blocking call. */
enum status comm_run(struct comm *comm, struct comm_call *call);
/* comm_run_put — appends an item to the queue. */
enum status comm_run_put(struct comm *comm, struct comm_queue_item *item,
                         struct comm_ticket *ticket);
/* comm_run_queued — starts one item; the comm_queue_fn of the queue thread. */
void comm_run_queued(struct comm_queue_item *item);
/* comm_run_poll_queued — returns the newest ticket up to which all are done; the
 * comm_queue_poll_fn. root: a comm_root. */
int64_t comm_run_poll_queued(void *root, int64_t started);

/* ---- calls that the device executes (async.c) ----
 *
 * A transport with about.stream puts calls there, and the queue thread watches them. All functions
 * but _open, _close, _can_run and _stream_wait run on that thread. ---- */

/* comm_async_open — returns a state in which no call is in progress; never NULL. */
struct comm_async *comm_async_open(void);
void comm_async_close(struct comm_async *async); /* accepts NULL */
/* comm_async_can_run — returns true if the call can be put on the stream as it is: it needs no
 * staging and has data to move. */
bool comm_async_can_run(const struct comm *comm, const struct comm_call *call);
/* comm_async_run — puts the call of a ticket on the stream. Waits only until it is there, and
 * watches the earlier calls meanwhile. */
void comm_async_run(struct comm *comm, const struct comm_call *call, int64_t ticket);
/* comm_async_poll — checks all calls in progress once and ends the calls that the device has
 * finished. After a failure it ends all of them. Returns the oldest ticket in progress; 0: none. */
int64_t comm_async_poll(struct comm_root *root);
/* comm_async_drain — waits until no call is in progress. */
void comm_async_drain(struct comm_root *root);
/* comm_async_stream_wait — makes `s` wait for the end of the ticket's call, which is on the stream.
 * Any thread. */
enum status comm_async_stream_wait(struct comm_async *async, int64_t ticket, struct stream *s);

#endif
