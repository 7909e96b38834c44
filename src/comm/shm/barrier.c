/* shm_barrier — barriers, waiting, and messages between two ranks. Must not know the meaning of the
 * data.
 *
 * A wait polls for a moment if each rank has a core. Then it yields the core between polls. Then it
 * sleeps in a futex on the word that must change. No wake-up is lost: the owner writes the word and
 * then reads the number of sleepers; a sleeper raises that number and then reads the word. All four
 * accesses are sequentially consistent, so one of the two sees the other. A sleep is still short,
 * because the abort flag and the deadline must be checked. */
#include "comm/shm/barrier.h"

#include <sched.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

#define SPIN_POLLS 64  /* polls before the first yield */
#define SPIN_NS 100000 /* ns until it sleeps, if each rank has a core */
#define YIELD_NS 50000 /* the same, if ranks share cores */
#define SLEEP_MS 10
#define MIGRATE_NS 2000000 /* least ns between two migrations of one rank */

static int64_t chunk_bytes(int n)
{
    return n <= SHM_BARRIER_FEW_RANKS ? SHM_BARRIER_CHANNEL_BYTES_FEW : SHM_BARRIER_CHANNEL_BYTES;
}

static int64_t block_bytes(int n)
{
    return (int64_t)sizeof(struct shm_barrier_peer_ctl) * n +
           ((int64_t)sizeof(struct shm_barrier_channel) + 2 * chunk_bytes(n)) * n * n +
           (int64_t)SHM_BARRIER_BOUNCE_BYTES * 2 * n;
}

int64_t shm_barrier_bytes(int n)
{
    int few = n < SHM_BARRIER_FEW_RANKS ? n : SHM_BARRIER_FEW_RANKS;
    return block_bytes(n) > block_bytes(few) ? block_bytes(n) : block_bytes(few);
}

void shm_barrier_init(struct shm_barrier *barrier, void *memory, int n, int rank)
{
    ASSERTF(n >= 1 && n <= SHM_BARRIER_RANKS_MAX && rank >= 0 && rank < n, "rank %d of %d", rank,
            n);
    struct shm_barrier_peer_ctl *peers = memory;
    struct shm_barrier_channel *channels = (struct shm_barrier_channel *)(void *)(peers + n);
    char *chunks = (char *)(channels + n * n);
    *barrier = (struct shm_barrier){.peers = peers,
                                    .channels = channels,
                                    .chunks = chunks,
                                    .chunk_bytes = chunk_bytes(n),
                                    .bounces = chunks + 2 * chunk_bytes(n) * n * n,
                                    .limit = UINTPTR_MAX,
                                    .n = n,
                                    .rank = rank};
}

/* Returns the offset of a buffer; 0: other ranks cannot see it. An empty buffer has an offset that
 * is not 0. */
static uint64_t offset_of(const struct shm_barrier *barrier, const void *data, int64_t bytes)
{
    uintptr_t at = (uintptr_t)data;
    if (bytes == 0)
        return 1;
    if (data == NULL || at <= barrier->base || at >= barrier->limit ||
        (uint64_t)bytes > barrier->limit - at)
        return 0;
    return at - barrier->base;
}

static bool has_reached(_Atomic uint32_t *word, uint32_t target, memory_order order)
{
    return (int32_t)(atomic_load_explicit(word, order) - target) >= 0;
}

static void publish_word(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers)
{
    atomic_store_explicit(word, value, memory_order_seq_cst);
    if (atomic_load_explicit(sleepers, memory_order_seq_cst) != 0)
        transport_futex_wake(word);
}

const struct shm_barrier_descriptor *shm_barrier_descriptor(const struct shm_barrier *barrier,
                                                            int r)
{
    return &barrier->peers[r].entries[barrier->phase & 1].descriptor;
}
char *shm_barrier_eager_slot(const struct shm_barrier *barrier, int r)
{
    struct shm_barrier_peer_ctl *peer_ctl = &barrier->peers[r];
    const uint32_t i = barrier->phase & 1;
    return barrier->is_inline ? peer_ctl->entries[i].content : peer_ctl->eager_slot[i];
}
char *shm_barrier_bounce(const struct shm_barrier *barrier, int r, int64_t round)
{
    return barrier->bounces + (2 * r + (round & 1)) * (int64_t)SHM_BARRIER_BOUNCE_BYTES;
}

