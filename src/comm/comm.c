/* comm — what all transports share: checks, numbers, deadlines, the first failure, times, the
 * record of the call under way. Must not know how anything is moved. */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/must.h"
#include "base/task.h"
#include "base/text.h"
#include "comm/comm_lift.h"
#include "comm/comm_queue.h"
#include "comm/order.h"

#define ELEMS_MAX (INT64_MAX >> 16)

/* The call under way, readable from any thread: every field is atomic, and `version` is odd while
 * they are changed. */
struct comm_record {
    _Atomic uint32_t version;
    atomic_int kind;
    _Atomic int64_t sequence, entered_ns, elems;
};

struct comm_piece { /* of comm_alloc without a transport's own */
    void *data;
    int64_t bytes;
    bool is_on_device;
};

/* What a comm and those made from it share. */
struct comm_root {
    struct comm_queue *queue;
    struct comm_lift *lift; /* NULL: all memory is where the transport reaches it */
    struct mark *mark;      /* of comm_after, for the next call; NULL: none */
    atomic_bool closing, failed;
    enum status failed_st; /* written once, before `failed` */
    struct status_saved failure;
    bool has_cores;
};

struct comm {
    struct comm_wire wire;
    struct comm_root *root; /* own or the parent's */
    struct comm *parent;
    int *ranks; /* of a sub */
    int64_t calls_n, pairs_n;
    struct comm_record record;
    _Atomic int64_t busy_ns, wait_ns, bytes_sent;
    struct comm_piece *pieces;
    int pieces_n;
};

/* ---- life ---- */

