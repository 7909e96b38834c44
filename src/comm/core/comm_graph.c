/* comm_graph — collectives as a part of a stream's gathered work, so that the CUDA graph of a step
 * holds them too (comm.h: comm_graph_open). Must not know how graphs are made, nor what is moved.
 *
 * NCCL is called for a call once for each capture, by the thread that captures, while the queue is
 * empty: a communicator is used by one thread at a time. A launch calls nothing. It puts a ticket
 * into the queue for each of its calls, and the queue's thread looks after them as after those that
 * it has put on the stream itself (comm_async.c): there the marks of a call take the place of
 * events. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "comm/core/comm_inside.h"

static struct comm_call call_of(const struct dev_call *c)
{
    return (struct comm_call){.kind = (enum comm_call_kind)c->kind,
                              .dtype = (enum dtype)c->dtype,
                              .peer = -1,
                              .elems = c->elems,
                              .out = c->out,
                              .in = c->in};
}

/* ---- what the stream asks for (struct dev_calls) ---- */

static enum status begin(void *arg, const struct dev_call *c, int64_t *ticket_out)
{
    struct comm_graph *graph = arg;
    struct comm_root *root = graph->comm->root;
    struct comm_ticket ticket = {0};
    TRY(staging_record(root->staging, graph->stream, &root->event));
    TRY(comm_run_put(graph->comm,
                     &(struct comm_queue_item){.comm = graph->comm, .call = call_of(c)}, &ticket));
    *ticket_out = ticket.sequence;
    return ST_OK;
}

static enum status join(void *arg, int64_t ticket)
{
    struct comm_graph *graph = arg;
    comm_run_wait(graph->comm, ticket, true);
    TRY(comm_check(graph->comm));
    return comm_async_stream_wait(graph->comm->root->async, ticket, graph->stream);
}

static enum status settle(void *arg, bool is_capture)
{
    struct comm_graph *graph = arg;
    comm_run_wait(graph->comm, comm_queue_last(graph->comm->root->queue), !is_capture);
    return comm_check(graph->comm);
}

/* A failure here ends the comm, like that of any call: NCCL's communicator is of no more use. */
static enum status put(void *arg, const struct dev_call *c)
{
    struct comm_graph *graph = arg;
    struct comm *comm = graph->comm;
    struct comm_ctx *ctx = &comm->ctx;
    struct comm_call call = call_of(c);
    call.sequence = comm->calls_n + 1; /* as messages name it */
    call.entered_ns = clock_ns();
    ctx->call = &call;
    ctx->wait_policy = WAIT_POLICY_SLEEP;
    ctx->queue = NULL;
    ctx->is_async = ctx->is_captured = true;
    enum status st = transport_check(ctx);
    if (st == ST_OK)
        st = transport_dispatch(ctx, &call);
    ctx->is_async = ctx->is_captured = false;
    ctx->call = NULL;
    atomic_store_explicit(&ctx->bytes_sent, 0, memory_order_relaxed); /* a launch sends them */
    if (st != ST_OK)
        comm_async_fail(comm, st);
    return st;
}

static enum status launched(void *arg, const struct dev_call *c, uint64_t number)
{
    struct comm_graph *graph = arg;
    struct comm_ticket ticket;
    return comm_run_put(
        graph->comm,
        &(struct comm_queue_item){.comm = graph->comm, .call = call_of(c), .number = number},
        &ticket);
}

static enum status sum(void *arg, double *values, int n)
{
    struct comm_graph *graph = arg;
    struct tensor all = {values, DTYPE_F64};
    return comm_all_reduce(graph->comm, all, all, n);
}

/* ---- open, close ---- */

#define MARKS 2

