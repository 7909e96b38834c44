/* comm_nccl — the transport NCCL: one GPU for each rank, on a stream of its own beside computation.
 * Must not know what is summed.
 *
 *   Deadlines  NCCL is called without blocking (blocking = 0) and polled. So a missing rank ends a
 *              call at its deadline or by the abort flag. Then the communicator is aborted, which
 *              also ends its kernels.
 *   Bootstrap  NCCL's unique id travels in rank 0's address, which the cluster distributes over an
 *              authenticated connection. NCCL opens its own sockets only after every rank has the
 *              id. All ranks must have the same version.
 *   Sums       are added in NCCL's order: the same bits on all ranks of a call, but not those of
 *              the other transports.
 *   Parts      of unequal size (part_extent) need one reduction or broadcast for each rank, in one
 *              NCCL group.
 *
 * A call ends when the device has executed it. NCCL does not report which rank is missing; the
 * supervisors find it (comm heartbeat). */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/core/part.h"
#include "comm/core/transport.h"
#include "comm/nccl/nccl_lib.h"
#include "dev/dev.h"

#define SPIN_POLLS 20000 /* polls before a wait sleeps between them */
#define SLEEP_US 50

/* A rank's address. */
struct peer_info {
    int32_t version;
    int32_t has_id;
    struct nccl_id id;
};

/* Shared by a comm and all comms split from it. */
struct comm_nccl_root {
    const struct nccl_lib *nccl;
    struct stream *stream;
    void *scratch; /* SCRATCH_BYTES of device memory */
    char name[48];
};
#define SCRATCH_BYTES 256 /* a unique id, or the number that a barrier sums */

struct comm_nccl {
    struct comm_nccl_root *root;
    bool owns_root;
    struct nccl_comm *comm; /* NULL: not open, or aborted */
};

static const struct nccl_lib *lib(const struct comm_nccl *state) { return state->root->nccl; }

/* ---- waiting ---- */

struct wait {
    struct comm_ctx *ctx;
    int polls;
};

/* One iteration of a wait. ST_PEER: the call must end. */
static enum status poll_once(struct wait *wait)
{
    wait->polls++;
    if (wait->polls % 64 == 0)
        TRY(transport_check(wait->ctx));
    if (wait->ctx->wait_policy == WAIT_POLICY_SPIN && wait->polls < SPIN_POLLS) {
        transport_pause();
        return ST_OK;
    }
    clock_sleep_us(SLEEP_US);
    return transport_check(wait->ctx);
}

static enum status fail(struct comm_ctx *ctx, int result)
{
    const struct comm_nccl *state = ctx->state;
    char what[64];
    text_format(what, sizeof what, "%s %lld", transport_call_name(ctx->call->kind),
                (long long)ctx->call->sequence);
    return nccl_lib_fail(lib(state), state->comm, result, what);
}

/* Waits until NCCL has put a call on the stream, or has failed. A result of success is checked too:
 * some versions return it for messages that are not on the stream yet (NCCL's issue 1495). */
static enum status wait_enqueued(struct comm_ctx *ctx, int result)
{
    const struct comm_nccl *state = ctx->state;
    struct wait wait = {.ctx = ctx};
    while (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) {
        if (lib(state)->ncclCommGetAsyncError(state->comm, &result) != NCCL_SUCCESS)
            result = NCCL_INTERNAL_ERROR;
        if (result == NCCL_SUCCESS)
            break;
        if (result == NCCL_IN_PROGRESS)
            TRY(poll_once(&wait));
    }
    return result == NCCL_SUCCESS ? ST_OK : fail(ctx, result);
}

/* Waits until the stream is idle. A rank or a link may fail meanwhile. */
static enum status wait_device(struct comm_ctx *ctx)
{
    const struct comm_nccl *state = ctx->state;
    struct wait wait = {.ctx = ctx};
    for (;;) {
        bool is_idle = false;
        int result = NCCL_SUCCESS;
        TRY(dev_stream_query(state->root->stream, &is_idle));
        if (is_idle)
            return ST_OK;
        if (lib(state)->ncclCommGetAsyncError(state->comm, &result) != NCCL_SUCCESS)
            result = NCCL_INTERNAL_ERROR;
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
            return fail(ctx, result);
        TRY(poll_once(&wait));
    }
}

/* The end of every entry. A failure aborts the communicator, so its kernels end and no longer use
 * the buffers. */
static enum status finish(struct comm_ctx *ctx, enum status st)
{
    struct comm_nccl *state = ctx->state;
    if (st == ST_OK)
        return ST_OK;
    struct status_saved saved;
    status_save(&saved);
    if (state->comm != NULL)
        (void)lib(state)->ncclCommAbort(state->comm); /* st reports the failure */
    state->comm = NULL;
    status_restore(&saved);
    return st;
}