static enum status check_config(const struct comm_config *config)
{
    const struct comm_place *p = &config->place;
    if (p->ranks < 1 || p->ranks > COMM_RANKS_MAX || p->nodes < 1 || p->locals < 1 ||
        (int64_t)p->nodes * p->locals != p->ranks || p->node < 0 || p->node >= p->nodes ||
        p->local < 0 || p->local >= p->locals || p->rank != p->node * p->locals + p->local)
        return FAIL(ST_BUG, "rank %d of %d cannot be worker %d of %d on node %d of %d", p->rank,
                    p->ranks, p->local, p->locals, p->node, p->nodes);
    if (config->timeout_ms <= 0)
        return FAIL(ST_BUG, "a call may last %lld ms", (long long)config->timeout_ms);
    if (comm_ops_find(config->kind, p) == NULL)
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

/* root_ops: of the comm that a sub is made from, whose transport it keeps. */
static enum status new_comm(const struct comm_config *config, struct comm_root *root,
                            const struct comm_ops *root_ops, struct comm **out)
{
    struct comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm of %d ranks", config->place.ranks);
    comm->wire.ops = root_ops != NULL ? root_ops : comm_ops_find(config->kind, &config->place);
    comm->wire.config = *config;
    comm->wire.closing = &root->closing;
    comm->root = root;
    *out = comm;
    return ST_OK;
}

/* A call of opening: not recorded, numbered 0. */
static void begin_opening(struct comm *comm, struct comm_call *call, enum comm_call_kind kind)
{
    *call =
        (struct comm_call){.kind = kind, .dtype = DTYPE_U8, .peer = -1, .entered_ns = clock_ns()};
    comm->wire.call = call;
    comm->wire.spins = comm->root->has_cores;
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
        !config->is_crowded &&
        (config->kind == COMM_KIND_MEM ? place->ranks : place->locals) <= task_cores();
    struct comm_call call;
    begin_opening(comm, &call, COMM_CALL_OPEN);
    st = comm->wire.ops->begin_open(&comm->wire, address, address_bytes);
    comm->wire.call = NULL;
    if (st != ST_OK) {
        struct status_saved saved;
        status_keep(&saved);
        comm_close(comm);
        status_back(&saved);
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
    status_keep(&root->failure);
    atomic_store_explicit(&root->failed, true, memory_order_release);
}

static enum status fail_again(const struct comm_root *root)
{
    status_back(&root->failure);
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
    comm->wire.config.generation = generation;
    begin_opening(comm, &call, COMM_CALL_OPEN);
    struct dev *dev = comm->wire.config.dev;
    enum status st = comm->wire.ops->end_open(&comm->wire, addresses, bytes);
    comm->wire.call = NULL;
    if (st == ST_OK && dev_is_apart(dev) && comm_place(comm)->ranks > 1)
        st = comm_lift_open(dev, comm->wire.ops->is_on_device, &comm->root->lift);
    if (st != ST_OK)
        fail_first(comm->root, st);
    return st;
}

static void free_piece(const struct comm *comm, const struct comm_piece *piece)
{
    if (piece->is_on_device)
        dev_free(comm->wire.config.dev, piece->data, (size_t)piece->bytes);
    else
        comm_ops_unmap(piece->data, piece->bytes);
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
    comm->wire.ops->close(&comm->wire);
    for (int i = 0; i < comm->pieces_n; i++)
        free_piece(comm, &comm->pieces[i]);
    if (comm->parent == NULL) {
        comm_lift_close(root->lift);
        free(root);
    }
    free(comm->pieces);
    free(comm->ranks);
    free(comm);
}

const struct comm_place *comm_place(const struct comm *comm) { return &comm->wire.config.place; }

const char *comm_name(const struct comm *comm)
{
    const struct comm_ops *ops = comm->wire.ops;
    return ops->describe != NULL ? ops->describe(&comm->wire) : ops->name;
}

const char *comm_why(const struct comm *comm) { return comm->wire.why; }

/* ---- the record ---- */

static void record_one(struct comm_record *record, const struct comm_call *call,
                       enum comm_call_kind kind, int64_t at_ns)
{
    atomic_fetch_add_explicit(&record->version, 1, memory_order_acq_rel);
    atomic_store_explicit(&record->kind, (int)kind, memory_order_release);
    atomic_store_explicit(&record->sequence, call->sequence, memory_order_release);
    atomic_store_explicit(&record->entered_ns, at_ns, memory_order_release);
    atomic_store_explicit(&record->elems, call->elems, memory_order_release);
    atomic_fetch_add_explicit(&record->version, 1, memory_order_release);
}

/* In its own and in that of the first comm, which people ask. */
static void record(struct comm *comm, const struct comm_call *call, enum comm_call_kind kind)
{
    for (int64_t now_ns = clock_ns(); comm != NULL; comm = comm->parent)
        record_one(&comm->record, call, kind, kind == COMM_CALL_NONE ? now_ns : call->entered_ns);
}

void comm_now(const struct comm *comm, struct comm_now *out)
{
    /* atomic loads want it so */
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
    text_copy(out->call, sizeof(out->call), comm_ops_call(kind));
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

/* ---- carrying out ---- */

/* Numbered when carried out: that order is the same on all ranks, whatever threads make the calls.
 * A sub's making is numbered 0, and a message between two is counted apart: not all ranks make
 * these. */
static void number(struct comm *comm, struct comm_call *call)
{
    if (call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV)
        call->sequence = ++comm->pairs_n;
    else if (call->kind != COMM_CALL_SUB)
        call->sequence = ++comm->calls_n;
}

/* The one place from which a transport is put to work. */
static enum status carry_out(struct comm *comm, struct comm_call *call, bool is_callers)
{
    struct comm_wire *wire = &comm->wire;
    if (has_failed(comm->root))
        return fail_again(comm->root);
    number(comm, call);
    call->entered_ns = clock_ns();
    record(comm, call, call->kind);
    wire->call = call;
    wire->spins = is_callers && comm->root->has_cores;
    wire->rests = !is_callers;
    wire->queue = is_callers || comm->root->lift != NULL ? NULL : comm->root->queue;
    const struct comm_config *config = &wire->config;
    enum status st = config->is_aborted != NULL && config->is_aborted(config->arg)
                         ? comm_ops_check(wire)
                         : ST_OK;
    if (st == ST_OK)
        st = comm->root->lift != NULL ? comm_lift_run(comm->root->lift, wire, call)
                                      : comm_ops_work(wire, call);
    wire->call = NULL;
    record(comm, call, COMM_CALL_NONE);
    int64_t ns = clock_ns() - call->entered_ns;
    add_to(comm, ns, is_callers ? ns : 0,
           atomic_exchange_explicit(&wire->bytes_sent, 0, memory_order_relaxed));
    if (st != ST_OK)
        fail_first(comm->root, st);
    return st;
}

/* The comm whose job this thread carries out: calls made in it run at once. */
static _Thread_local const struct comm_root *root_of_job;

static void run_queued(struct comm_queue_item *item)
{
    struct comm_root *root = item->comm->root;
    if (item->job == NULL) {
        (void)carry_out(item->comm, &item->call, false);
    } else if (!has_failed(root)) {
        root_of_job = root;
        enum status st = item->job(item->arg);
        root_of_job = NULL;
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

enum status comm_after(struct comm *comm, struct stream *s)
{
    return comm->root->lift != NULL ? comm_lift_mark(comm->root->lift, s, &comm->root->mark)
                                    : ST_OK;
}

static struct mark *take_mark(struct comm_root *root)
{
    struct mark *mark = root->mark;
    root->mark = NULL;
    return mark;
}

static enum status run(struct comm *comm, struct comm_call call)
{
    if (root_of_job == comm->root)
        return carry_out(comm, &call, false);
    call.mark = take_mark(comm->root);
    if (!comm_queue_is_empty(comm->root->queue))
        wait_ticket(comm, comm_queue_last(comm->root->queue));
    return carry_out(comm, &call, true);
}

static enum status put(struct comm *comm, const struct comm_queue_item *item,
                       struct comm_ticket *ticket)
{
    if (has_failed(comm->root))
        return fail_again(comm->root);
    if (root_of_job == comm->root)
        return FAIL(ST_BUG, "a call begun inside a job of the same comm: make it a blocking one");
    return comm_queue_put(comm->root->queue, item, &ticket->sequence);
}

static enum status begin(struct comm *comm, struct comm_call call, struct comm_ticket *ticket)
{
    call.mark = take_mark(comm->root);
    return put(comm, &(struct comm_queue_item){.comm = comm, .call = call}, ticket);
}

enum status comm_job_begin(struct comm *comm, enum status (*job)(void *arg), void *arg,
                           struct comm_ticket *ticket)
{
    return put(comm, &(struct comm_queue_item){.comm = comm, .job = job, .arg = arg}, ticket);
}

/* A call before the first failure has succeeded, but who waits for it may as well learn now that
 * all is over. */
enum status comm_wait(struct comm *comm, struct comm_ticket ticket)
{
    if (ticket.sequence < 1 || ticket.sequence > comm_queue_last(comm->root->queue))
        return FAIL(ST_BUG, "ticket %lld of %lld", (long long)ticket.sequence,
                    (long long)comm_queue_last(comm->root->queue));
    wait_ticket(comm, ticket.sequence);
    return has_failed(comm->root) ? fail_again(comm->root) : ST_OK;
}

/* ---- checks, numbers ---- */

static bool is_summed(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_BF16;
}

static enum status check_elems(const char *name, enum dtype dtype, int64_t elems, const void *data)
{
    if (elems < 0 || elems > ELEMS_MAX || (unsigned)dtype >= DTYPE_N)
        return FAIL(ST_BUG, "%s of %lld elements of dtype %d", name, (long long)elems, (int)dtype);
    if (elems > 0 && data == NULL)
        return FAIL(ST_BUG, "%s of %lld elements from or to nowhere", name, (long long)elems);
    return ST_OK;
}

/* Both ends of a collective with two buffers, of which this rank has ins and outs elements. */
static enum status check_pair(enum comm_call_kind kind, struct tensor out, int64_t outs,
                              struct tensor in, int64_t ins)
{
    const char *name = comm_ops_call(kind);
    TRY(check_elems(name, in.dtype, ins, in.data));
    TRY(check_elems(name, out.dtype, outs, out.data));
    if (out.dtype != in.dtype)
        return FAIL(ST_BUG, "%s from dtype %d to dtype %d", name, (int)in.dtype, (int)out.dtype);
    if (kind != COMM_CALL_ALL_GATHER && kind != COMM_CALL_ALL_TO_ALL && !is_summed(in.dtype))
        return FAIL(ST_BUG, "%s of dtype %d: sums are of F32, F64 and BF16", name, (int)in.dtype);
    return ST_OK;
}

static enum status check_peer(const struct comm *comm, const char *name, int peer, bool may_be_self)
{
    const struct comm_place *place = comm_place(comm);
    if (peer < 0 || peer >= place->ranks || (!may_be_self && peer == place->rank))
        return FAIL(ST_BUG, "%s of rank %d with rank %d of %d", name, place->rank, peer,
                    place->ranks);
    return ST_OK;
}

static struct comm_call call_of(enum comm_call_kind kind, struct tensor out, const void *in,
                                int64_t elems, int peer)
{
    return (struct comm_call){
        .kind = kind, .dtype = out.dtype, .peer = peer, .elems = elems, .out = out.data, .in = in};
}

static enum status prepare(struct comm *comm, enum comm_call_kind kind, struct tensor out,
                           struct tensor in, int64_t elems, struct comm_call *call)
{
    /* the number, before it is cut in parts */
    TRY(check_elems(comm_ops_call(kind), in.dtype, elems, call));
    const struct comm_place *place = comm_place(comm);
    int64_t part = order_extent(elems, place->ranks, place->rank).elems;
    TRY(check_pair(kind, out, kind == COMM_CALL_REDUCE_SCATTER ? part : elems, in,
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
    /* the number, before it is multiplied */
    TRY(check_elems("all_to_all", in.dtype, part_elems, &out));
    if (part_elems > ELEMS_MAX / ranks)
        return FAIL(ST_BUG, "all_to_all of %d parts of %lld elements", ranks,
                    (long long)part_elems);
    TRY(check_pair(COMM_CALL_ALL_TO_ALL, out, part_elems * ranks, in, part_elems * ranks));
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
    TRY(check_elems("broadcast", data.dtype, elems, data.data));
    TRY(check_peer(comm, "broadcast", root, true));
    return run(comm, call_of(COMM_CALL_BROADCAST, data, data.data, elems, root));
}

enum status comm_send(struct comm *comm, struct tensor data, int64_t elems, int to)
{
    TRY(check_elems("send", data.dtype, elems, data.data));
    TRY(check_peer(comm, "send", to, false));
    struct comm_call call = call_of(COMM_CALL_SEND, data, data.data, elems, to);
    call.out = NULL;
    return run(comm, call);
}

enum status comm_recv(struct comm *comm, struct tensor data, int64_t elems, int from)
{
    TRY(check_elems("recv", data.dtype, elems, data.data));
    TRY(check_peer(comm, "recv", from, false));
    return run(comm, call_of(COMM_CALL_RECV, data, NULL, elems, from));
}

enum status comm_barrier(struct comm *comm)
{
    return run(comm, call_of(COMM_CALL_BARRIER, (struct tensor){.dtype = DTYPE_U8}, NULL, 0, -1));
}

/* ---- memory, groups ---- */

/* The device's memory, or ordinary one: remembered for close. */
static enum status alloc_piece(struct comm *comm, int64_t bytes, void **out)
{
    struct dev *dev = comm->wire.config.dev;
    struct comm_piece *more = realloc(comm->pieces, sizeof(*more) * (size_t)(comm->pieces_n + 1));
    if (more == NULL)
        return FAIL(ST_RETRY, "out of memory: a list of %d pieces", comm->pieces_n + 1);
    comm->pieces = more;
    bool is_on_device = dev_is_apart(dev);
    TRY(is_on_device ? dev_alloc(dev, (size_t)bytes, out) : comm_ops_map(bytes, out));
    comm->pieces[comm->pieces_n++] =
        (struct comm_piece){.data = *out, .bytes = bytes, .is_on_device = is_on_device};
    return ST_OK;
}

enum status comm_alloc(struct comm *comm, int64_t bytes, void **out)
{
    if (bytes < 1 || bytes > ELEMS_MAX)
        return FAIL(ST_BUG, "%lld bytes for communication", (long long)bytes);
    if (comm->wire.ops->alloc == NULL || comm->parent != NULL ||
        comm->wire.config.place.locals == 1 || dev_is_apart(comm->wire.config.dev))
        return alloc_piece(comm, bytes, out);
    struct comm_call call;
    begin_opening(comm, &call, COMM_CALL_ALLOC);
    enum status st = comm->wire.ops->alloc(&comm->wire, bytes, out);
    comm->wire.call = NULL;
    return st;
}

/* Where this rank stands among `ranks`; false when it is not there or they do not ascend. */
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
    order_nodes(ranks, n, place->locals, &out->nodes, &out->locals);
    out->node = at / out->locals;
    out->local = at % out->locals;
    return true;
}

static enum status sub_wire(struct comm *comm, const int *ranks, int ranks_n, struct comm *sub)
{
    sub->parent = comm;
    sub->ranks = malloc((size_t)ranks_n * sizeof(*ranks));
    if (sub->ranks == NULL)
        return FAIL(ST_RETRY, "out of memory: a group of %d ranks", ranks_n);
    memcpy(sub->ranks, ranks, (size_t)ranks_n * sizeof(*ranks));
    sub->wire.parent = &comm->wire;
    sub->wire.ranks = sub->ranks;
    return run(sub, (struct comm_call){.kind = COMM_CALL_SUB, .dtype = DTYPE_U8, .peer = -1});
}

enum status comm_sub(struct comm *comm, const int *ranks, int ranks_n, struct comm **out)
{
    struct comm_config config = comm->wire.config;
    if (ranks_n < 1 || !place_among(comm_place(comm), ranks, ranks_n, &config.place))
        return FAIL(ST_BUG, "a group of %d of %d ranks in which rank %d is not, or out of order",
                    ranks_n, comm_place(comm)->ranks, comm_place(comm)->rank);
    struct comm *sub;
    TRY(new_comm(&config, comm->root, comm->wire.ops, &sub));
    enum status st = sub_wire(comm, ranks, ranks_n, sub);
    if (st != ST_OK) {
        struct status_saved saved;
        status_keep(&saved);
        sub->parent = comm;
        comm_close(sub);
        status_back(&saved);
        return st;
    }
    *out = sub;
    return ST_OK;
}
