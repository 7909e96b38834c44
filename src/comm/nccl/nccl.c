/* comm_nccl — the transport NCCL: one GPU for each rank, on a separate stream during computation.
 * Must not know the meaning of the data.
 *
 *   Calls      are put on a stream of high priority, after an event of the computation. The device
 *              executes them, and other streams wait for them; no thread polls a call to its end
 *              before the next (core/async.c). Blocking calls wait for the stream.
 *   Deadlines  NCCL is called without blocking (blocking = 0) and polled. So a missing rank ends a
 *              call at its deadline or by the abort flag. Then all communicators are aborted, which
 *              also ends their kernels. Blocking communicators would save the thread that NCCL
 *              starts for each call, but could not be aborted while a call waits (decision 080).
 *   Bootstrap  NCCL's unique id travels in rank 0's address, which the cluster distributes over an
 *              authenticated connection. NCCL opens its own sockets only after every rank has the
 *              id. All ranks must have the same version.
 *   Sums       are added in NCCL's order: all ranks of a call get the same bits, but not the bits
 *              of the other transports.
 *   Parts      of unequal size (part_extent) need one reduction or broadcast for each rank, in one
 *              NCCL group. The buckets of a store are padded to equal parts (layout_pad); `convoy
 *              bench` may request any size.
 *
 * NCCL does not report which rank is missing; the supervisors find it (comm heartbeat). */
#include <pthread.h>
#include <sched.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/text.h"
#include "comm/core/part.h"
#include "comm/nccl/inside.h"
#include "dev/dev.h"

/* ns of polling without a pause at the beginning of a wait: NCCL puts a call on the stream within
 * tens of microseconds, on a thread of its own (blocking = 0), and a sleep lasts over 100. */
#define AWAKE_NS 200000
#define AWAKE_OWN_CORE_NS 2000000 /* the same for a thread with a core to itself */
#define CHECK_POLLS 64
#define SLEEP_US 50

static const struct nccl_lib *lib(const struct comm_nccl *state) { return comm_nccl_lib(state); }

/* ---- waiting ---- */

struct wait {
    struct comm_ctx *ctx;
    int64_t begin_ns;
    int polls;
};

static struct wait begin_wait(struct comm_ctx *ctx)
{
    return (struct wait){.ctx = ctx, .begin_ns = clock_ns()};
}

/* Pauses between two polls. ST_PEER: the call must end. A thread that shares its core yields it to
 * NCCL's thread. */
static enum status poll_once(struct wait *wait)
{
    const bool has_core = wait->ctx->wait_policy == WAIT_POLICY_SPIN;
    const int64_t awake_ns = has_core ? AWAKE_OWN_CORE_NS : AWAKE_NS;
    if (clock_ns() - wait->begin_ns >= awake_ns) {
        clock_sleep_us(SLEEP_US);
        return transport_watch(wait->ctx);
    }
    if (has_core)
        transport_pause();
    else
        (void)sched_yield();
    return ++wait->polls % CHECK_POLLS == 0 ? transport_watch(wait->ctx) : ST_OK;
}

static enum status fail_call(struct comm_ctx *ctx, int result)
{
    const struct comm_nccl *state = ctx->state;
    char what[96];
    text_format(what, sizeof what, "%s %lld of %lld bytes", transport_call_name(ctx->call->kind),
                (long long)ctx->call->sequence, (long long)transport_bytes(ctx->call));
    return nccl_lib_fail(lib(state), state->comm, result, what);
}

/* Returns the communicator's current state. */
static int get_async_error(const struct comm_nccl *state)
{
    int result = NCCL_SUCCESS;
    return lib(state)->ncclCommGetAsyncError(state->comm, &result) == NCCL_SUCCESS
               ? result
               : NCCL_INTERNAL_ERROR;
}

static enum status check_async_error(struct comm_ctx *ctx)
{
    const struct comm_nccl *state = ctx->state;
    int result = state->comm != NULL ? get_async_error(state) : NCCL_SUCCESS;
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS ? ST_OK : fail_call(ctx, result);
}

/* Waits until NCCL has put a call on the stream, or has failed. NCCL connects to a rank only when a
 * call first needs that, and is in progress meanwhile. A result of success is checked too: some
 * versions return it for messages that are not on the stream yet (NCCL's issue 1495). */
static enum status wait_enqueued(struct comm_ctx *ctx, int result)
{
    const struct comm_nccl *state = ctx->state;
    struct wait wait = begin_wait(ctx);
    while (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) {
        result = get_async_error(state);
        if (result == NCCL_SUCCESS)
            return ST_OK;
        if (result == NCCL_IN_PROGRESS)
            TRY(poll_once(&wait));
        if (state->comm == NULL) /* the watchdog has ended it */
            return transport_check(ctx);
    }
    return fail_call(ctx, result);
}

