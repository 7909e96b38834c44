/* transport — the functions that all transports share: deadlines and the missing ranks, headers of
 * calls, sleeping, memory; and SELF, the transport of one rank. Must not know how ranks reach each
 * other. */
#include "comm/core/transport.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/shm/shm.h"

#define NAMED_MAX 8 /* most ranks in one message */
#define MAP_ALIGN ((int64_t)2 << 20)

const char *transport_call_name(enum comm_call_kind kind)
{
    static const char *const name[COMM_CALL_N] = {
        "",           "open",       "alloc",     "split", "all_reduce", "reduce_scatter",
        "all_gather", "all_to_all", "broadcast", "send",  "recv",       "barrier",
    };
    return (unsigned)kind < COMM_CALL_N ? name[kind] : "an unknown call";
}

enum status transport_dispatch(struct comm_ctx *ctx, const struct comm_call *call)
{
    ASSERTF(call->kind >= COMM_CALL_SPLIT && call->kind < COMM_CALL_N && ctx->call == call &&
                call->entered_ns > 0,
            "call %d", (int)call->kind);
    return call->kind == COMM_CALL_SPLIT ? ctx->ops->split(ctx) : ctx->ops->run(ctx, call);
}

int transport_root_rank(const struct comm_ctx *ctx, int rank)
{
    for (; ctx->parent != NULL; ctx = ctx->parent)
        rank = ctx->ranks[rank];
    return rank;
}

static bool is_pair(const struct comm_call *call)
{
    return call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV;
}

/* Writes "rank 1 has not entered", or "ranks 1, 3 and 12 more have not entered"; nothing if every
 * rank has entered or may have. */
static void name_missing(const struct comm_ctx *ctx, struct text *out)
{
    int missing[NAMED_MAX], missing_n = 0;
    for (int rank = 0; rank < ctx->config.place.ranks && ctx->ops->entered != NULL; rank++) {
        /* a message needs only its other end */
        if (rank == ctx->config.place.rank || (is_pair(ctx->call) && rank != ctx->call->peer) ||
            ctx->ops->entered(ctx, rank) != TRANSPORT_ENTERED_NO)
            continue;
        if (missing_n < NAMED_MAX)
            missing[missing_n] = transport_root_rank(ctx, rank);
        missing_n++;
    }
    for (int i = 0; i < missing_n && i < NAMED_MAX; i++)
        text_add(out, "%s%d", i > 0 ? ", " : missing_n > 1 ? "ranks " : "rank ", missing[i]);
    if (missing_n > NAMED_MAX)
        text_add(out, " and %d more", missing_n - NAMED_MAX);
    if (missing_n > 0)
        text_add(out, "%s not %s", missing_n > 1 ? " have" : " has",
                 is_pair(ctx->call) ? "answered" : "entered");
}

static enum status fail_late(const struct comm_ctx *ctx, double seconds)
{
    const struct comm_call *call = ctx->call;
    struct text missing = {.limit = 512};
    enum status st;
    name_missing(ctx, &missing);
    if (missing.data != NULL)
        st = FAIL(ST_PEER, "%s %s %lld for %.1f s", missing.data, transport_call_name(call->kind),
                  (long long)call->sequence, seconds);
    else
        st = FAIL(ST_PEER,
                  "%s %lld of %lld elements is not finished after %.1f s, though no rank is known "
                  "to be missing; look at the network and at the other ranks",
                  transport_call_name(call->kind), (long long)call->sequence,
                  (long long)call->elems, seconds);
    text_free(&missing);
    return st;
}

enum status transport_fail_abandoned(const struct comm_ctx *ctx, int by)
{
    const struct comm_call *call = ctx->call;
    double seconds = (double)(clock_ns() - call->entered_ns) * 1e-9;
    struct text missing = {.limit = 512};
    enum status st;
    name_missing(ctx, &missing);
    if (missing.data != NULL)
        st = FAIL(ST_PEER, "%s %s %lld for %.1f s; rank %d abandoned it", missing.data,
                  transport_call_name(call->kind), (long long)call->sequence, seconds,
                  transport_root_rank(ctx, by));
    else
        st = FAIL(ST_PEER, "%s %lld was ended after %.1f s: rank %d abandoned it",
                  transport_call_name(call->kind), (long long)call->sequence, seconds,
                  transport_root_rank(ctx, by));
    text_free(&missing);
    return st;
}

enum status transport_check(const struct comm_ctx *ctx)
{
    const struct comm_call *call = ctx->call;
    const struct comm_config *config = &ctx->config;
    ASSERT(call != NULL);
    int64_t now_ns = clock_ns(), waited_ns = now_ns - call->entered_ns;
    if (ctx->stuck_ns != NULL)
        atomic_store_explicit(ctx->stuck_ns, now_ns, memory_order_relaxed);
    if (atomic_load_explicit(ctx->closing, memory_order_relaxed))
        return FAIL(ST_PEER, "%s %lld was ended after %.1f s: this rank closes its connections",
                    transport_call_name(call->kind), (long long)call->sequence,
                    (double)waited_ns * 1e-9);
    if (config->is_aborted != NULL && config->is_aborted(config->arg))
        return FAIL(ST_PEER, "%s %lld was ended after %.1f s: the job's generation %lld is aborted",
                    transport_call_name(call->kind), (long long)call->sequence,
                    (double)waited_ns * 1e-9, (long long)ctx->generation);
    if (waited_ns / 1000000 >= config->timeout_ms &&
        (config->limit_ms == NULL || waited_ns / 1000000 >= config->limit_ms(config->arg)))
        return fail_late(ctx, (double)waited_ns * 1e-9);
    return ST_OK;
}