enum status comm_graph_open(struct comm *comm, struct stream *s)
{
    struct comm_root *root = comm->root;
    void *marks = NULL;
    ASSERT(root->async != NULL && root->graph == NULL && comm->parent == NULL);
    TRY(comm->ctx.ops->check_capture(&comm->ctx));
    struct comm_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return FAIL(ST_RETRY, "out of memory: calls within CUDA graphs");
    graph->comm = comm;
    graph->stream = s;
    enum status st = dev_pin(comm->ctx.config.dev, MARKS * sizeof *graph->began, &marks);
    if (st != ST_OK) {
        free(graph);
        return st;
    }
    memset(marks, 0, MARKS * sizeof *graph->began);
    graph->began = marks;
    graph->ended = (uint64_t *)marks + 1;
    root->graph = graph;
    st = dev_calls_open(s, &(struct dev_calls){.stream = comm->ctx.ops->stream(&comm->ctx),
                                               .began = marks,
                                               .ended = (uint64_t *)marks + 1,
                                               .arg = graph,
                                               .begin = begin,
                                               .join = join,
                                               .settle = settle,
                                               .put = put,
                                               .launched = launched,
                                               .sum = sum});
    graph->is_open = st == ST_OK;
    if (st != ST_OK)
        comm_graph_close(comm);
    return st;
}

/* Calls under way are looked after by their marks until they have ended, or the comm has failed. */
void comm_graph_close(struct comm *comm)
{
    struct comm_graph *graph = comm->root->graph;
    if (graph == NULL)
        return;
    if (graph->is_open)
        dev_calls_close(graph->stream);
    comm_queue_wait(comm->root->queue, comm_queue_last(comm->root->queue));
    comm->root->graph = NULL;
    dev_unpin(comm->ctx.config.dev, (void *)(uintptr_t)graph->began);
    free(graph);
}

/* ---- gathering ---- */

enum status comm_graph_begin(struct comm *comm, bool is_agreed)
{
    struct comm_graph *graph = comm->root->graph;
    if (graph == NULL)
        return ST_OK;
    graph->is_gathering = true;
    return dev_calls_begin(graph->stream, is_agreed);
}

enum status comm_graph_end(struct comm *comm)
{
    struct comm_graph *graph = comm->root->graph;
    if (graph == NULL || !graph->is_gathering)
        return ST_OK;
    graph->is_gathering = false;
    graph->is_ready = false;
    return dev_calls_end(graph->stream, &graph->is_ready);
}

bool comm_graph_is_ready(const struct comm *comm)
{
    const struct comm_graph *graph = comm->root->graph;
    return graph != NULL && graph->is_ready;
}

bool comm_graph_waits(struct comm *comm, const struct stream *s)
{
    struct comm_graph *graph = comm->root->graph;
    if (graph == NULL || !graph->is_gathering || graph->stream != s)
        return false;
    graph->is_waited_for = true;
    return true;
}

bool comm_graph_takes(const struct comm *comm, const struct comm_call *call)
{
    const struct comm_graph *graph = comm->root->graph;
    return graph != NULL && graph->is_gathering && graph->comm == comm &&
           comm_async_takes(comm, call);
}

enum status comm_graph_add(struct comm *comm, const struct comm_call *call,
                           struct comm_ticket *ticket)
{
    struct comm_graph *graph = comm->root->graph;
    struct dev_call c = {.kind = call->kind,
                         .dtype = call->dtype,
                         .elems = call->elems,
                         .out = call->out,
                         .in = call->in};
    uint64_t number = 0;
    TRY(comm_check(comm));
    graph->is_waited_for = false;
    TRY(dev_call_add(graph->stream, &c, &number));
    ticket->sequence = -(int64_t)number;
    return ST_OK;
}

enum status comm_graph_leave(struct comm *comm)
{
    struct comm_root *root = comm->root;
    struct comm_graph *graph = root->graph;
    if (graph == NULL || !graph->is_gathering)
        return ST_OK;
    bool is_waited_for = graph->is_waited_for;
    graph->is_waited_for = false;
    return is_waited_for ? staging_record(root->staging, graph->stream, &root->event)
                         : dev_flush(graph->stream);
}

enum status comm_graph_wait(struct comm *comm)
{
    struct comm_graph *graph = comm->root->graph;
    TRY(comm_check(comm));
    if (graph != NULL)
        TRY(dev_flush(graph->stream));
    comm_run_wait(comm, comm_queue_last(comm->root->queue), false);
    return comm_check(comm);
}
