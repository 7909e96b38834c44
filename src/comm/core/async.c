/* comm_async — calls that the device executes, on the transport's stream, while the host continues.
 * The queue thread puts the calls on the stream in order, and watches the calls in progress.
 *
 *   End        An event is recorded after each call. Other streams wait for it (comm_wait_on); this
 *              thread queries it.
 *   Deadline   The clock of a call starts when the device could start it: all earlier calls are
 *              done, and so is the computation that it follows. Until then only an abort ends it.
 *   Errors     The errors of every communicator with a call in progress are checked, also if the
 *              call still waits for its turn.
 *   Failure    The first failure ends all calls: the transport aborts its communicators, so that no
 *              stream waits for a lost rank.
 *   Hangs      The thread's own calls of CUDA and NCCL do not wait. If one does not return,
 *              comm_activity reports since when. The same holds for calls that this rank executes
 *              itself (run.c): calls with host buffers, and barriers.
 *
 * Must not know the meaning of the data. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/core/inside.h"

#define POLL_US 50 /* µs between two polls of a wait */

struct under_way {
    struct comm *comm;
    struct comm_call call;
    struct dev_event *end; /* kept for the next call in this slot */
    bool is_clocked;       /* the device could start it; call.entered_ns is when */
};

/* Tickets [first, next) are in progress. `entering` is the call that is being put on the stream. */
struct comm_async {
    struct under_way call[COMM_QUEUE_ITEMS]; /* ticket k at k % COMM_QUEUE_ITEMS */
    int64_t first, next;
    struct under_way *entering;
};

static struct under_way *find_call(struct comm_async *async, int64_t ticket)
{
    return &async->call[ticket % COMM_QUEUE_ITEMS];
}

struct comm_async *comm_async_open(void)
{
    struct comm_async *async = memory_new(1, sizeof *async);
    async->first = async->next = 1;
    return async;
}

void comm_async_close(struct comm_async *async)
{
    for (int i = 0; async != NULL && i < COMM_QUEUE_ITEMS; i++)
        dev_event_free(async->call[i].end);
    free(async);
}

bool comm_async_can_run(const struct comm *comm, const struct comm_call *call)
{
    return comm->root->async != NULL && call->elems > 0 &&
           staging_is_direct(comm->root->staging, call);
}

/* ---- the clock of a call ---- */

/* Starts the clock of the oldest call when the device could start it; the straggler report sees the
 * call from then on. */
static enum status start_clock(struct under_way *c)
{
    bool is_ready = false;
    c->call.entered_ns = clock_ns();
    TRY(dev_event_query(c->call.event, &is_ready));
    c->is_clocked = is_ready;
    if (is_ready)
        comm_run_record(c->comm, &c->call, c->call.kind, c->call.entered_ns);
    return ST_OK;
}

/* Ends the oldest call. is_done: the device has executed it, perhaps before its clock was
 * started. */
static void end_call(struct comm_async *async, struct under_way *c, bool is_done)
{
    const int64_t now_ns = clock_ns(), ns = c->is_clocked ? now_ns - c->call.entered_ns : 0;
    if (c->is_clocked || is_done)
        comm_run_record(c->comm, &c->call, COMM_CALL_NONE, now_ns);
    comm_run_add_times(c->comm, ns, 0, 0);
    async->first++;
}

/* ---- the watchdog ---- */

static void enters_library(struct comm_root *root)
{
    atomic_store_explicit(&root->stuck_ns, clock_ns(), memory_order_relaxed);
}
static void leaves_library(struct comm_root *root)
{
    atomic_store_explicit(&root->stuck_ns, 0, memory_order_relaxed);
}

/* Checks one call in its own name: errors of its communicator, abort, deadline. */
static enum status check_call(struct under_way *c, bool is_first)
{
    struct comm_ctx *ctx = &c->comm->ctx;
    const struct comm_call *saved = ctx->call;
    enum status st = ST_OK;
    if (!is_first || !c->is_clocked)
        c->call.entered_ns = clock_ns(); /* the device could not start it yet */
    ctx->call = &c->call;
    if (c->comm->ctx.ops->check != NULL)
        st = ctx->ops->check(ctx);
    if (st == ST_OK)
        st = transport_check(ctx);
    ctx->call = saved;
    return st;
}

static enum status check_all(struct comm_async *async)
{
    const struct comm *last = NULL;
    for (int64_t ticket = async->first; ticket < async->next; ticket++) {
        struct under_way *c = find_call(async, ticket);
        if (c->comm != last)
            TRY(check_call(c, ticket == async->first));
        last = c->comm;
    }
    return ST_OK;
}

