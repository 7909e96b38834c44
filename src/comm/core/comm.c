/* comm — the code that all transports share: checks, call numbers, deadlines, the first failure,
 * times. Must not know how data are moved. */
#include "comm/core/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "comm/core/inside.h"
#include "comm/core/part.h"
#include "comm/core/sum.h"

/* most elements of a call, so that byte counts cannot overflow */
#define ELEMS_MAX (INT64_MAX >> 16)

/* ---- open, close ---- */

static enum status check_config(const struct comm_config *config)
{
    const struct comm_place *p = &config->place;
    if (p->ranks < 1 || p->ranks > COMM_RANKS_MAX || p->nodes < 1 || p->locals < 1 ||
        (int64_t)p->nodes * p->locals != p->ranks || p->node < 0 || p->node >= p->nodes ||
        p->local < 0 || p->local >= p->locals || p->rank != p->node * p->locals + p->local)
        return FAIL(ST_BUG, "rank %d of %d cannot be worker %d of %d on node %d of %d", p->rank,
                    p->ranks, p->local, p->locals, p->node, p->nodes);
    if (config->timeout_ms <= 0)
        return FAIL(ST_BUG, "timeout_ms of a call is %lld: must be above 0",
                    (long long)config->timeout_ms);
    if (transport_find(config->kind, p) == NULL)
        return FAIL(ST_NO_DEVICE, "this build has no transport %d for %d nodes", (int)config->kind,
                    p->nodes);
    return ST_OK;
}

/* Allocates a comm. root_ops: the transport of the comm that a split is made from; NULL: config
 * chooses it. */
static struct comm *new_comm(const struct comm_config *config, struct comm_root *root,
                             const struct transport_ops *root_ops)
{
    struct comm *comm = memory_new(1, sizeof(*comm));
    comm->ctx.ops = root_ops != NULL ? root_ops : transport_find(config->kind, &config->place);
    comm->ctx.config = *config;
    comm->ctx.closing = &root->closing;
    comm->root = root;
    return comm;
}

/* The calls of opening and of comm_alloc: not recorded, number 0. */
static void begin_opening(struct comm *comm, struct comm_call *call, enum comm_call_kind kind)
{
    *call =
        (struct comm_call){.kind = kind, .dtype = DTYPE_U8, .peer = -1, .entered_ns = clock_ns()};
    comm->ctx.call = call;
    comm->ctx.wait_policy = comm->root->has_cores ? WAIT_POLICY_SPIN : WAIT_POLICY_YIELD;
}

enum status comm_begin_open(const struct comm_config *config, struct comm **out, void *address,
                            int64_t *address_bytes)
{
    TRY(check_config(config));
    struct comm_root *root = memory_new(1, sizeof(*root));
    root->queue = comm_queue_open(comm_run_queued, comm_run_poll_queued, root);
    struct comm *comm = new_comm(config, root, NULL);
    const struct comm_place *place = &config->place;
    root->has_cores =
        !config->is_oversubscribed &&
        (config->kind == COMM_KIND_THREADS ? place->ranks : place->locals) <= thread_pool_cores();
    struct comm_call call;
    begin_opening(comm, &call, COMM_CALL_OPEN);
    enum status st = comm->ctx.ops->begin_open(&comm->ctx, address, address_bytes);
    comm->ctx.call = NULL;
    if (st != ST_OK) {
        struct status_saved saved;
        status_save(&saved);
        comm_close(comm);
        status_restore(&saved);
        return st;
    }
    *out = comm;
    return ST_OK;
}

enum status comm_set_place(struct comm *comm, const struct comm_place *place)
{
    struct comm_ctx *ctx = &comm->ctx;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes;
    ctx->config.place = *place;
    if (place->ranks == 1)
        ctx->config.kind = COMM_KIND_SELF;
    TRY(check_config(&ctx->config));
    const struct transport_ops *ops = transport_find(ctx->config.kind, place);
    if (ops == ctx->ops)
        return ST_OK;
    struct comm_call call;
    ctx->ops->close(ctx);
    ctx->ops = ops;
    begin_opening(comm, &call, COMM_CALL_OPEN);
    enum status st = ops->begin_open(ctx, address, &bytes);
    ctx->call = NULL;
    return st;
}

