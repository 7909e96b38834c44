/* shm_barrier — the control block of ranks that share memory: barriers, descriptors, eager slots,
 * message channels. Must not know the meaning of the data.
 *
 * The block holds one peer_ctl for each rank. A barrier is a phase. In phase p each rank
 *   1. writes its descriptor: its call, and the offsets of its buffers. The content of a small
 *      buffer goes into its eager slot, and content of a few bytes next to the descriptor;
 *   2. sets its `arrived` counter to p;
 *   3. waits until every rank's counter has reached p.
 * The counter that a waiting rank polls and the descriptor that it reads then share one cache line,
 * because each further line costs as much as the rest of a short call. Entries (descriptor and
 * counter), eager slots and bounce buffers exist twice and alternate by phase. A rank that
 * overwrites its values of phase p in phase p+2 has seen all ranks arrive at p+1, so no rank still
 * reads them.
 *
 * The block holds no addresses, so processes may map it at different addresses. A buffer is
 * identified by its offset from a base address; 0: other ranks cannot see it.
 *
 * A rank whose call fails sets its `failed` flag. It then waits until no rank is reading buffers,
 * because its own may be freed once the call has returned. */
#ifndef CONVOY_COMM_SHM_BARRIER_H
#define CONVOY_COMM_SHM_BARRIER_H

#include "comm/core/transport.h"

#define SHM_BARRIER_EAGER_BYTES 8192 /* content of a small call: it needs only one barrier */
#define SHM_BARRIER_INLINE_BYTES 16  /* most bytes of an all_reduce next to its descriptor */
/* Bytes of one chunk of a message between two ranks, for at most SHM_BARRIER_FEW_RANKS ranks and
 * for more. Two chunks are in progress, so a message of twice that size is sent without waiting for
 * its receiver. With 16 KiB, two threads alternated 48 times for 768 KiB while the
 * other cores were busy. Many ranks have many channels. */
#define SHM_BARRIER_FEW_RANKS 4
#define SHM_BARRIER_CHANNEL_BYTES_FEW 262144
#define SHM_BARRIER_CHANNEL_BYTES 16384
/* bytes of one round of a call whose buffers other ranks cannot see */
#define SHM_BARRIER_BOUNCE_BYTES 262144
#define SHM_BARRIER_RANKS_MAX 256

struct shm_barrier_descriptor {
    struct comm_header header;
    uint64_t in, out; /* offsets of the buffers; 0: none, or not visible */
};

/* The values that a rank publishes in the phases of even, or of odd numbers. */
struct shm_barrier_entry {
    _Alignas(64) struct shm_barrier_descriptor descriptor;
    _Atomic uint32_t arrived; /* the last of these phases that this rank has reached */
    _Alignas(16) char content[SHM_BARRIER_INLINE_BYTES];
};
_Static_assert(sizeof(struct shm_barrier_entry) == 64, "one cache line");

struct shm_barrier_peer_ctl {
    struct shm_barrier_entry entries[2];
    _Alignas(64) _Atomic uint32_t sleepers; /* threads that sleep on an `arrived` */
    _Atomic uint32_t reads;  /* 1: this rank is reading or writing other ranks' buffers */
    _Atomic uint32_t failed; /* 1: this rank's call has failed */
    _Atomic int32_t cpu;     /* the core it arrived on */
    _Atomic uint64_t tag;    /* the generation that this rank has joined; see shm_barrier_join */
    _Alignas(64) char eager_slot[2][SHM_BARRIER_EAGER_BYTES];
};

/* Messages from one rank to one other: numbers of posted and of received chunks. */
struct shm_barrier_channel {
    _Alignas(64) _Atomic uint32_t posted, posted_sleepers;
    _Alignas(64) _Atomic uint32_t consumed, consumed_sleepers;
    _Alignas(64) struct shm_barrier_descriptor descriptor[2];
};