/* The stream waits for the call's event. */
static enum status begin(const struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nccl *state = ctx->state;
    return dev_stream_wait(state->root->stream, call->event);
}

/* Waits until a call that NCCL returned `result` for is done. */
static enum status complete(struct comm_ctx *ctx, int result)
{
    enum status st = wait_enqueued(ctx, result);
    return finish(ctx, st == ST_OK ? wait_device(ctx) : st);
}

/* ---- open, close ---- */

static enum status open_root(struct comm_nccl_root *root, struct dev *dev)
{
    if (!dev_is_discrete(dev))
        return FAIL(ST_BAD_SETTING, "NCCL is for GPUs only; use DEVICE=cuda, or BACKEND=ucx");
    TRY(nccl_lib_open(&root->nccl));
    TRY(dev_make_current(dev));
    TRY(dev_stream_open(dev, &root->stream));
    TRY(dev_alloc(dev, SCRATCH_BYTES, &root->scratch));
    char text[24];
    text_format(root->name, sizeof root->name, "nccl %s",
                nccl_lib_version_text(nccl_lib_version(), text, sizeof text));
    return ST_OK;
}

static enum status pack(struct comm_ctx *ctx, const struct comm_nccl *state, struct peer_info *info)
{
    *info =
        (struct peer_info){.version = nccl_lib_version(), .has_id = ctx->config.place.rank == 0};
    if (!info->has_id)
        return ST_OK;
    int result = lib(state)->ncclGetUniqueId(&info->id);
    return result == NCCL_SUCCESS ? ST_OK
                                  : nccl_lib_fail(lib(state), NULL, result, "a new unique id");
}

static enum status begin_open(struct comm_ctx *ctx, void *address, int64_t *address_bytes)
{
    struct comm_nccl *state = calloc(1, sizeof *state);
    if (state == NULL || (state->root = calloc(1, sizeof *state->root)) == NULL) {
        free(state);
        return FAIL(ST_RETRY, "out of memory: a comm over NCCL");
    }
    struct peer_info info;
    state->owns_root = true;
    ctx->state = state;
    TRY(open_root(state->root, ctx->config.dev));
    TRY(pack(ctx, state, &info));
    memcpy(address, &info, sizeof info);
    *address_bytes = sizeof info;
    return ST_OK;
}

/* All ranks have the same version, and rank 0 sent an id. */
static enum status check_peer_infos(const struct comm_ctx *ctx, const void *addresses,
                                    const int64_t *bytes, struct nccl_id *id_out)
{
    struct peer_info first = {0}, other;
    char a[24], b[24];
    for (int rank = 0; rank < ctx->config.place.ranks; rank++) {
        if (bytes[rank] != (int64_t)sizeof other)
            return FAIL(ST_DISAGREE,
                        "rank %d does not use NCCL: its address has %lld bytes; give all nodes "
                        "the same BACKEND",
                        rank, (long long)bytes[rank]);
        memcpy(&other, (const char *)addresses + (size_t)rank * COMM_ADDRESS_MAX, sizeof other);
        if (rank == 0)
            first = other;
        if (other.version != first.version)
            return FAIL(
                ST_DISAGREE,
                "NCCL differs: %s on rank 0, %s on rank %d; install the same version on every node",
                nccl_lib_version_text(first.version, a, sizeof a),
                nccl_lib_version_text(other.version, b, sizeof b), rank);
    }
    if (first.has_id != 1)
        return FAIL(ST_BUG, "rank 0 sent no unique id");
    *id_out = first.id;
    return ST_OK;
}

static enum status init(struct comm_ctx *ctx, const struct nccl_id *id)
{
    struct comm_nccl *state = ctx->state;
    struct nccl_config config = {.size = sizeof config,
                                 .magic = NCCL_CONFIG_MAGIC,
                                 .version = NCCL_VERSION_LEAST,
                                 .blocking = 0,
                                 .cga_cluster_size = NCCL_UNDEFINED,
                                 .min_ctas = NCCL_UNDEFINED,
                                 .max_ctas = NCCL_UNDEFINED,
                                 .split_share = NCCL_UNDEFINED};
    TRY(dev_make_current(ctx->config.dev));
    int result = lib(state)->ncclCommInitRankConfig(&state->comm, ctx->config.place.ranks, *id,
                                                    ctx->config.place.rank, &config);
    return finish(ctx, wait_enqueued(ctx, result));
}

static enum status end_open(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes)
{
    struct nccl_id id;
    TRY(check_peer_infos(ctx, addresses, bytes, &id));
    TRY(init(ctx, &id));
    if (ctx->config.place.rank == 0)
        LOG_INFO("NCCL %s", nccl_lib_about());
    return ST_OK;
}