enum status comm_end_open(struct comm *comm, int64_t generation, const void *addresses,
                          const int64_t *bytes)
{
    struct comm_call call;
    comm->ctx.generation = generation;
    begin_opening(comm, &call, COMM_CALL_OPEN);
    struct dev *dev = comm->ctx.config.dev;
    enum status st = comm->ctx.ops->end_open(&comm->ctx, addresses, bytes);
    comm->ctx.call = NULL;
    if (st == ST_OK && dev_is_discrete(dev) &&
        (comm_place(comm)->ranks > 1 || comm->ctx.ops->is_on_device))
        st = staging_open(dev, comm->ctx.ops->is_on_device, &comm->root->staging);
    if (st == ST_OK && comm->root->staging != NULL && comm->ctx.about.stream != NULL)
        comm->root->async = comm_async_open();
    if (st != ST_OK)
        comm_run_fail(comm->root, st);
    return st;
}

void comm_close(struct comm *comm)
{
    if (comm == NULL)
        return;
    struct comm_root *root = comm->root;
    if (comm->parent == NULL) {
        comm_close(root->host);
        atomic_store_explicit(&root->closing, true, memory_order_relaxed);
        comm_queue_close(root->queue);
        root->queue = NULL;
    } else {
        comm_queue_wait(root->queue, comm_queue_last(root->queue));
    }
    comm->ctx.ops->close(&comm->ctx);
    for (int i = 0; i < comm->allocations_n; i++) {
        if (comm->allocations[i].is_on_device)
            dev_free(comm->ctx.config.dev, comm->allocations[i].data,
                     (size_t)comm->allocations[i].bytes);
        else
            transport_unmap(comm->allocations[i].data, comm->allocations[i].bytes);
    }
    if (comm->parent == NULL) {
        comm_async_close(root->async);
        staging_close(root->staging);
        free(root);
    }
    free(comm->allocations);
    free(comm->ranks);
    free(comm);
}

const struct comm_place *comm_place(const struct comm *comm) { return &comm->ctx.config.place; }

const char *comm_backend(const struct comm *comm)
{
    const struct comm_ctx *ctx = &comm->ctx;
    return ctx->about.backend[0] != 0 ? ctx->about.backend : ctx->ops->name;
}

const char *comm_name(const struct comm *comm)
{
    const struct comm_ctx *ctx = &comm->ctx;
    return ctx->about.name[0] != 0 ? ctx->about.name : ctx->ops->name;
}

const char *comm_choice_reason(const struct comm *comm) { return comm->ctx.choice_reason; }

/* ---- the current call of this rank, waiting ---- */

void comm_activity(const struct comm *comm, struct comm_activity *out)
{
    /* The reader of the seqlock that record_call writes (run.c): it tries again while the record
     * changes. The cast is needed because atomic_load accepts no pointer to const. */
    struct comm_record *from = (struct comm_record *)(uintptr_t)&comm->record;
    enum comm_call_kind kind;
    uint32_t before, after;
    do {
        before = atomic_load_explicit(&from->version, memory_order_acquire);
        kind = (enum comm_call_kind)atomic_load_explicit(&from->kind, memory_order_acquire);
        out->sequence = atomic_load_explicit(&from->sequence, memory_order_acquire);
        out->entered_ms = atomic_load_explicit(&from->entered_ns, memory_order_acquire) / 1000000;
        out->elems = atomic_load_explicit(&from->elems, memory_order_acquire);
        after = atomic_load_explicit(&from->version, memory_order_acquire);
    } while (before != after || before % 2 != 0);
    text_copy(out->call, sizeof(out->call), transport_call_name(kind));
    out->stuck_ms = atomic_load_explicit(&comm->root->stuck_ns, memory_order_relaxed) / 1000000;
}

void comm_times(struct comm *comm, struct comm_times *out)
{
    out->busy_ms = (double)atomic_exchange_explicit(&comm->busy_ns, 0, memory_order_relaxed) * 1e-6;
    out->wait_ms = (double)atomic_exchange_explicit(&comm->wait_ns, 0, memory_order_relaxed) * 1e-6;
    out->bytes_sent = atomic_exchange_explicit(&comm->bytes_sent, 0, memory_order_relaxed);
    struct comm *host = comm->parent == NULL ? comm->root->host : NULL;
    if (host != NULL)
        out->bytes_sent += atomic_exchange_explicit(&host->bytes_sent, 0, memory_order_relaxed);
}

bool comm_link(const struct comm *comm, int rank, struct comm_link *out)
{
    const struct transport_ops *ops = comm->ctx.ops;
    const struct comm_place *place = comm_place(comm);
    if (ops->link == NULL || rank < 0 || rank >= place->ranks || rank == place->rank ||
        comm_run_has_failed(comm->root))
        return false;
    return ops->link(&comm->ctx, rank, out);
}

