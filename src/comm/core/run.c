/* comm_run — executes calls: numbers, records and times them, on the caller's thread or on the
 * queue thread, and keeps the first failure. Must not know how data are moved. */
#include "base/clock.h"
#include "comm/core/inside.h"

void comm_run_fail(struct comm_root *root, enum status st)
{
    if (atomic_load_explicit(&root->failed, memory_order_acquire))
        return;
    root->failed_st = st;
    status_save(&root->failure);
    atomic_store_explicit(&root->failed, true, memory_order_release);
}

enum status comm_run_fail_again(const struct comm_root *root)
{
    status_restore(&root->failure);
    return root->failed_st;
}

bool comm_run_has_failed(const struct comm_root *root)
{
    return atomic_load_explicit(&root->failed, memory_order_acquire);
}

/* ---- the current call of this rank ---- */

/* Records that the call has begun, or with NONE that it has ended, at time at_ns. One writer at a
 * time. */
static void record_call(struct comm_record *record, const struct comm_call *call,
                        enum comm_call_kind kind, int64_t at_ns)
{
    /* one writer: no locked instruction; each release below keeps the odd version before it */
    const uint32_t version = atomic_load_explicit(&record->version, memory_order_relaxed);
    atomic_store_explicit(&record->version, version + 1, memory_order_relaxed);
    atomic_store_explicit(&record->kind, (int)kind, memory_order_release);
    atomic_store_explicit(&record->sequence, call->recorded, memory_order_release);
    atomic_store_explicit(&record->entered_ns, at_ns, memory_order_release);
    atomic_store_explicit(&record->elems, call->elems, memory_order_release);
    atomic_store_explicit(&record->version, version + 2, memory_order_release);
}

/* Records the call in this comm and in its parents: the watchdog reads the root. */
void comm_run_record(struct comm *comm, const struct comm_call *call, enum comm_call_kind kind,
                     int64_t at_ns)
{
    for (; comm != NULL; comm = comm->parent)
        record_call(&comm->record, call, kind, at_ns);
}

void comm_run_add_times(struct comm *comm, int64_t busy_ns, int64_t wait_ns, int64_t bytes)
{
    for (; comm != NULL; comm = comm->parent) {
        atomic_fetch_add_explicit(&comm->busy_ns, busy_ns, memory_order_relaxed);
        atomic_fetch_add_explicit(&comm->wait_ns, wait_ns, memory_order_relaxed);
        if (bytes != 0)
            atomic_fetch_add_explicit(&comm->bytes_sent, bytes, memory_order_relaxed);
    }
}

/* ---- executing calls ---- */

/* Numbers a call when it is executed: that order is the same on all ranks, whichever thread runs a
 * call. Not all ranks make splits and messages, so a split has number 0 and messages are counted
 * apart. The recorded number is one count for a comm and its splits, so that ranks of different
 * splits can be compared if they make equal numbers of calls (cluster/straggler.h; cluster.h:
 * calls_differ). */
void comm_run_number(struct comm *comm, struct comm_call *call)
{
    if (call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV)
        call->recorded = call->sequence = ++comm->pairs_n;
    else if (call->kind == COMM_CALL_SPLIT)
        call->recorded = comm->root->collectives_n;
    else
        call->sequence = ++comm->calls_n, call->recorded = ++comm->root->collectives_n;
}

/* Executes one call: only this function calls a transport. is_blocking: on the caller's thread;
 * else on the queue thread. */
