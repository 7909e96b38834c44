/* comm_ops — what every transport does the same way: giving up in time and saying on whom it
 * waited, telling calls apart, sleeping. Must not know how a transport moves anything. */
#include "comm/comm_ops.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/must.h"
#include "base/text.h"
#include "comm/comm_share.h"

#define NAMED_MAX 8 /* ranks named in one sentence */
#define MAP_ALIGN ((int64_t)2 << 20)

const char *comm_ops_call(enum comm_call_kind kind)
{
    static const char *const name[COMM_CALL_N] = {
        "",           "open",       "alloc",     "sub",  "all_reduce", "reduce_scatter",
        "all_gather", "all_to_all", "broadcast", "send", "recv",       "barrier",
    };
    return (unsigned)kind < COMM_CALL_N ? name[kind] : "an unknown call";
}

const struct comm_ops *comm_ops_find(enum comm_kind kind, const struct comm_place *place)
{
    switch (kind) {
    case COMM_KIND_SELF:
        return &comm_self_ops;
    case COMM_KIND_MEM:
        return &comm_mem_ops;
    case COMM_KIND_UCX:
        return place->nodes == 1 ? &comm_share_ops : &comm_ucx_ops;
    case COMM_KIND_NCCL:
        return &comm_nccl_ops;
    case COMM_KIND_AUTO:
        return &comm_auto_ops;
    }
    return NULL;
}

enum status comm_ops_work(struct comm_wire *wire, const struct comm_call *call)
{
    const struct comm_ops *ops = wire->ops;
    switch (call->kind) {
    case COMM_CALL_ALL_REDUCE:
        return ops->all_reduce(wire, call);
    case COMM_CALL_REDUCE_SCATTER:
        return ops->reduce_scatter(wire, call);
    case COMM_CALL_ALL_GATHER:
        return ops->all_gather(wire, call);
    case COMM_CALL_ALL_TO_ALL:
        return ops->all_to_all(wire, call);
    case COMM_CALL_BROADCAST:
        return ops->broadcast(wire, call);
    case COMM_CALL_SEND:
        return ops->send(wire, call);
    case COMM_CALL_RECV:
        return ops->recv(wire, call);
    case COMM_CALL_BARRIER:
        return ops->barrier(wire, call);
    case COMM_CALL_SUB:
        return ops->sub(wire);
    default:
        break;
    }
    ASSERTF(false, "call %d", (int)call->kind);
    return ST_BUG;
}

int comm_ops_rank(const struct comm_wire *wire, int rank)
{
    for (; wire->parent != NULL; wire = wire->parent)
        rank = wire->ranks[rank];
    return rank;
}

static bool is_pair(const struct comm_call *call)
{
    return call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV;
}

/* Does this call need that rank? */
static bool is_awaited(const struct comm_wire *wire, int rank)
{
    const struct comm_call *call = wire->call;
    if (rank == wire->config.place.rank)
        return false;
    return !is_pair(call) || rank == call->peer;
}

/* "rank 1 has not entered", "ranks 1, 3 and 12 more have not entered"; nothing when nobody is known
 * to be missing. */
static void name_missing(const struct comm_wire *wire, struct text *out)
{
    int missing[NAMED_MAX], missing_n = 0;
    for (int rank = 0; rank < wire->config.place.ranks && wire->ops->entered != NULL; rank++) {
        if (!is_awaited(wire, rank) || wire->ops->entered(wire, rank) != 0)
            continue;
        if (missing_n < NAMED_MAX)
            missing[missing_n] = comm_ops_rank(wire, rank);
        missing_n++;
    }
    for (int i = 0; i < missing_n && i < NAMED_MAX; i++)
        text_add(out, "%s%d", i > 0 ? ", " : missing_n > 1 ? "ranks " : "rank ", missing[i]);
    if (missing_n > NAMED_MAX)
        text_add(out, " and %d more", missing_n - NAMED_MAX);
    if (missing_n > 0)
        text_add(out, "%s not %s", missing_n > 1 ? " have" : " has",
                 is_pair(wire->call) ? "answered" : "entered");
}

static enum status fail_late(const struct comm_wire *wire, double seconds)
{
    const struct comm_call *call = wire->call;
    struct text who = {.limit = 512};
    enum status st;
    name_missing(wire, &who);
    if (who.data != NULL)
        st = FAIL(ST_PEER, "%s %s %lld for %.1f s", who.data, comm_ops_call(call->kind),
                  (long long)call->sequence, seconds);
    else
        st = FAIL(ST_PEER,
                  "%s %lld of %lld elements is not finished after %.1f s, though no rank is known "
                  "to be missing; look at the network and at the other ranks",
                  comm_ops_call(call->kind), (long long)call->sequence, (long long)call->elems,
                  seconds);
    text_free(&who);
    return st;
}