enum status transport_watch(struct comm_ctx *ctx)
{
    if (ctx->watch != NULL)
        TRY(ctx->watch(ctx, ctx->watch_arg));
    return transport_check(ctx);
}

struct comm_header transport_header(const struct comm_call *call)
{
    return (struct comm_header){.sequence = call->sequence,
                                .elems = call->elems,
                                .peer = call->peer,
                                .kind = (uint16_t)call->kind,
                                .dtype = (uint16_t)call->dtype};
}

enum status transport_check_header(const struct comm_ctx *ctx, int rank,
                                   const struct comm_header *theirs)
{
    const struct comm_call *call = ctx->call;
    enum comm_call_kind kind = call->kind == COMM_CALL_SEND   ? COMM_CALL_RECV
                               : call->kind == COMM_CALL_RECV ? COMM_CALL_SEND
                                                              : call->kind;
    if (theirs->kind == (uint16_t)kind && theirs->elems == call->elems &&
        theirs->dtype == (uint16_t)call->dtype &&
        (is_pair(call) || (theirs->sequence == call->sequence && theirs->peer == call->peer)))
        return ST_OK;
    return FAIL(ST_BUG,
                "ranks are in different calls: rank %d in %s %lld (%lld elements of %d bytes, root "
                "%d), rank %d in %s %lld (%lld elements of %d bytes, root %d); a bug: all ranks "
                "must make the same calls",
                transport_root_rank(ctx, ctx->config.place.rank), transport_call_name(call->kind),
                (long long)call->sequence, (long long)call->elems, (int)dtype_bytes(call->dtype),
                call->peer, transport_root_rank(ctx, rank),
                transport_call_name((enum comm_call_kind)theirs->kind), (long long)theirs->sequence,
                (long long)theirs->elems,
                theirs->dtype < DTYPE_N ? (int)dtype_bytes((enum dtype)theirs->dtype) : -1,
                theirs->peer);
}

/* Waits on a shared futex, since processes may share the word. The caller checks the word again,
 * whatever ended the wait. */
void transport_futex_wait(_Atomic uint32_t *word, uint32_t seen, int ms)
{
    struct timespec most = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
}

void transport_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- memory ---- */

static int64_t map_bytes(int64_t bytes) { return (bytes + MAP_ALIGN - 1) / MAP_ALIGN * MAP_ALIGN; }

enum status transport_reserve(int64_t bytes, void **out)
{
    size_t size = (size_t)map_bytes(bytes);
    char *raw =
        mmap(NULL, size + MAP_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return FAIL(memory_status(bytes), "out of memory: %lld bytes for communication: %s",
                    (long long)bytes, strerror(errno));
    size_t skip = (MAP_ALIGN - (uintptr_t)raw % MAP_ALIGN) % MAP_ALIGN;
    if (skip > 0)
        munmap(raw, skip);
    munmap(raw + skip + size, MAP_ALIGN - skip);
    *out = raw + skip;
    return ST_OK;
}

enum status transport_map(int64_t bytes, void **out)
{
    TRY(transport_reserve(bytes, out));
    madvise(*out, (size_t)map_bytes(bytes), MADV_HUGEPAGE);
    memset(*out, 0, (size_t)bytes);
    return ST_OK;
}

void transport_unmap(void *data, int64_t bytes)
{
    if (data != NULL)
        munmap(data, (size_t)map_bytes(bytes));
}

/* ---- SELF: one rank, whose buffer is the sum ---- */

static enum status self_begin_open(struct comm_ctx *ctx, void *address, int64_t *address_bytes)
{
    (void)address;
    *address_bytes = 0;
    if (ctx->config.place.ranks != 1)
        return FAIL(ST_BUG, "transport self is for one rank, not %d", ctx->config.place.ranks);
    return ST_OK;
}

static enum status self_end_open(struct comm_ctx *ctx, const void *addresses, const int64_t *bytes)
{
    (void)ctx, (void)addresses, (void)bytes;
    return ST_OK;
}

static enum status self_split(struct comm_ctx *ctx)
{
    (void)ctx;
    return ST_OK;
}

static void self_close(struct comm_ctx *ctx) { (void)ctx; }

static enum status self_run(struct comm_ctx *ctx, const struct comm_call *call)
{
    (void)ctx;
    if (is_pair(call))
        return FAIL(ST_BUG, "%s with rank %d, but there is only one rank",
                    transport_call_name(call->kind), call->peer);
    if (call->out != call->in && call->elems > 0)
        memcpy(call->out, call->in, (size_t)transport_bytes(call));
    return ST_OK;
}

static const struct transport_ops self_ops = {
    .name = "self",
    .begin_open = self_begin_open,
    .end_open = self_end_open,
    .split = self_split,
    .close = self_close,
    .run = self_run,
};

const struct transport_ops *transport_find(enum comm_kind kind, const struct comm_place *place)
{
    switch (kind) {
    case COMM_KIND_SELF:
        return &self_ops;
    case COMM_KIND_THREADS:
        return &shm_threads_ops;
    case COMM_KIND_HOST:
        return place->nodes == 1 ? &comm_shm_ops : &comm_nodes_ops;
    case COMM_KIND_NCCL:
        return &comm_nccl_ops;
    case COMM_KIND_AUTO:
        return &comm_auto_ops;
    }
    return NULL;
}