/* Waits until the stream is idle. A rank or a link may fail meanwhile. */
static enum status wait_device(struct comm_ctx *ctx)
{
    const struct comm_nccl *state = ctx->state;
    struct wait wait = begin_wait(ctx);
    for (;;) {
        bool is_idle = false;
        TRY(dev_stream_query(state->root->stream, &is_idle));
        if (is_idle)
            return ST_OK;
        TRY(check_async_error(ctx));
        TRY(poll_once(&wait));
    }
}

/* ---- the end of a call ---- */

/* A communicator that a separate thread aborts. */
struct ending {
    pthread_t thread;
    const struct nccl_lib *nccl;
    struct nccl_comm *comm;
    bool has_thread;
};
#define ENDINGS_MAX 16 /* a root and its splits */

static void *abort_one(void *arg)
{
    struct ending *ending = arg;
    (void)ending->nccl->ncclCommAbort(ending->comm); /* the caller reports the failure */
    return NULL;
}

/* Aborts all communicators at the same time, each by a separate thread: ncclCommAbort waits for
 * work of the device, which may wait for another communicator's kernel. */
void comm_nccl_abort(struct comm_ctx *ctx)
{
    struct comm_nccl *state = ctx->state;
    struct ending ending[ENDINGS_MAX];
    struct status_saved saved;
    int n = 0;
    status_save(&saved);
    for (struct comm_nccl *c = state->root->first; c != NULL && n < ENDINGS_MAX; c = c->next) {
        if (c->comm == NULL)
            continue;
        ending[n] = (struct ending){.nccl = lib(c), .comm = c->comm};
        c->comm = NULL;
        ending[n].has_thread = pthread_create(&ending[n].thread, NULL, abort_one, &ending[n]) == 0;
        n++;
    }
    for (int i = n - 1; i >= 0; i--)
        if (ending[i].has_thread)
            pthread_join(ending[i].thread, NULL);
        else
            (void)abort_one(&ending[i]);
    status_restore(&saved);
}

/* Ends the root after a failure. core/async.c ends the calls that stay on the device, after it has
 * kept the failure. */
static enum status abort_on_failure(struct comm_ctx *ctx, enum status st)
{
    if (st != ST_OK && !ctx->is_async)
        comm_nccl_abort(ctx);
    return st;
}

enum status comm_nccl_opened(struct comm_ctx *ctx, int result)
{
    return abort_on_failure(ctx, wait_enqueued(ctx, result));
}

enum status comm_nccl_complete(struct comm_ctx *ctx, int result)
{
    enum status st = wait_enqueued(ctx, result);
    return abort_on_failure(ctx, st == ST_OK && !ctx->is_async ? wait_device(ctx) : st);
}

/* ---- calls ---- */

/* Returns NCCL's type of a sum; other calls move bytes. */
static int type_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F64:
        return NCCL_FLOAT64;
    case DTYPE_BF16:
        return NCCL_BFLOAT16;
    case DTYPE_F16:
        return NCCL_FLOAT16;
    default:
        return NCCL_FLOAT32;
    }
}

void *comm_nccl_stream(const struct comm_nccl *state)
{
    return dev_stream_handle(state->root->stream);
}

/* Returns the bytes that leave this rank; a ring sends (n-1)/n of the buffer in each of its two
 * halves. */
static int64_t sent_bytes(const struct comm_ctx *ctx, const struct comm_call *call)
{
    const int64_t n = ctx->config.place.ranks, bytes = transport_bytes(call);
    switch (call->kind) {
    case COMM_CALL_ALL_REDUCE:
        return 2 * (bytes / n * (n - 1));
    case COMM_CALL_REDUCE_SCATTER:
    case COMM_CALL_ALL_GATHER:
        return bytes / n * (n - 1);
    case COMM_CALL_ALL_TO_ALL:
        return bytes * (n - 1);
    case COMM_CALL_BROADCAST:
        return call->peer == ctx->config.place.rank ? bytes : 0;
    default:
        return call->kind == COMM_CALL_SEND ? bytes : 0;
    }
}

/* Runs an NCCL group of one call for each rank, made by `one`. The first refused call ends it. */
static enum status run_group(struct comm_ctx *ctx, const struct comm_call *call,
                             int (*one)(const struct comm_ctx *ctx, const struct comm_call *call,
                                        int rank))
{
    const struct comm_nccl *state = ctx->state;
    int result = lib(state)->ncclGroupStart(), refused = NCCL_SUCCESS;
    if (result != NCCL_SUCCESS)
        return abort_on_failure(ctx, fail_call(ctx, result));
    for (int rank = 0; rank < ctx->config.place.ranks && refused == NCCL_SUCCESS; rank++) {
        result = one(ctx, call, rank);
        refused = result == NCCL_IN_PROGRESS ? NCCL_SUCCESS : result;
    }
    result = lib(state)->ncclGroupEnd();
    return refused != NCCL_SUCCESS ? abort_on_failure(ctx, fail_call(ctx, refused))
                                   : comm_nccl_complete(ctx, result);
}