static void root_free(struct comm_nccl_root *root, struct dev *dev)
{
    dev_stream_close(root->stream);
    dev_free(dev, root->scratch, SCRATCH_BYTES);
    free(root);
}

/* Aborts the communicator: destroying it would wait for other ranks. No call is under way here. */
static void ctx_close(struct comm_ctx *ctx)
{
    struct comm_nccl *state = ctx->state;
    if (state == NULL)
        return;
    (void)dev_make_current(ctx->config.dev);
    if (state->comm != NULL)
        (void)lib(state)->ncclCommAbort(state->comm);
    if (state->owns_root)
        root_free(state->root, ctx->config.dev);
    free(state);
    ctx->state = NULL;
}

static const char *describe(const struct comm_ctx *ctx)
{
    const struct comm_nccl *state = ctx->state;
    return state->root->name;
}

static enum transport_entered entered(const struct comm_ctx *ctx, int rank)
{
    (void)ctx, (void)rank;
    return TRANSPORT_ENTERED_UNKNOWN;
}

/* ---- collectives ---- */

/* The type of a sum; other calls move bytes. */
static int type_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F64:
        return NCCL_FLOAT64;
    case DTYPE_BF16:
        return NCCL_BFLOAT16;
    default:
        return NCCL_FLOAT32;
    }
}

static void *stream_of(const struct comm_nccl *state)
{
    return dev_stream_handle(state->root->stream);
}

static void count_sent(struct comm_ctx *ctx, int64_t bytes)
{
    atomic_fetch_add_explicit(&ctx->bytes_sent, bytes, memory_order_relaxed);
}

/* Bytes that a ring sends in each of its two halves: (n-1)/n of the buffer. */
static int64_t ring_bytes(const struct comm_ctx *ctx, const struct comm_call *call)
{
    int64_t n = ctx->config.place.ranks;
    return transport_bytes(call) / n * (n - 1);
}

static enum status all_reduce(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nccl *state = ctx->state;
    if (call->elems == 0)
        return ST_OK;
    TRY(begin(ctx, call));
    count_sent(ctx, 2 * ring_bytes(ctx, call));
    return complete(ctx, lib(state)->ncclAllReduce(call->in, call->out, (size_t)call->elems,
                                                   type_of(call->dtype), NCCL_SUM, state->comm,
                                                   stream_of(state)));
}

static bool is_even(const struct comm_ctx *ctx, const struct comm_call *call)
{
    return call->elems % ((int64_t)ctx->config.place.ranks * PART_ALIGN) == 0;
}

/* An NCCL group of one call for each rank, made by `one`. The first refused call ends it. */
static enum status grouped(struct comm_ctx *ctx, const struct comm_call *call,
                           int (*one)(const struct comm_ctx *ctx, const struct comm_call *call,
                                      int rank))
{
    const struct comm_nccl *state = ctx->state;
    int result = lib(state)->ncclGroupStart(), refused = NCCL_SUCCESS;
    if (result != NCCL_SUCCESS)
        return finish(ctx, fail(ctx, result));
    for (int rank = 0; rank < ctx->config.place.ranks && refused == NCCL_SUCCESS; rank++) {
        result = one(ctx, call, rank);
        refused = result == NCCL_IN_PROGRESS ? NCCL_SUCCESS : result;
    }
    result = lib(state)->ncclGroupEnd();
    return refused != NCCL_SUCCESS ? finish(ctx, fail(ctx, refused)) : complete(ctx, result);
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
                                  rank, state->comm, stream_of(state));
}

static enum status reduce_scatter(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nccl *state = ctx->state;
    if (call->elems == 0)
        return ST_OK;
    TRY(begin(ctx, call));
    count_sent(ctx, ring_bytes(ctx, call));
    if (!is_even(ctx, call))
        return grouped(ctx, call, reduce_part);
    return complete(ctx, lib(state)->ncclReduceScatter(
                             call->in, call->out, (size_t)(call->elems / ctx->config.place.ranks),
                             type_of(call->dtype), NCCL_SUM, state->comm, stream_of(state)));
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
                                     stream_of(state));
}

static enum status all_gather(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nccl *state = ctx->state;
    if (call->elems == 0)
        return ST_OK;
    TRY(begin(ctx, call));
    count_sent(ctx, ring_bytes(ctx, call));
    if (!is_even(ctx, call))
        return grouped(ctx, call, broadcast_part);
    int64_t bytes = transport_bytes(call);
    return complete(ctx, lib(state)->ncclAllGather(call->in, call->out,
                                                   (size_t)(bytes / ctx->config.place.ranks),
                                                   NCCL_UINT8, state->comm, stream_of(state)));
}