int comm_closed_rank(const struct comm *comm)
{
    const struct comm_ctx *ctx = &comm->ctx;
    return ctx->ops->closed != NULL && ctx->state != NULL ? ctx->ops->closed(ctx) : -1;
}

enum status comm_wait_stream(struct comm *comm, struct stream *s)
{
    return comm->root->staging != NULL ? staging_record(comm->root->staging, s, &comm->root->event)
                                       : ST_OK;
}

void comm_wait_event(struct comm *comm, struct dev_event *event) { comm->root->event = event; }

static enum status check_ticket(const struct comm *comm, struct comm_ticket ticket)
{
    int64_t last = comm_queue_last(comm->root->queue);
    return ticket.sequence >= 1 && ticket.sequence <= last
               ? ST_OK
               : FAIL(ST_BUG, "ticket %lld of %lld", (long long)ticket.sequence, (long long)last);
}

enum status comm_check(const struct comm *comm)
{
    return comm_run_has_failed(comm->root) ? comm_run_fail_again(comm->root) : ST_OK;
}

/* Returns the comm's first failure even if the ticket's call succeeded before it, because the comm
 * is of no further use. */
enum status comm_wait(struct comm *comm, struct comm_ticket ticket)
{
    TRY(check_ticket(comm, ticket));
    comm_run_wait(comm, ticket.sequence, false);
    return comm_check(comm);
}

bool comm_stays_on_device(const struct comm *comm) { return comm->root->async != NULL; }

enum status comm_wait_on(struct comm *comm, struct comm_ticket ticket, struct stream *s)
{
    struct comm_root *root = comm->root;
    if (root->async == NULL)
        return comm_wait(comm, ticket);
    TRY(dev_busy_pause(s));
    TRY(dev_flush(s)); /* the device starts before the host waits */
    TRY(check_ticket(comm, ticket));
    comm_run_wait(comm, ticket.sequence, true);
    TRY(comm_check(comm));
    TRY(comm_async_stream_wait(root->async, ticket.sequence, s));
    return dev_busy_resume(s);
}

/* ---- the arguments of calls: checked before a transport sees them ---- */

static enum status check_elems(const char *name, enum dtype dtype, int64_t elems, const void *data)
{
    if (elems < 0 || elems > ELEMS_MAX || (unsigned)dtype >= DTYPE_N)
        return FAIL(ST_BUG, "%s of %lld elements of dtype %d", name, (long long)elems, (int)dtype);
    if (elems > 0 && data == NULL)
        return FAIL(ST_BUG, "%s of %lld elements without a buffer", name, (long long)elems);
    return ST_OK;
}

/* Checks the two buffers of a collective. outs, ins: the elements that this rank's buffers hold. */
static enum status check_buffers(enum comm_call_kind kind, struct tensor out, int64_t outs,
                                 struct tensor in, int64_t ins)
{
    const char *name = transport_call_name(kind);
    TRY(check_elems(name, in.dtype, ins, in.data));
    TRY(check_elems(name, out.dtype, outs, out.data));
    if (out.dtype != in.dtype)
        return FAIL(ST_BUG, "%s from dtype %d to dtype %d", name, (int)in.dtype, (int)out.dtype);
    if (kind != COMM_CALL_ALL_GATHER && kind != COMM_CALL_ALL_TO_ALL &&
        !(in.dtype == DTYPE_F32 || in.dtype == DTYPE_F64 || in.dtype == DTYPE_BF16 ||
          in.dtype == DTYPE_F16))
        return FAIL(ST_BUG, "%s of dtype %d: sums are of F32, F64, BF16 and F16", name,
                    (int)in.dtype);
    return ST_OK;
}

static enum status check_peer(const struct comm_place *place, const char *name, int peer,
                              bool may_be_self)
{
    if (peer < 0 || peer >= place->ranks || (!may_be_self && peer == place->rank))
        return FAIL(ST_BUG, "%s of rank %d with rank %d of %d", name, place->rank, peer,
                    place->ranks);
    return ST_OK;
}

/* ---- the calls ---- */

static enum status begin_call(struct comm *comm, struct comm_call call, struct comm_ticket *ticket)
{
    return comm_run_put(comm, &(struct comm_queue_item){.comm = comm, .call = call}, ticket);
}

enum status comm_job_begin(struct comm *comm, enum status (*job)(void *arg), void *arg,
                           struct comm_ticket *ticket)
{
    return comm_run_put(comm, &(struct comm_queue_item){.comm = comm, .job = job, .arg = arg},
                        ticket);
}