/* Ends the calls that the device has finished, then checks the others. */
static enum status poll_calls(struct comm_async *async)
{
    while (async->first < async->next) {
        struct under_way *c = find_call(async, async->first);
        bool is_done = false;
        if (!c->is_clocked)
            TRY(start_clock(c));
        TRY(dev_event_query(c->end, &is_done));
        if (!is_done)
            return check_all(async);
        end_call(async, c, true);
    }
    return async->entering != NULL && !async->entering->is_clocked ? start_clock(async->entering)
                                                                   : ST_OK;
}

/* Keeps the first failure of the root, after which none of its communicators can be used. */
static void fail_root(struct comm *comm, enum status st)
{
    comm_run_fail(comm->root, st);
    if (comm->ctx.ops->abort_all != NULL)
        comm->ctx.ops->abort_all(&comm->ctx);
}

/* Counts all calls as ended. The device executes the calls left on the stream, without effect. */
static void end_all(struct comm_async *async)
{
    while (async->first < async->next)
        end_call(async, find_call(async, async->first), false);
}

int64_t comm_async_poll(struct comm_root *root)
{
    struct comm_async *async = root->async;
    struct under_way *c =
        async->first < async->next ? find_call(async, async->first) : async->entering;
    if (c == NULL)
        return 0;
    enters_library(root);
    enum status st = comm_run_has_failed(root) ? ST_OK : poll_calls(async);
    if (st != ST_OK)
        fail_root(c->comm, st);
    if (async->entering != NULL)
        enters_library(root); /* goes back into it */
    else
        leaves_library(root);
    if (comm_run_has_failed(root))
        end_all(async);
    return async->first < async->next ? async->first : 0;
}

/* The `watch` of a ctx: each wait inside a transport calls it. */
static enum status watch_calls(struct comm_ctx *ctx, void *arg)
{
    struct comm_root *root = arg;
    struct under_way *entering = root->async->entering;
    (void)comm_async_poll(root);
    if (comm_run_has_failed(root))
        return comm_run_fail_again(root);
    /* while an earlier call runs, the clock of this one has not started */
    if (entering != NULL && ctx->call == &entering->call && !entering->is_clocked)
        entering->call.entered_ns = clock_ns();
    return ST_OK;
}

void comm_async_drain(struct comm_root *root)
{
    while (root->async != NULL && comm_async_poll(root) > 0)
        clock_sleep_us(POLL_US);
}

/* ---- putting a call on the stream ---- */

static enum status enter_call(struct comm *comm, struct under_way *c)
{
    struct comm_ctx *ctx = &comm->ctx;
    ctx->call = &c->call;
    ctx->wait_policy = WAIT_POLICY_SLEEP;
    ctx->queue = NULL;
    ctx->is_async = true;
    ctx->watch = watch_calls;
    ctx->watch_arg = comm->root;
    enum status st = dev_make_current(ctx->config.dev); /* watch_calls queries events */
    if (st == ST_OK)
        st = watch_calls(ctx, comm->root);
    if (st == ST_OK)
        st = transport_check(ctx);
    if (st == ST_OK)
        st = transport_dispatch(ctx, &c->call);
    if (st == ST_OK && c->call.then != NULL)
        st = c->call.then(c->call.then_arg, ctx->about.stream);
    if (st == ST_OK)
        st = dev_event_record(ctx->about.stream, &c->end);
    ctx->is_async = false;
    ctx->watch = NULL;
    ctx->call = NULL;
    return st;
}

void comm_async_run(struct comm *comm, const struct comm_call *call, int64_t ticket)
{
    struct comm_async *async = comm->root->async;
    struct under_way *c = find_call(async, ticket);
    if (comm_run_has_failed(comm->root))
        return;
    *c = (struct under_way){.comm = comm, .call = *call, .end = c->end};
    comm_run_number(comm, &c->call);
    c->call.entered_ns = clock_ns();
    if (async->first == async->next)
        async->first = async->next = ticket;
    async->entering = c;
    enters_library(comm->root);
    enum status st = enter_call(comm, c);
    leaves_library(comm->root);
    async->entering = NULL;
    comm_run_add_times(comm, 0, 0,
                       atomic_exchange_explicit(&comm->ctx.bytes_sent, 0, memory_order_relaxed));
    if (st == ST_OK) {
        async->next = ticket + 1;
        return;
    }
    if (c->is_clocked)
        comm_run_record(comm, &c->call, COMM_CALL_NONE, clock_ns());
    fail_root(comm, st);
    end_all(async);
}

enum status comm_async_stream_wait(struct comm_async *async, int64_t ticket, struct stream *s)
{
    return dev_stream_wait(s, find_call(async, ticket)->end);
}
