/* shm_barrier — ranks that see the same memory meet here: arrivals, what each brings, waiting that
 * parks.
 *
 * Every rank has a seat. A meeting is a phase: each rank writes its card (which call, where its
 * buffers are), raises the number of its arrivals and waits until the others' have reached it.
 * Cards and slots are kept twice, by the parity of the phase: who writes those of phase p+2 has
 * seen everybody arrive at p+1, so nobody still reads those of p. The seats are plain words without
 * addresses, so they may lie in a mapping shared by processes; buffers are named by their distance
 * from a base, 0 meaning "others cannot see it".
 *
 * A rank that fails says so in its seat, then waits until nobody is just reading others' buffers:
 * its own may be freed when the call returns. Must not know what is summed or moved. */
#ifndef CONVOY_COMM_SHM_BARRIER_H
#define CONVOY_COMM_SHM_BARRIER_H

#include "comm/core/transport.h"

#define SHM_BARRIER_EAGER_BYTES \
    8192 /* bytes a rank can bring on its card, so that one meeting does */
#define SHM_BARRIER_CHANNEL_BYTES 16384 /* bytes of a message in one piece from rank to rank */
/* bytes a rank can stage at a time, for who cannot see its buffers */
#define SHM_BARRIER_BOUNCE_BYTES 262144
#define SHM_BARRIER_RANKS_MAX 256

struct shm_barrier_descriptor {
    _Alignas(64) struct comm_header header;
    uint64_t in, out; /* distance of the buffers from the base; 0: none, or not visible */
};

struct shm_barrier_peer_ctl {
    _Alignas(64) _Atomic uint32_t arrived;  /* the phase this rank has reached */
    _Alignas(64) _Atomic uint32_t sleepers; /* on `arrived` */
    _Atomic uint32_t reads, failed;
    _Atomic int32_t cpu;  /* on which this rank arrived */
    _Atomic uint64_t tag; /* which life of the hall this seat has joined */
    struct shm_barrier_descriptor descriptor[2];
    _Alignas(64) char eager_slot[2][SHM_BARRIER_EAGER_BYTES];
};

/* From one rank to one other: pieces posted and taken. */
struct shm_barrier_channel {
    _Alignas(64) _Atomic uint32_t posted, posted_sleepers;
    _Alignas(64) _Atomic uint32_t taken, taken_sleepers;
    struct shm_barrier_descriptor descriptor[2];
    _Alignas(64) char chunk[2][SHM_BARRIER_CHANNEL_BYTES];
};

/* One rank's view. */
struct shm_barrier {
    struct shm_barrier_peer_ctl *peers;   /* n */
    struct shm_barrier_channel *channels; /* n × n: from · n + to */
    char *bounces;                        /* n × 2 of SHM_BARRIER_BOUNCE_BYTES */
    /* what lies between them others see too; 0, UINTPTR_MAX: everything */
    uintptr_t base, limit;
    int n, rank;
    uint32_t phase; /* this rank's */
    uint32_t entry; /* the phase in which the call under way was entered */
    uint64_t tag;   /* 0: the memory was new, nothing to join */
    int awaited;    /* the rank that is waited for */
    int64_t migrated_ns;
};

/* shm_barrier_bytes — of zeroed memory, 64-aligned, that n ranks share. shm_barrier_init — rank's
 * view of it. */
int64_t shm_barrier_bytes(int n);
void shm_barrier_init(struct shm_barrier *barrier, void *memory, int n, int rank);

/* shm_barrier_join — in memory that an earlier life has used: this rank makes its own seat new and
 * waits until all have, with the same tag (not 0, never used before here). */
enum status shm_barrier_join(struct shm_barrier *barrier, struct comm_ctx *ctx, uint64_t tag);

/* shm_barrier_offset — 0 when others cannot see it; of nothing (0 bytes) anything else. */
uint64_t shm_barrier_offset(const struct shm_barrier *barrier, const void *data, int64_t bytes);
static inline void *shm_barrier_at(const struct shm_barrier *barrier, uint64_t where)
{
    return (void *)(barrier->base + where);
}

/* shm_barrier_enter — the first meeting of a call: brings in and out (addresses of this rank,
 * in_bytes, out_bytes; NULL: none) and, when eager_bytes > 0, the content of `in` itself; waits for
 * all; ST_BUG when they are in another call. shm_barrier_wait — a later meeting of the same
 * call. */
enum status shm_barrier_enter(struct shm_barrier *barrier, struct comm_ctx *ctx, const void *in,
                              int64_t in_bytes, void *out, int64_t out_bytes, int64_t eager_bytes);
enum status shm_barrier_wait(struct shm_barrier *barrier, struct comm_ctx *ctx);
/* What rank r brought to the last meeting. */
const struct shm_barrier_descriptor *shm_barrier_descriptor(const struct shm_barrier *barrier,
                                                            int r);
char *shm_barrier_eager_slot(const struct shm_barrier *barrier, int r);
/* As transport.entered. */
/* kept twice, by the round's parity */
char *shm_barrier_bounce(const struct shm_barrier *barrier, int r, int64_t round);
int shm_barrier_entered(const struct shm_barrier *barrier, const struct comm_call *call, int r);

/* shm_barrier_read_begin, _end — around any reading or writing of others' buffers, without waits
 * between. */
enum status shm_barrier_read_begin(struct shm_barrier *barrier, struct comm_ctx *ctx);
void shm_barrier_read_end(struct shm_barrier *barrier);
/* shm_barrier_fail — this rank's call has failed with st: tells the others, waits for readers;
 * returns st. */
enum status shm_barrier_fail(struct shm_barrier *barrier, enum status st);

enum status shm_barrier_send(struct shm_barrier *barrier, struct comm_ctx *ctx,
                             const struct comm_call *call);
enum status shm_barrier_recv(struct shm_barrier *barrier, struct comm_ctx *ctx,
                             const struct comm_call *call);

#endif
