/* comm — what all transports share: checks, call numbers, deadlines, the first failure, times. Must
 * not know how data are moved. */
#include "comm/core/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "comm/core/comm_args.h"
#include "comm/core/comm_queue.h"
#include "comm/core/comm_record.h"
#include "comm/core/part.h"
#include "comm/core/staging.h"
#include "comm/core/sum_tree.h"

/* Memory of comm_alloc that the transport does not supply. */
struct comm_allocation {
    void *data;
    int64_t bytes;
    bool is_on_device;
};

/* Shared by a comm and all comms split from it. */
struct comm_root {
    struct comm_queue *queue;
    struct staging *staging; /* NULL: the transport reaches all memory */
    struct dev_event *event; /* from comm_wait_stream, for the next call; or NULL */
    atomic_bool closing, failed;
    enum status failed_st; /* the first failure; written once, before `failed` */
    struct status_saved failure;
    bool has_cores; /* a core for each rank, so waits may spin */
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

static void run_queued(struct comm_queue_item *item);

static enum status new_root(struct comm_root **out)
{
    struct comm_root *root = calloc(1, sizeof(*root));
    if (root == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm");
    enum status st = comm_queue_open(run_queued, &root->queue);
    if (st != ST_OK) {
        free(root);
        return st;
    }
    *out = root;
    return ST_OK;
}

/* root_ops: the transport of the comm that a split is made from; NULL: chosen by config. */
static enum status new_comm(const struct comm_config *config, struct comm_root *root,
                            const struct transport_ops *root_ops, struct comm **out)
{
    struct comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm of %d ranks", config->place.ranks);
    comm->ctx.ops = root_ops != NULL ? root_ops : transport_find(config->kind, &config->place);
    comm->ctx.config = *config;
    comm->ctx.closing = &root->closing;
    comm->root = root;
    *out = comm;
    return ST_OK;
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
    struct comm_root *root = NULL;
    TRY(new_root(&root));
    struct comm *comm = NULL;
    enum status st = new_comm(config, root, NULL, &comm);
    if (st != ST_OK) {
        comm_queue_close(root->queue);
        free(root);
        return st;
    }
    const struct comm_place *place = &config->place;
    root->has_cores =
        !config->is_oversubscribed &&
        (config->kind == COMM_KIND_THREADS ? place->ranks : place->locals) <= thread_pool_cores();
    struct comm_call call;
    begin_opening(comm, &call, COMM_CALL_OPEN);
    st = comm->ctx.ops->begin_open(&comm->ctx, address, address_bytes);
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

static void fail_first(struct comm_root *root, enum status st)
{
    if (atomic_load_explicit(&root->failed, memory_order_acquire))
        return;
    root->failed_st = st;
    status_save(&root->failure);
    atomic_store_explicit(&root->failed, true, memory_order_release);
}

static enum status fail_again(const struct comm_root *root)
{
    status_restore(&root->failure);
    return root->failed_st;
}

static bool has_failed(const struct comm_root *root)
{
    return atomic_load_explicit(&root->failed, memory_order_acquire);
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
    if (st == ST_OK && dev_is_discrete(dev) && comm_place(comm)->ranks > 1)
        st = staging_open(dev, comm->ctx.ops->is_on_device, &comm->root->staging);
    if (st != ST_OK)
        fail_first(comm->root, st);
    return st;
}

static void free_allocation(const struct comm *comm, const struct comm_allocation *allocation)
{
    if (allocation->is_on_device)
        dev_free(comm->ctx.config.dev, allocation->data, (size_t)allocation->bytes);
    else
        transport_unmap(allocation->data, allocation->bytes);
}

void comm_close(struct comm *comm)
{
    if (comm == NULL)
        return;
    struct comm_root *root = comm->root;
    if (comm->parent == NULL) {
        atomic_store_explicit(&root->closing, true, memory_order_relaxed);
        comm_queue_close(root->queue);
        root->queue = NULL;
    } else {
        comm_queue_wait(root->queue, comm_queue_last(root->queue));
    }
    comm->ctx.ops->close(&comm->ctx);
    for (int i = 0; i < comm->allocations_n; i++)
        free_allocation(comm, &comm->allocations[i]);
    if (comm->parent == NULL) {
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
    const struct transport_ops *ops = comm->ctx.ops;
    return ops->backend != NULL ? ops->backend(&comm->ctx) : ops->name;
}

const char *comm_name(const struct comm *comm)
{
    const struct transport_ops *ops = comm->ctx.ops;
    return ops->describe != NULL ? ops->describe(&comm->ctx) : ops->name;
}

const char *comm_choice_reason(const struct comm *comm) { return comm->ctx.choice_reason; }

/* ---- what this rank is doing ---- */

/* Records the call in this comm and in its parents: the watchdog reads the root. */
static void record(struct comm *comm, const struct comm_call *call, enum comm_call_kind kind)
{
    for (int64_t now_ns = clock_ns(); comm != NULL; comm = comm->parent)
        comm_record_write(&comm->record, call, kind,
                          kind == COMM_CALL_NONE ? now_ns : call->entered_ns);
}

void comm_activity(const struct comm *comm, struct comm_activity *out)
{
    comm_record_read(&comm->record, out);
}

void comm_times(struct comm *comm, struct comm_times *out)
{
    out->busy_ms = (double)atomic_exchange_explicit(&comm->busy_ns, 0, memory_order_relaxed) * 1e-6;
    out->wait_ms = (double)atomic_exchange_explicit(&comm->wait_ns, 0, memory_order_relaxed) * 1e-6;
    out->bytes_sent = atomic_exchange_explicit(&comm->bytes_sent, 0, memory_order_relaxed);
}

static void add_to(struct comm *comm, int64_t busy_ns, int64_t wait_ns, int64_t bytes)
{
    for (; comm != NULL; comm = comm->parent) {
        atomic_fetch_add_explicit(&comm->busy_ns, busy_ns, memory_order_relaxed);
        atomic_fetch_add_explicit(&comm->wait_ns, wait_ns, memory_order_relaxed);
        if (bytes != 0)
            atomic_fetch_add_explicit(&comm->bytes_sent, bytes, memory_order_relaxed);
    }
}

/* ---- executing calls ---- */

/* Numbers a call when it is executed: that order is the same on all ranks, on whichever thread a
 * call runs. Not all ranks make splits and messages, so a split has number 0 and messages are
 * counted apart. */
static void number(struct comm *comm, struct comm_call *call)
{
    if (call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV)
        call->sequence = ++comm->pairs_n;
    else if (call->kind != COMM_CALL_SPLIT)
        call->sequence = ++comm->calls_n;
}

/* Executes one call: the only place that calls a transport. is_blocking: on the caller's thread;
 * else on the queue thread. */
static enum status execute(struct comm *comm, struct comm_call *call, bool is_blocking)
{
    struct comm_ctx *ctx = &comm->ctx;
    if (has_failed(comm->root))
        return fail_again(comm->root);
    number(comm, call);
    call->entered_ns = clock_ns();
    record(comm, call, call->kind);
    ctx->call = call;
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
    ctx->call = NULL;
    record(comm, call, COMM_CALL_NONE);
    int64_t ns = clock_ns() - call->entered_ns;
    add_to(comm, ns, is_blocking ? ns : 0,
           atomic_exchange_explicit(&ctx->bytes_sent, 0, memory_order_relaxed));
    if (st != ST_OK)
        fail_first(comm->root, st);
    return st;
}

/* Set while this thread runs a job of that comm: calls made in the job run at once. */
static _Thread_local const struct comm_root *job_root;

static void run_queued(struct comm_queue_item *item)
{
    struct comm_root *root = item->comm->root;
    if (item->job == NULL) {
        (void)execute(item->comm, &item->call, false);
    } else if (!has_failed(root)) {
        job_root = root;
        enum status st = item->job(item->arg);
        job_root = NULL;
        if (st != ST_OK)
            fail_first(root, st);
    }
}

static void wait_ticket(struct comm *comm, int64_t ticket)
{
    int64_t begin = clock_ns();
    comm_queue_wait(comm->root->queue, ticket);
    add_to(comm, 0, clock_ns() - begin, 0);
}

enum status comm_wait_stream(struct comm *comm, struct stream *s)
{
    return comm->root->staging != NULL ? staging_record(comm->root->staging, s, &comm->root->event)
                                       : ST_OK;
}

static struct dev_event *take_event(struct comm_root *root)
{
    struct dev_event *event = root->event;
    root->event = NULL;
    return event;
}

static enum status run(struct comm *comm, struct comm_call call)
{
    if (job_root == comm->root)
        return execute(comm, &call, false);
    call.event = take_event(comm->root);
    if (!comm_queue_is_empty(comm->root->queue))
        wait_ticket(comm, comm_queue_last(comm->root->queue));
    return execute(comm, &call, true);
}

static enum status put(struct comm *comm, const struct comm_queue_item *item,
                       struct comm_ticket *ticket)
{
    if (has_failed(comm->root))
        return fail_again(comm->root);
    if (job_root == comm->root)
        return FAIL(ST_BUG, "a job began a call on its own comm: jobs make blocking calls only");
    return comm_queue_put(comm->root->queue, item, &ticket->sequence);
}

static enum status begin(struct comm *comm, struct comm_call call, struct comm_ticket *ticket)
{
    call.event = take_event(comm->root);
    return put(comm, &(struct comm_queue_item){.comm = comm, .call = call}, ticket);
}

enum status comm_job_begin(struct comm *comm, enum status (*job)(void *arg), void *arg,
                           struct comm_ticket *ticket)
{
    return put(comm, &(struct comm_queue_item){.comm = comm, .job = job, .arg = arg}, ticket);
}

/* The ticket's call may have succeeded before another one failed. The failure is returned all the
 * same, because the comm is of no further use. */
enum status comm_wait(struct comm *comm, struct comm_ticket ticket)
{
    if (ticket.sequence < 1 || ticket.sequence > comm_queue_last(comm->root->queue))
        return FAIL(ST_BUG, "ticket %lld of %lld", (long long)ticket.sequence,
                    (long long)comm_queue_last(comm->root->queue));
    wait_ticket(comm, ticket.sequence);
    return has_failed(comm->root) ? fail_again(comm->root) : ST_OK;
}

/* ---- the calls ---- */

static struct comm_call call_of(enum comm_call_kind kind, struct tensor out, const void *in,
                                int64_t elems, int peer)
{
    return (struct comm_call){
        .kind = kind, .dtype = out.dtype, .peer = peer, .elems = elems, .out = out.data, .in = in};
}

static enum status prepare(struct comm *comm, enum comm_call_kind kind, struct tensor out,
                           struct tensor in, int64_t elems, struct comm_call *call)
{
    /* before the number is divided into parts */
    TRY(comm_args_check_elems(transport_call_name(kind), in.dtype, elems, call));
    const struct comm_place *place = comm_place(comm);
    int64_t part = part_extent(elems, place->ranks, place->rank).elems;
    TRY(comm_args_check_buffers(kind, out, kind == COMM_CALL_REDUCE_SCATTER ? part : elems, in,
                                kind == COMM_CALL_ALL_GATHER ? part : elems));
    *call = call_of(kind, out, in.data, elems, -1);
    return ST_OK;
}

enum status comm_all_reduce(struct comm *comm, struct tensor out, struct tensor in, int64_t elems)
{
    struct comm_call call;
    TRY(prepare(comm, COMM_CALL_ALL_REDUCE, out, in, elems, &call));
    return run(comm, call);
}

enum status comm_reduce_scatter(struct comm *comm, struct tensor out, struct tensor in,
                                int64_t elems)
{
    struct comm_call call;
    TRY(prepare(comm, COMM_CALL_REDUCE_SCATTER, out, in, elems, &call));
    return run(comm, call);
}

enum status comm_all_gather(struct comm *comm, struct tensor out, struct tensor in, int64_t elems)
{
    struct comm_call call;
    TRY(prepare(comm, COMM_CALL_ALL_GATHER, out, in, elems, &call));
    return run(comm, call);
}

enum status comm_all_to_all(struct comm *comm, struct tensor out, struct tensor in,
                            int64_t part_elems)
{
    int ranks = comm_place(comm)->ranks;
    /* before the number is multiplied */
    TRY(comm_args_check_elems("all_to_all", in.dtype, part_elems, &out));
    if (part_elems > COMM_ARGS_ELEMS_MAX / ranks)
        return FAIL(ST_BUG, "all_to_all of %d parts of %lld elements", ranks,
                    (long long)part_elems);
    TRY(comm_args_check_buffers(COMM_CALL_ALL_TO_ALL, out, part_elems * ranks, in,
                                part_elems * ranks));
    return run(comm, call_of(COMM_CALL_ALL_TO_ALL, out, in.data, part_elems, -1));
}

enum status comm_all_reduce_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t elems, struct comm_ticket *ticket)
{
    struct comm_call call;
    TRY(prepare(comm, COMM_CALL_ALL_REDUCE, out, in, elems, &call));
    return begin(comm, call, ticket);
}

enum status comm_reduce_scatter_begin(struct comm *comm, struct tensor out, struct tensor in,
                                      int64_t elems, struct comm_ticket *ticket)
{
    struct comm_call call;
    TRY(prepare(comm, COMM_CALL_REDUCE_SCATTER, out, in, elems, &call));
    return begin(comm, call, ticket);
}

enum status comm_all_gather_begin(struct comm *comm, struct tensor out, struct tensor in,
                                  int64_t elems, struct comm_ticket *ticket)
{
    struct comm_call call;
    TRY(prepare(comm, COMM_CALL_ALL_GATHER, out, in, elems, &call));
    return begin(comm, call, ticket);
}

enum status comm_broadcast(struct comm *comm, struct tensor data, int64_t elems, int root)
{
    TRY(comm_args_check_elems("broadcast", data.dtype, elems, data.data));
    TRY(comm_args_check_peer(comm_place(comm), "broadcast", root, true));
    return run(comm, call_of(COMM_CALL_BROADCAST, data, data.data, elems, root));
}

enum status comm_send(struct comm *comm, struct tensor data, int64_t elems, int to)
{
    TRY(comm_args_check_elems("send", data.dtype, elems, data.data));
    TRY(comm_args_check_peer(comm_place(comm), "send", to, false));
    struct comm_call call = call_of(COMM_CALL_SEND, data, data.data, elems, to);
    call.out = NULL;
    return run(comm, call);
}

enum status comm_recv(struct comm *comm, struct tensor data, int64_t elems, int from)
{
    TRY(comm_args_check_elems("recv", data.dtype, elems, data.data));
    TRY(comm_args_check_peer(comm_place(comm), "recv", from, false));
    return run(comm, call_of(COMM_CALL_RECV, data, NULL, elems, from));
}

enum status comm_barrier(struct comm *comm)
{
    return run(comm, call_of(COMM_CALL_BARRIER, (struct tensor){.dtype = DTYPE_U8}, NULL, 0, -1));
}

/* ---- memory, split ---- */

/* Device memory or ordinary memory, which comm_close frees. */
static enum status alloc_own(struct comm *comm, int64_t bytes, void **out)
{
    struct dev *dev = comm->ctx.config.dev;
    struct comm_allocation *more =
        realloc(comm->allocations, sizeof(*more) * (size_t)(comm->allocations_n + 1));
    if (more == NULL)
        return FAIL(ST_RETRY, "out of memory: a list of %d allocations", comm->allocations_n + 1);
    comm->allocations = more;
    bool is_on_device = dev_is_discrete(dev);
    TRY(is_on_device ? dev_alloc(dev, (size_t)bytes, out) : transport_map(bytes, out));
    comm->allocations[comm->allocations_n++] =
        (struct comm_allocation){.data = *out, .bytes = bytes, .is_on_device = is_on_device};
    return ST_OK;
}

enum status comm_alloc(struct comm *comm, int64_t bytes, void **out)
{
    if (bytes < 1 || bytes > COMM_ARGS_ELEMS_MAX)
        return FAIL(ST_BUG, "%lld bytes for communication", (long long)bytes);
    if (comm->ctx.ops->alloc == NULL || comm->parent != NULL ||
        comm->ctx.config.place.locals == 1 || dev_is_discrete(comm->ctx.config.dev))
        return alloc_own(comm, bytes, out);
    struct comm_call call;
    begin_opening(comm, &call, COMM_CALL_ALLOC);
    enum status st = comm->ctx.ops->alloc(&comm->ctx, bytes, out);
    comm->ctx.call = NULL;
    return st;
}

/* This rank's place among `ranks`. false: it is not one of them, or they do not ascend. */
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

static enum status split_ctx(struct comm *comm, const int *ranks, int ranks_n, struct comm *split)
{
    split->parent = comm;
    split->ranks = malloc((size_t)ranks_n * sizeof(*ranks));
    if (split->ranks == NULL)
        return FAIL(ST_RETRY, "out of memory: a split of %d ranks", ranks_n);
    memcpy(split->ranks, ranks, (size_t)ranks_n * sizeof(*ranks));
    split->ctx.parent = &comm->ctx;
    split->ctx.ranks = split->ranks;
    return run(split, (struct comm_call){.kind = COMM_CALL_SPLIT, .dtype = DTYPE_U8, .peer = -1});
}

enum status comm_split(struct comm *comm, const int *ranks, int ranks_n, struct comm **out)
{
    struct comm_config config = comm->ctx.config;
    if (ranks_n < 1 || !place_among(comm_place(comm), ranks, ranks_n, &config.place))
        return FAIL(ST_BUG,
                    "cannot split %d of %d ranks: rank %d is not among them, or they do not ascend",
                    ranks_n, comm_place(comm)->ranks, comm_place(comm)->rank);
    struct comm *split;
    TRY(new_comm(&config, comm->root, comm->ctx.ops, &split));
    split->ctx.generation = comm->ctx.generation;
    enum status st = split_ctx(comm, ranks, ranks_n, split);
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