static int exchange_part(const struct comm_ctx *ctx, const struct comm_call *call, int rank)
{
    const struct comm_nccl *state = ctx->state;
    const int64_t bytes = transport_bytes(call);
    int result = lib(state)->ncclSend((const char *)call->in + rank * bytes, (size_t)bytes,
                                      NCCL_UINT8, rank, state->comm, stream_of(state));
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        return result;
    return lib(state)->ncclRecv((char *)call->out + rank * bytes, (size_t)bytes, NCCL_UINT8, rank,
                                state->comm, stream_of(state));
}

static enum status all_to_all(struct comm_ctx *ctx, const struct comm_call *call)
{
    if (call->elems == 0)
        return ST_OK;
    TRY(begin(ctx, call));
    count_sent(ctx, transport_bytes(call) * (ctx->config.place.ranks - 1));
    return grouped(ctx, call, exchange_part);
}

static enum status broadcast(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nccl *state = ctx->state;
    const int64_t bytes = transport_bytes(call);
    if (bytes == 0)
        return ST_OK;
    TRY(begin(ctx, call));
    count_sent(ctx, call->peer == ctx->config.place.rank ? bytes : 0);
    return complete(ctx, lib(state)->ncclBroadcast(call->out, call->out, (size_t)bytes, NCCL_UINT8,
                                                   call->peer, state->comm, stream_of(state)));
}

static enum status send_to(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nccl *state = ctx->state;
    const int64_t bytes = transport_bytes(call);
    if (bytes == 0)
        return ST_OK;
    TRY(begin(ctx, call));
    count_sent(ctx, bytes);
    return complete(ctx, lib(state)->ncclSend(call->in, (size_t)bytes, NCCL_UINT8, call->peer,
                                              state->comm, stream_of(state)));
}

static enum status recv_from(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nccl *state = ctx->state;
    const int64_t bytes = transport_bytes(call);
    if (bytes == 0)
        return ST_OK;
    TRY(begin(ctx, call));
    return complete(ctx, lib(state)->ncclRecv(call->out, (size_t)bytes, NCCL_UINT8, call->peer,
                                              state->comm, stream_of(state)));
}

static enum status barrier(struct comm_ctx *ctx, const struct comm_call *call)
{
    const struct comm_nccl *state = ctx->state;
    (void)call;
    return complete(ctx, lib(state)->ncclAllReduce(state->root->scratch, state->root->scratch, 1,
                                                   NCCL_FLOAT32, NCCL_SUM, state->comm,
                                                   stream_of(state)));
}

/* ---- split ---- */

/* The first member makes an id and sends it to each other member through the parent. Ranks outside
 * the split do not take part. */
static enum status share_id(struct comm_ctx *ctx, struct nccl_id *id)
{
    struct comm_ctx *up = ctx->parent;
    const struct comm_nccl *state = ctx->state, *above = up->state;
    struct stream *s = state->root->stream;
    void *scratch = state->root->scratch;
    int result;
    if (ctx->config.place.rank > 0) {
        result = lib(above)->ncclRecv(scratch, sizeof *id, NCCL_UINT8, ctx->ranks[0], above->comm,
                                      stream_of(above));
        TRY(complete(up, result));
        TRY(dev_copy(s, id, scratch, sizeof *id));
        return dev_sync(s);
    }
    result = lib(state)->ncclGetUniqueId(id);
    if (result != NCCL_SUCCESS)
        return nccl_lib_fail(lib(state), NULL, result, "a new unique id");
    TRY(dev_copy(s, scratch, id, sizeof *id));
    TRY(dev_sync(s));
    for (int i = 1; i < ctx->config.place.ranks; i++) {
        result = lib(above)->ncclSend(scratch, sizeof *id, NCCL_UINT8, ctx->ranks[i], above->comm,
                                      stream_of(above));
        TRY(complete(up, result));
    }
    return ST_OK;
}

static enum status split(struct comm_ctx *ctx)
{
    const struct comm_nccl *parent = ctx->parent->state;
    struct comm_nccl *state = calloc(1, sizeof *state);
    struct nccl_id id;
    if (state == NULL)
        return FAIL(ST_RETRY, "out of memory: a comm over NCCL");
    state->root = parent->root;
    ctx->state = state;
    ctx->parent->call = ctx->call; /* its deadline applies */
    enum status st = share_id(ctx, &id);
    ctx->parent->call = NULL;
    TRY(st);
    return init(ctx, &id);
}

const struct transport_ops comm_nccl_ops = {
    .kind = COMM_KIND_NCCL,
    .name = "nccl",
    .is_on_device = true,
    .begin_open = begin_open,
    .end_open = end_open,
    .close = ctx_close,
    .describe = describe,
    .split = split,
    .entered = entered,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .all_to_all = all_to_all,
    .broadcast = broadcast,
    .send = send_to,
    .recv = recv_from,
    .barrier = barrier,
};