static struct comm_call call_of(enum comm_call_kind kind, struct tensor out, const void *in,
                                int64_t elems, int peer)
{
    return (struct comm_call){
        .kind = kind, .dtype = out.dtype, .peer = peer, .elems = elems, .out = out.data, .in = in};
}

static enum status prepare_call(struct comm *comm, enum comm_call_kind kind, struct tensor out,
                                struct tensor in, int64_t elems, struct comm_call *call)
{
    /* before the number is divided into parts */
    TRY(check_elems(transport_call_name(kind), in.dtype, elems, call));
    const struct comm_place *place = comm_place(comm);
    int64_t part = part_extent(elems, place->ranks, place->rank).elems;
    TRY(check_buffers(kind, out, kind == COMM_CALL_REDUCE_SCATTER ? part : elems, in,
                      kind == COMM_CALL_ALL_GATHER ? part : elems));
    *call = (struct comm_call){.kind = kind,
                               .dtype = out.dtype,
                               .peer = -1,
                               .elems = elems,
                               .out = out.data,
                               .in = in.data};
    return ST_OK;
}

enum status comm_all_reduce(struct comm *comm, struct tensor out, struct tensor in, int64_t elems)
{
    struct comm_call call;
    TRY(prepare_call(comm, COMM_CALL_ALL_REDUCE, out, in, elems, &call));
    return comm_run(comm, &call);
}

enum status comm_reduce_scatter(struct comm *comm, struct tensor out, struct tensor in,
                                int64_t elems)
{
    struct comm_call call;
    TRY(prepare_call(comm, COMM_CALL_REDUCE_SCATTER, out, in, elems, &call));
    return comm_run(comm, &call);
}

enum status comm_all_gather(struct comm *comm, struct tensor out, struct tensor in, int64_t elems)
{
    struct comm_call call;
    TRY(prepare_call(comm, COMM_CALL_ALL_GATHER, out, in, elems, &call));
    return comm_run(comm, &call);
}

static enum status prepare_all_to_all(struct comm *comm, struct tensor out, struct tensor in,
                                      int64_t part_elems, struct comm_call *call)
{
    int ranks = comm_place(comm)->ranks;
    /* before the number is multiplied */
    TRY(check_elems("all_to_all", in.dtype, part_elems, &out));
    if (part_elems > ELEMS_MAX / ranks)
        return FAIL(ST_BUG, "all_to_all of %d parts of %lld elements", ranks,
                    (long long)part_elems);
    TRY(check_buffers(COMM_CALL_ALL_TO_ALL, out, part_elems * ranks, in, part_elems * ranks));
    *call = call_of(COMM_CALL_ALL_TO_ALL, out, in.data, part_elems, -1);
    return ST_OK;
}

enum status comm_all_to_all(struct comm *comm, struct tensor out, struct tensor in,
                            int64_t part_elems)
{
    struct comm_call call;
    TRY(prepare_all_to_all(comm, out, in, part_elems, &call));
    return comm_run(comm, &call);
}

enum status comm_all_to_all_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t part_elems, comm_then_fn *then, void *arg,
                                  struct comm_ticket *ticket)
{
    struct comm_call call;
    TRY(prepare_all_to_all(comm, out, in, part_elems, &call));
    call.then = then;
    call.then_arg = arg;
    return begin_call(comm, call, ticket);
}

enum status comm_all_reduce_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t elems, struct comm_ticket *ticket)
{
    struct comm_call call;
    TRY(prepare_call(comm, COMM_CALL_ALL_REDUCE, out, in, elems, &call));
    return begin_call(comm, call, ticket);
}

enum status comm_reduce_scatter_begin(struct comm *comm, struct tensor out, struct tensor in,
                                      int64_t elems, struct comm_ticket *ticket)
{
    struct comm_call call;
    TRY(prepare_call(comm, COMM_CALL_REDUCE_SCATTER, out, in, elems, &call));
    return begin_call(comm, call, ticket);
}

enum status comm_all_gather_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t elems, struct comm_ticket *ticket)
{
    struct comm_call call;
    TRY(prepare_call(comm, COMM_CALL_ALL_GATHER, out, in, elems, &call));
    return begin_call(comm, call, ticket);
}