/* One rank's view of the block. */
struct shm_barrier {
    struct shm_barrier_peer_ctl *peers;   /* n */
    struct shm_barrier_channel *channels; /* n × n: [from · n + to] */
    char *chunks;                         /* n × n × 2 of chunk_bytes */
    int64_t chunk_bytes;
    char *bounces;         /* n × 2 of SHM_BARRIER_BOUNCE_BYTES */
    uintptr_t base, limit; /* other ranks see [base, limit); 0, UINTPTR_MAX: all memory */
    int n, rank;
    uint32_t phase; /* phase that this rank is in */
    uint32_t entry; /* the phase in which the call in progress was entered */
    bool is_inline; /* the call's content is next to the descriptors; the same on all ranks */
    uint64_t tag;   /* 0: the memory was new, so there is nothing to join */
    int awaited;    /* the rank that this one waits for */
    int64_t migrated_ns;
};

/* shm_barrier_bytes — returns the size of the block for n ranks, or for fewer: zeroed and
 * 64-aligned memory. */
int64_t shm_barrier_bytes(int n);
/* shm_barrier_init — initializes this rank's view of it. */
void shm_barrier_init(struct shm_barrier *barrier, void *memory, int n, int rank);

/* shm_barrier_join — reuses a block of an earlier generation: resets the words that this rank
 * writes, then waits until every rank has done so with the same tag. tag: not 0, never used in this
 * block. */
enum status shm_barrier_join(struct shm_barrier *barrier, struct comm_ctx *ctx, uint64_t tag);

/* shm_barrier_at — returns the address in this process of an offset from a descriptor. */
static inline void *shm_barrier_at(const struct shm_barrier *barrier, uint64_t where)
{
    return (void *)(barrier->base + where);
}

/* shm_barrier_enter — runs the first barrier of a call. Publishes in and out (NULL: none) and, if
 * eager_bytes > 0, the content of `in`. Waits for all ranks; ST_BUG if one is in another call. */
enum status shm_barrier_enter(struct shm_barrier *barrier, struct comm_ctx *ctx, const void *in,
                              int64_t in_bytes, void *out, int64_t out_bytes, int64_t eager_bytes);
/* shm_barrier_wait — runs a later barrier of the same call. */
enum status shm_barrier_wait(struct shm_barrier *barrier, struct comm_ctx *ctx);

/* shm_barrier_descriptor — returns the descriptor that rank r published at the last barrier. */
const struct shm_barrier_descriptor *shm_barrier_descriptor(const struct shm_barrier *barrier,
                                                            int r);
/* shm_barrier_eager_slot — returns the content that rank r published at the last barrier. */
char *shm_barrier_eager_slot(const struct shm_barrier *barrier, int r);
/* shm_barrier_bounce — returns rank r's bounce buffer for a round. */
char *shm_barrier_bounce(const struct shm_barrier *barrier, int r, int64_t round);
/* shm_barrier_entered — returns whether rank r has entered the call. See transport_ops.entered. */
enum transport_entered shm_barrier_entered(const struct shm_barrier *barrier,
                                           const struct comm_call *call, int r);

/* shm_barrier_read_begin — begins an access to other ranks' buffers; do not wait during it. Fails,
 * without an access, if the call of another rank has failed. */
enum status shm_barrier_read_begin(struct shm_barrier *barrier, struct comm_ctx *ctx);
/* shm_barrier_read_end — ends the access. */
void shm_barrier_read_end(struct shm_barrier *barrier);
/* shm_barrier_fail — fails this rank's call with st: sets the flag, waits for readers (2 s at
 * most), returns st. */
enum status shm_barrier_fail(struct shm_barrier *barrier, enum status st);

/* shm_barrier_send — sends a message through the channel of two ranks. If it is large and the
 * receiver can see it, the receiver reads it in place instead. */
enum status shm_barrier_send(struct shm_barrier *barrier, struct comm_ctx *ctx,
                             const struct comm_call *call);
/* shm_barrier_recv — receives such a message into call->out. */
enum status shm_barrier_recv(struct shm_barrier *barrier, struct comm_ctx *ctx,
                             const struct comm_call *call);

#endif