enum transport_entered shm_barrier_entered(const struct shm_barrier *barrier,
                                           const struct comm_call *call, int r)
{
    bool has_entered;
    if (call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV)
        return TRANSPORT_ENTERED_NO; /* this rank waits, so the peer has not */
    if (call->kind == COMM_CALL_OPEN || call->kind == COMM_CALL_SPLIT)
        has_entered =
            atomic_load_explicit(&barrier->peers[r].tag, memory_order_acquire) == barrier->tag;
    else
        has_entered = has_reached(&barrier->peers[r].entries[barrier->entry & 1].arrived,
                                  barrier->entry, memory_order_acquire);
    return has_entered ? TRANSPORT_ENTERED_YES : TRANSPORT_ENTERED_NO;
}

/* Fails because rank r has failed. If the ranks are in different calls, this rank reports that too;
 * else it reports the missing ranks. */
static enum status fail_as_peer(struct shm_barrier *barrier, struct comm_ctx *ctx, int r)
{
    const struct comm_call *call = ctx->call;
    bool is_pair = call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV;
    for (int other = 0; other < barrier->n && !is_pair && barrier->phase == barrier->entry; other++)
        if (other != barrier->rank &&
            shm_barrier_entered(barrier, call, other) == TRANSPORT_ENTERED_YES)
            TRY(transport_check_header(ctx, other,
                                       &shm_barrier_descriptor(barrier, other)->header));
    return transport_fail_abandoned(ctx, r);
}

static enum status check_peers(struct shm_barrier *barrier, struct comm_ctx *ctx)
{
    for (int r = 0; r < barrier->n; r++)
        if (atomic_load_explicit(&barrier->peers[r].failed, memory_order_acquire) != 0)
            return fail_as_peer(barrier, ctx, r);
    return transport_check(ctx);
}

/* Moves this rank to another core if it shares one with the rank that it waits for. The kernel may
 * keep both on one core while another is free, because neither waits for long. The rank with the
 * greater number moves: it excludes the core from its affinity for a moment, then restores the
 * affinity. */
static void migrate_if_shared(struct shm_barrier *barrier)
{
    int cpu = sched_getcpu();
    int64_t now = clock_ns();
    cpu_set_t all, others;
    if (barrier->rank < barrier->awaited || now - barrier->migrated_ns < MIGRATE_NS || cpu < 0 ||
        cpu >= CPU_SETSIZE ||
        atomic_load_explicit(&barrier->peers[barrier->awaited].cpu, memory_order_relaxed) != cpu ||
        sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    barrier->migrated_ns = now;
    others = all;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0)
        sched_setaffinity(0, sizeof(all), &all);
}

/* Waits with yields between polls. Yielding costs little if no other thread needs the core, and
 * saves much if the awaited rank does: two ranks that spin on one core would each wait for the
 * other's whole time slice. */
static enum status wait_yielding(struct shm_barrier *barrier, struct comm_ctx *ctx,
                                 _Atomic uint32_t *word, uint32_t target,
                                 _Atomic uint32_t *sleepers)
{
    int64_t end = clock_ns() + (ctx->wait_policy == WAIT_POLICY_SPIN ? SPIN_NS : YIELD_NS);
    if (ctx->wait_policy == WAIT_POLICY_SPIN)
        migrate_if_shared(barrier);
    while (!has_reached(word, target, memory_order_acquire) && clock_ns() < end)
        sched_yield();
    while (!has_reached(word, target, memory_order_acquire)) {
        TRY(check_peers(barrier, ctx));
        atomic_fetch_add_explicit(sleepers, 1, memory_order_seq_cst);
        uint32_t seen = atomic_load_explicit(word, memory_order_seq_cst);
        if ((int32_t)(seen - target) < 0)
            transport_futex_wait(word, seen, SLEEP_MS);
        atomic_fetch_sub_explicit(sleepers, 1, memory_order_seq_cst);
    }
    return ST_OK;
}

static enum status wait_for(struct shm_barrier *barrier, struct comm_ctx *ctx,
                            _Atomic uint32_t *word, uint32_t target, _Atomic uint32_t *sleepers)
{
    for (int i = 0; i < (ctx->wait_policy == WAIT_POLICY_SPIN ? SPIN_POLLS : 1); i++) {
        if (has_reached(word, target, memory_order_acquire))
            return ST_OK;
        transport_pause();
    }
    return wait_yielding(barrier, ctx, word, target, sleepers);
}