enum status comm_broadcast(struct comm *comm, struct tensor data, int64_t elems, int root)
{
    TRY(check_elems("broadcast", data.dtype, elems, data.data));
    TRY(check_peer(comm_place(comm), "broadcast", root, true));
    struct comm_call call = call_of(COMM_CALL_BROADCAST, data, data.data, elems, root);
    return comm_run(comm, &call);
}

enum status comm_send(struct comm *comm, struct tensor data, int64_t elems, int to)
{
    TRY(check_elems("send", data.dtype, elems, data.data));
    TRY(check_peer(comm_place(comm), "send", to, false));
    struct comm_call call = call_of(COMM_CALL_SEND, data, data.data, elems, to);
    call.out = NULL;
    return comm_run(comm, &call);
}

enum status comm_recv(struct comm *comm, struct tensor data, int64_t elems, int from)
{
    TRY(check_elems("recv", data.dtype, elems, data.data));
    TRY(check_peer(comm_place(comm), "recv", from, false));
    struct comm_call call = call_of(COMM_CALL_RECV, data, NULL, elems, from);
    return comm_run(comm, &call);
}

enum status comm_barrier(struct comm *comm)
{
    struct comm_call call =
        call_of(COMM_CALL_BARRIER, (struct tensor){.dtype = DTYPE_U8}, NULL, 0, -1);
    return comm_run(comm, &call);
}

/* ---- memory, split ---- */

enum status comm_alloc(struct comm *comm, int64_t bytes, void **out)
{
    if (bytes < 1 || bytes > ELEMS_MAX)
        return FAIL(ST_BUG, "%lld bytes for communication", (long long)bytes);
    *out = NULL;
    if (comm->parent == NULL && comm->ctx.ops->alloc != NULL) {
        struct comm_call call;
        begin_opening(comm, &call, COMM_CALL_ALLOC);
        enum status st = comm->ctx.ops->alloc(&comm->ctx, bytes, out);
        comm->ctx.call = NULL;
        if (st != ST_OK || *out != NULL)
            return st;
    }
    /* Device memory or ordinary memory, which comm_close frees. */
    struct dev *dev = comm->ctx.config.dev;
    comm->allocations = memory_resize(comm->allocations, (size_t)comm->allocations_n + 1,
                                      sizeof(*comm->allocations));
    bool is_on_device = dev_is_discrete(dev);
    TRY(is_on_device ? dev_alloc(dev, (size_t)bytes, out) : transport_map(bytes, out));
    comm->allocations[comm->allocations_n++] =
        (struct comm_allocation){.data = *out, .bytes = bytes, .is_on_device = is_on_device};
    return ST_OK;
}

/* Sets *out to this rank's place among `ranks`. Returns false if it is not one of them, or if they
 * do not ascend. */
static bool place_among(const struct comm_place *place, const int *ranks, int n,
                        struct comm_place *out)
{
    int at = -1;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= place->ranks || (i > 0 && ranks[i] <= ranks[i - 1]))
            return false;
        if (ranks[i] == place->rank)
            at = i;
    }
    if (at < 0)
        return false;
    out->rank = at;
    out->ranks = n;
    sum_tree_shape(ranks, n, place->locals, &out->nodes, &out->locals);
    out->node = at / out->locals;
    out->local = at % out->locals;
    return true;
}

enum status comm_split(struct comm *comm, const int *ranks, int ranks_n, struct comm **out)
{
    struct comm_config config = comm->ctx.config;
    if (ranks_n < 1 || !place_among(comm_place(comm), ranks, ranks_n, &config.place))
        return FAIL(ST_BUG,
                    "cannot split %d of %d ranks: rank %d is not among them, or they do not ascend",
                    ranks_n, comm_place(comm)->ranks, comm_place(comm)->rank);
    struct comm *split = new_comm(&config, comm->root, comm->ctx.ops);
    split->ctx.generation = comm->ctx.generation;
    split->ctx.about = comm->ctx.about;
    split->parent = comm;
    split->ranks = memory_new((size_t)ranks_n, sizeof(*ranks));
    memcpy(split->ranks, ranks, (size_t)ranks_n * sizeof(*ranks));
    split->ctx.parent = &comm->ctx;
    split->ctx.ranks = split->ranks;
    struct comm_call call = {.kind = COMM_CALL_SPLIT, .dtype = DTYPE_U8, .peer = -1};
    enum status st = comm_run(split, &call);
    if (st != ST_OK) {
        struct status_saved saved;
        status_save(&saved);
        split->parent = comm;
        comm_close(split);
        status_restore(&saved);
        return st;
    }
    *out = split;
    return ST_OK;
}