static int reduce_part(const struct comm_ctx *ctx, const struct comm_call *call, int rank)
{
    const struct comm_nccl *state = ctx->state;
    struct part_extent part = part_extent(call->elems, ctx->config.place.ranks, rank);
    const char *from = (const char *)call->in + part.first * (int64_t)dtype_bytes(call->dtype);
    if (part.elems == 0)
        return NCCL_SUCCESS;
    void *to = rank == ctx->config.place.rank ? call->out : NULL;
    return lib(state)->ncclReduce(from, to, (size_t)part.elems, type_of(call->dtype), NCCL_SUM,
                                  rank, state->comm, comm_nccl_stream(state));
}

static int broadcast_part(const struct comm_ctx *ctx, const struct comm_call *call, int rank)
{
    const struct comm_nccl *state = ctx->state;
    const int64_t each = (int64_t)dtype_bytes(call->dtype);
    struct part_extent part = part_extent(call->elems, ctx->config.place.ranks, rank);
    char *to = (char *)call->out + part.first * each;
    if (part.elems == 0)
        return NCCL_SUCCESS;
    return lib(state)->ncclBroadcast(rank == ctx->config.place.rank ? call->in : to, to,
                                     (size_t)(part.elems * each), NCCL_UINT8, rank, state->comm,
                                     comm_nccl_stream(state));
}

static int exchange_part(const struct comm_ctx *ctx, const struct comm_call *call, int rank)
{
    const struct comm_nccl *state = ctx->state;
    const int64_t bytes = transport_bytes(call);
    int result = lib(state)->ncclSend((const char *)call->in + rank * bytes, (size_t)bytes,
                                      NCCL_UINT8, rank, state->comm, comm_nccl_stream(state));
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        return result;
    return lib(state)->ncclRecv((char *)call->out + rank * bytes, (size_t)bytes, NCCL_UINT8, rank,
                                state->comm, comm_nccl_stream(state));
}

/* Starts the NCCL call for a call with elements, or for a barrier. */
static enum status enqueue_call(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nccl *state = ctx->state;
    const struct nccl_lib *nccl = lib(state);
    struct nccl_comm *comm = state->comm;
    void *stream = comm_nccl_stream(state);
    const int ranks = ctx->config.place.ranks, type = type_of(call->dtype);
    const size_t elems = (size_t)call->elems, bytes = (size_t)transport_bytes(call);
    const bool is_even = call->elems % ((int64_t)ranks * PART_ALIGN) == 0;
    switch (call->kind) {
    case COMM_CALL_ALL_REDUCE:
        return comm_nccl_complete(
            ctx, nccl->ncclAllReduce(call->in, call->out, elems, type, NCCL_SUM, comm, stream));
    case COMM_CALL_REDUCE_SCATTER:
        return is_even
                   ? comm_nccl_complete(ctx, nccl->ncclReduceScatter(call->in, call->out,
                                                                     elems / (size_t)ranks, type,
                                                                     NCCL_SUM, comm, stream))
                   : run_group(ctx, call, reduce_part);
    case COMM_CALL_ALL_GATHER:
        return is_even ? comm_nccl_complete(ctx, nccl->ncclAllGather(call->in, call->out,
                                                                     bytes / (size_t)ranks,
                                                                     NCCL_UINT8, comm, stream))
                       : run_group(ctx, call, broadcast_part);
    case COMM_CALL_ALL_TO_ALL:
        return run_group(ctx, call, exchange_part);
    case COMM_CALL_BROADCAST:
        return comm_nccl_complete(ctx, nccl->ncclBroadcast(call->out, call->out, bytes, NCCL_UINT8,
                                                           call->peer, comm, stream));
    case COMM_CALL_SEND:
        return comm_nccl_complete(
            ctx, nccl->ncclSend(call->in, bytes, NCCL_UINT8, call->peer, comm, stream));
    case COMM_CALL_RECV:
        return comm_nccl_complete(
            ctx, nccl->ncclRecv(call->out, bytes, NCCL_UINT8, call->peer, comm, stream));
    default:
        ASSERT(call->kind == COMM_CALL_BARRIER);
        return comm_nccl_complete(ctx,
                                  nccl->ncclAllReduce(state->root->scratch, state->root->scratch, 1,
                                                      NCCL_FLOAT32, NCCL_SUM, comm, stream));
    }
}

static enum status run(struct comm_ctx *ctx, const struct comm_call *call)
{
    if (call->kind != COMM_CALL_BARRIER) {
        if (call->elems == 0)
            return ST_OK;
        TRY(dev_stream_wait(ctx->about.stream, call->event));
        atomic_fetch_add_explicit(&ctx->bytes_sent, sent_bytes(ctx, call), memory_order_relaxed);
    }
    return enqueue_call(ctx, call);
}

const struct transport_ops comm_nccl_ops = {
    .name = "nccl",
    .is_on_device = true,
    .begin_open = comm_nccl_open_begin,
    .end_open = comm_nccl_open_end,
    .split = comm_nccl_open_split,
    .close = comm_nccl_open_close,
    .alloc = comm_nccl_open_alloc,
    .run = run,
    .check = check_async_error,
    .abort_all = comm_nccl_abort,
};