static enum status execute_call(struct comm *comm, struct comm_call *call, bool is_blocking)
{
    struct comm_ctx *ctx = &comm->ctx;
    if (comm_run_has_failed(comm->root))
        return comm_run_fail_again(comm->root);
    comm_run_number(comm, call);
    call->entered_ns = clock_ns();
    comm_run_record(comm, call, call->kind, call->entered_ns);
    ctx->call = call;
    if (comm->root->async != NULL) {
        /* If a device executes calls, this thread may hang inside its library, in a call with host
         * buffers as well: comm_activity reports since when. Each poll of a wait renews the
         * time. */
        ctx->stuck_ns = &comm->root->stuck_ns;
        atomic_store_explicit(ctx->stuck_ns, clock_ns(), memory_order_relaxed);
    }
    ctx->wait_policy = !is_blocking            ? WAIT_POLICY_SLEEP
                       : comm->root->has_cores ? WAIT_POLICY_SPIN
                                               : WAIT_POLICY_YIELD;
    ctx->queue = is_blocking || comm->root->staging != NULL ? NULL : comm->root->queue;
    const struct comm_config *config = &ctx->config;
    enum status st = config->is_aborted != NULL && config->is_aborted(config->arg)
                         ? transport_check(ctx)
                         : ST_OK;
    if (st == ST_OK)
        st = comm->root->staging != NULL ? staging_run(comm->root->staging, ctx, call)
                                         : transport_dispatch(ctx, call);
    if (st == ST_OK && call->then != NULL)
        st = call->then(call->then_arg, NULL);
    ctx->call = NULL;
    if (ctx->stuck_ns != NULL)
        atomic_store_explicit(ctx->stuck_ns, 0, memory_order_relaxed);
    ctx->stuck_ns = NULL;
    /* one reading only: for a call of a few bytes, reading clocks is a third of the time */
    const int64_t ended_ns = clock_ns(), ns = ended_ns - call->entered_ns;
    comm_run_record(comm, call, COMM_CALL_NONE, ended_ns);
    /* a plain load first, because a locked exchange costs more */
    const int64_t sent = atomic_load_explicit(&ctx->bytes_sent, memory_order_relaxed) != 0
                             ? atomic_exchange_explicit(&ctx->bytes_sent, 0, memory_order_relaxed)
                             : 0;
    comm_run_add_times(comm, ns, is_blocking ? ns : 0, sent);
    if (st != ST_OK)
        comm_run_fail(comm->root, st);
    return st;
}

/* Set while this thread runs a job of that comm: calls made in the job run immediately, after the
 * event. */
static _Thread_local const struct comm_root *job_root;
static _Thread_local struct dev_event *job_event;

void comm_run_queued(struct comm_queue_item *item)
{
    struct comm_root *root = item->comm->root;
    if (item->job == NULL && comm_async_can_run(item->comm, &item->call)) {
        comm_async_run(item->comm, &item->call, item->ticket);
        return;
    }
    comm_async_drain(root);
    if (item->job == NULL) {
        (void)execute_call(item->comm, &item->call, false);
    } else if (!comm_run_has_failed(root)) {
        job_root = root;
        job_event = item->call.event;
        enum status st = item->job(item->arg);
        job_root = NULL;
        if (st != ST_OK)
            comm_run_fail(root, st);
    }
}

int64_t comm_run_poll_queued(void *arg, int64_t started)
{
    struct comm_root *root = arg;
    int64_t first = root->async != NULL ? comm_async_poll(root) : 0;
    return first > 0 ? first - 1 : started;
}

void comm_run_wait(struct comm *comm, int64_t ticket, bool is_for_start)
{
    int64_t begin = clock_ns();
    if (is_for_start)
        comm_queue_wait_started(comm->root->queue, ticket);
    else
        comm_queue_wait(comm->root->queue, ticket);
    comm_run_add_times(comm, 0, clock_ns() - begin, 0);
}

static struct dev_event *take_event(struct comm_root *root)
{
    struct dev_event *event = root->event;
    root->event = NULL;
    return event;
}

enum status comm_run(struct comm *comm, struct comm_call *call)
{
    if (job_root == comm->root) {
        call->event = job_event;
        return execute_call(comm, call, false);
    }
    call->event = take_event(comm->root);
    if (!comm_queue_is_empty(comm->root->queue))
        comm_run_wait(comm, comm_queue_last(comm->root->queue), false);
    return execute_call(comm, call, true);
}

enum status comm_run_put(struct comm *comm, struct comm_queue_item *item,
                         struct comm_ticket *ticket)
{
    if (comm_run_has_failed(comm->root))
        return comm_run_fail_again(comm->root);
    if (job_root == comm->root)
        return FAIL(ST_BUG, "a job began a call on its own comm: jobs make blocking calls only");
    item->call.event = take_event(comm->root);
    return comm_queue_put(comm->root->queue, item, &ticket->sequence);
}