enum status comm_ops_give_up(const struct comm_wire *wire, int by)
{
    const struct comm_call *call = wire->call;
    double seconds = (double)(clock_ns() - call->entered_ns) * 1e-9;
    struct text who = {.limit = 512};
    enum status st;
    name_missing(wire, &who);
    if (who.data != NULL)
        st = FAIL(ST_PEER, "%s %s %lld for %.1f s; rank %d has given it up", who.data,
                  comm_ops_call(call->kind), (long long)call->sequence, seconds,
                  comm_ops_rank(wire, by));
    else
        st = FAIL(ST_PEER, "%s %lld was ended after %.1f s: rank %d has given it up",
                  comm_ops_call(call->kind), (long long)call->sequence, seconds,
                  comm_ops_rank(wire, by));
    text_free(&who);
    return st;
}

enum status comm_ops_check(const struct comm_wire *wire)
{
    const struct comm_call *call = wire->call;
    const struct comm_config *config = &wire->config;
    int64_t waited_ns = clock_ns() - call->entered_ns;
    if (atomic_load_explicit(wire->closing, memory_order_relaxed))
        return FAIL(ST_PEER, "%s %lld was ended after %.1f s: this rank closes its connections",
                    comm_ops_call(call->kind), (long long)call->sequence, (double)waited_ns * 1e-9);
    if (config->is_aborted != NULL && config->is_aborted(config->arg))
        return FAIL(ST_PEER, "%s %lld was ended after %.1f s: the job's generation %lld is aborted",
                    comm_ops_call(call->kind), (long long)call->sequence, (double)waited_ns * 1e-9,
                    (long long)config->generation);
    if (waited_ns / 1000000 >= config->timeout_ms &&
        (config->limit_ms == NULL || waited_ns / 1000000 >= config->limit_ms(config->arg)))
        return fail_late(wire, (double)waited_ns * 1e-9);
    return ST_OK;
}

struct comm_header comm_ops_header(const struct comm_call *call)
{
    return (struct comm_header){.sequence = call->sequence,
                                .elems = call->elems,
                                .peer = call->peer,
                                .kind = (uint16_t)call->kind,
                                .dtype = (uint16_t)call->dtype};
}

enum status comm_ops_agree(const struct comm_wire *wire, int rank, const struct comm_header *theirs)
{
    const struct comm_call *call = wire->call;
    enum comm_call_kind kind = call->kind == COMM_CALL_SEND   ? COMM_CALL_RECV
                               : call->kind == COMM_CALL_RECV ? COMM_CALL_SEND
                                                              : call->kind;
    if (theirs->kind == (uint16_t)kind && theirs->elems == call->elems &&
        theirs->dtype == (uint16_t)call->dtype &&
        (is_pair(call) || (theirs->sequence == call->sequence && theirs->peer == call->peer)))
        return ST_OK;
    return FAIL(
        ST_BUG,
        "ranks are in different calls: rank %d in %s %lld (%lld elements of %d bytes, root %d), "
        "rank %d in %s %lld (%lld elements of %d bytes, root %d); a bug: all ranks must make the "
        "same calls",
        comm_ops_rank(wire, wire->config.place.rank), comm_ops_call(call->kind),
        (long long)call->sequence, (long long)call->elems, (int)dtype_bytes(call->dtype),
        call->peer, comm_ops_rank(wire, rank), comm_ops_call((enum comm_call_kind)theirs->kind),
        (long long)theirs->sequence, (long long)theirs->elems,
        theirs->dtype < DTYPE_N ? (int)dtype_bytes((enum dtype)theirs->dtype) : -1, theirs->peer);
}

/* Not the private kind of futex: the word may be shared by processes. Every reason to wake means:
 * look again. */
void comm_ops_park(_Atomic uint32_t *word, uint32_t seen, int ms)
{
    struct timespec most = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
}

void comm_ops_unpark(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int64_t map_bytes(int64_t bytes) { return (bytes + MAP_ALIGN - 1) / MAP_ALIGN * MAP_ALIGN; }

enum status comm_ops_reserve(int64_t bytes, void **out)
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

enum status comm_ops_map(int64_t bytes, void **out)
{
    TRY(comm_ops_reserve(bytes, out));
    madvise(*out, (size_t)map_bytes(bytes), MADV_HUGEPAGE);
    memset(*out, 0, (size_t)bytes);
    return ST_OK;
}

void comm_ops_unmap(void *data, int64_t bytes)
{
    if (data != NULL)
        munmap(data, (size_t)map_bytes(bytes));
}