/* A word has one writer in a generation: each rank resets the words that it writes. */
enum status shm_barrier_join(struct shm_barrier *barrier, struct comm_ctx *ctx, uint64_t tag)
{
    struct shm_barrier_peer_ctl *mine = &barrier->peers[barrier->rank];
    barrier->tag = tag;
    atomic_store_explicit(&mine->entries[0].arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&mine->entries[1].arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&mine->sleepers, 0, memory_order_relaxed);
    atomic_store_explicit(&mine->reads, 0, memory_order_relaxed);
    atomic_store_explicit(&mine->failed, 0, memory_order_relaxed);
    for (int r = 0; r < barrier->n; r++) {
        struct shm_barrier_channel *out = &barrier->channels[barrier->rank * barrier->n + r],
                                   *in = &barrier->channels[r * barrier->n + barrier->rank];
        atomic_store_explicit(&out->posted, 0, memory_order_relaxed);
        atomic_store_explicit(&out->posted_sleepers, 0, memory_order_relaxed);
        atomic_store_explicit(&in->consumed, 0, memory_order_relaxed);
        atomic_store_explicit(&in->consumed_sleepers, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&mine->tag, tag, memory_order_release);
    for (int r = 0; r < barrier->n; r++)
        while (atomic_load_explicit(&barrier->peers[r].tag, memory_order_acquire) != tag) {
            TRY(transport_check(ctx));
            clock_sleep_ms(1);
        }
    return ST_OK;
}

static enum status arrive_and_wait(struct shm_barrier *barrier, struct comm_ctx *ctx, bool compares)
{
    struct shm_barrier_peer_ctl *mine = &barrier->peers[barrier->rank];
    if (ctx->wait_policy == WAIT_POLICY_SPIN)
        atomic_store_explicit(&mine->cpu, sched_getcpu(), memory_order_relaxed);
    publish_word(&mine->entries[barrier->phase & 1].arrived, barrier->phase, &mine->sleepers);
    for (int i = 1; i < barrier->n; i++) {
        int r = (barrier->rank + i) % barrier->n; /* not all ranks poll the same line first */
        struct shm_barrier_peer_ctl *peer_ctl = &barrier->peers[r];
        barrier->awaited = r;
        TRY(wait_for(barrier, ctx, &peer_ctl->entries[barrier->phase & 1].arrived, barrier->phase,
                     &peer_ctl->sleepers));
        if (compares)
            TRY(transport_check_header(ctx, r, &shm_barrier_descriptor(barrier, r)->header));
    }
    return ST_OK;
}

enum status shm_barrier_enter(struct shm_barrier *barrier, struct comm_ctx *ctx, const void *in,
                              int64_t in_bytes, void *out, int64_t out_bytes, int64_t eager_bytes)
{
    barrier->entry = ++barrier->phase;
    /* decided by the call's size, since a rank's own part may differ in length from another
     * rank's */
    barrier->is_inline = ctx->call->kind == COMM_CALL_ALL_REDUCE &&
                         transport_bytes(ctx->call) <= SHM_BARRIER_INLINE_BYTES;
    barrier->peers[barrier->rank].entries[barrier->phase & 1].descriptor =
        (struct shm_barrier_descriptor){.header = transport_header(ctx->call),
                                        .in = offset_of(barrier, in, in_bytes),
                                        .out = offset_of(barrier, out, out_bytes)};
    ASSERTF(eager_bytes >= 0 && eager_bytes <= (barrier->is_inline ? SHM_BARRIER_INLINE_BYTES
                                                                   : SHM_BARRIER_EAGER_BYTES),
            "%lld bytes", (long long)eager_bytes);
    if (eager_bytes > 0)
        memcpy(shm_barrier_eager_slot(barrier, barrier->rank), in, (size_t)eager_bytes);
    return arrive_and_wait(barrier, ctx, true);
}

enum status shm_barrier_wait(struct shm_barrier *barrier, struct comm_ctx *ctx)
{
    barrier->phase++;
    return arrive_and_wait(barrier, ctx, false);
}

enum status shm_barrier_read_begin(struct shm_barrier *barrier, struct comm_ctx *ctx)
{
    atomic_store_explicit(&barrier->peers[barrier->rank].reads, 1, memory_order_seq_cst);
    for (int r = 0; r < barrier->n; r++)
        if (atomic_load_explicit(&barrier->peers[r].failed, memory_order_seq_cst) != 0) {
            shm_barrier_read_end(barrier);
            return fail_as_peer(barrier, ctx, r);
        }
    return ST_OK;
}

void shm_barrier_read_end(struct shm_barrier *barrier)
{
    atomic_store_explicit(&barrier->peers[barrier->rank].reads, 0, memory_order_release);
}

enum status shm_barrier_fail(struct shm_barrier *barrier, enum status st)
{
    atomic_store_explicit(&barrier->peers[barrier->rank].failed, 1, memory_order_seq_cst);
    atomic_store_explicit(&barrier->peers[barrier->rank].reads, 0, memory_order_release);
    /* Readers do not block, so this ends soon. The limit is for a reader in a killed
     * process. */
    for (int64_t end = clock_ns() + 2000000000, r = 0; r < barrier->n && clock_ns() < end;) {
        if (atomic_load_explicit(&barrier->peers[r].reads, memory_order_seq_cst) == 0)
            r++;
        else
            clock_sleep_ms(1);
    }
    return st;
}

static struct shm_barrier_channel *channel_of(const struct shm_barrier *barrier, int from, int to)
{
    return &barrier->channels[from * barrier->n + to];
}

static char *chunk_of(const struct shm_barrier *barrier, int from, int to, uint32_t number)
{
    int64_t channel = (int64_t)from * barrier->n + to;
    return barrier->chunks + (2 * channel + (number & 1)) * barrier->chunk_bytes;
}

static int64_t chunk_from(const struct shm_barrier *barrier, int64_t at, int64_t bytes)
{
    return bytes - at < barrier->chunk_bytes ? bytes - at : barrier->chunk_bytes;
}

/* Sends a message in chunks through the channel, two in progress. For a large message that the peer
 * can see, only the offset is sent. */
enum status shm_barrier_send(struct shm_barrier *barrier, struct comm_ctx *ctx,
                             const struct comm_call *call)
{
    struct shm_barrier_channel *channel = channel_of(barrier, barrier->rank, call->peer);
    ASSERTF(call->peer >= 0 && call->peer < barrier->n && call->peer != barrier->rank,
            "to %d of %d", call->peer, barrier->n);
    barrier->awaited = call->peer;
    int64_t bytes = transport_bytes(call), at = 0;
    uint64_t where = bytes > barrier->chunk_bytes ? offset_of(barrier, call->in, bytes) : 0;
    do {
        uint32_t posted = atomic_load_explicit(&channel->posted, memory_order_relaxed) + 1;
        TRY(wait_for(barrier, ctx, &channel->consumed, posted - 2, &channel->consumed_sleepers));
        int64_t chunk = chunk_from(barrier, at, bytes);
        channel->descriptor[posted & 1] =
            (struct shm_barrier_descriptor){.header = transport_header(call), .in = where};
        if (where == 0 && chunk > 0)
            memcpy(chunk_of(barrier, barrier->rank, call->peer, posted),
                   (const char *)call->in + at, (size_t)chunk);
        publish_word(&channel->posted, posted, &channel->posted_sleepers);
        if (where != 0)
            return wait_for(barrier, ctx, &channel->consumed, posted, &channel->consumed_sleepers);
        at += chunk;
    } while (at < bytes);
    return ST_OK;
}

enum status shm_barrier_recv(struct shm_barrier *barrier, struct comm_ctx *ctx,
                             const struct comm_call *call)
{
    struct shm_barrier_channel *channel = channel_of(barrier, call->peer, barrier->rank);
    barrier->awaited = call->peer;
    int64_t bytes = transport_bytes(call), at = 0;
    do {
        uint32_t consumed = atomic_load_explicit(&channel->consumed, memory_order_relaxed) + 1;
        TRY(wait_for(barrier, ctx, &channel->posted, consumed, &channel->posted_sleepers));
        const struct shm_barrier_descriptor *descriptor = &channel->descriptor[consumed & 1];
        TRY(transport_check_header(ctx, call->peer, &descriptor->header));
        int64_t chunk = chunk_from(barrier, at, bytes);
        if (descriptor->in != 0) {
            TRY(shm_barrier_read_begin(barrier, ctx));
            memcpy(call->out, shm_barrier_at(barrier, descriptor->in), (size_t)bytes);
            shm_barrier_read_end(barrier);
            chunk = bytes;
        } else if (chunk > 0) {
            memcpy((char *)call->out + at, chunk_of(barrier, call->peer, barrier->rank, consumed),
                   (size_t)chunk);
        }
        publish_word(&channel->consumed, consumed, &channel->consumed_sleepers);
        at += chunk;
    } while (at < bytes);
    return ST_OK;
}
