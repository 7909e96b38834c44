/* comm_hall — ranks that see the same memory meet here: arrivals, what each brings, waiting that
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
#ifndef CONVOY_COMM_COMM_HALL_H
#define CONVOY_COMM_COMM_HALL_H

#include "comm/comm_ops.h"

#define COMM_HALL_SLOT 8192  /* bytes a rank can bring on its card, so that one meeting does */
#define COMM_HALL_MAIL 16384 /* bytes of a message in one piece from rank to rank */
/* bytes a rank can stage at a time, for who cannot see its buffers */
#define COMM_HALL_STAGE 262144
#define COMM_HALL_RANKS_MAX 256

struct comm_hall_card {
    _Alignas(64) struct comm_header header;
    uint64_t in, out; /* distance of the buffers from the base; 0: none, or not visible */
};

struct comm_hall_seat {
    _Alignas(64) _Atomic uint32_t arrived;  /* the phase this rank has reached */
    _Alignas(64) _Atomic uint32_t sleepers; /* on `arrived` */
    _Atomic uint32_t reads, failed;
    _Atomic int32_t cpu;  /* on which this rank arrived */
    _Atomic uint64_t tag; /* which life of the hall this seat has joined */
    struct comm_hall_card card[2];
    _Alignas(64) char slot[2][COMM_HALL_SLOT];
};

/* From one rank to one other: pieces posted and taken. */
struct comm_hall_mail {
    _Alignas(64) _Atomic uint32_t posted, posted_sleepers;
    _Alignas(64) _Atomic uint32_t taken, taken_sleepers;
    struct comm_hall_card card[2];
    _Alignas(64) char piece[2][COMM_HALL_MAIL];
};

/* One rank's view. */
struct comm_hall {
    struct comm_hall_seat *seats; /* n */
    struct comm_hall_mail *mails; /* n × n: from · n + to */
    char *stages;                 /* n × 2 of COMM_HALL_STAGE */
    /* what lies between them others see too; 0, UINTPTR_MAX: everything */
    uintptr_t base, limit;
    int n, rank;
    uint32_t phase; /* this rank's */
    uint32_t entry; /* the phase in which the call under way was entered */
    uint64_t tag;   /* 0: the memory was new, nothing to join */
    int awaited;    /* the rank that is waited for */
    int64_t moved_ns;
};

/* comm_hall_bytes — of zeroed memory, 64-aligned, that n ranks share. comm_hall_init — rank's view
 * of it. */
int64_t comm_hall_bytes(int n);
void comm_hall_init(struct comm_hall *hall, void *memory, int n, int rank);

/* comm_hall_join — in memory that an earlier life has used: this rank makes its own seat new and
 * waits until all have, with the same tag (not 0, never used before here). */
enum status comm_hall_join(struct comm_hall *hall, struct comm_wire *wire, uint64_t tag);

/* comm_hall_where — 0 when others cannot see it; of nothing (0 bytes) anything else. */
uint64_t comm_hall_where(const struct comm_hall *hall, const void *data, int64_t bytes);
static inline void *comm_hall_at(const struct comm_hall *hall, uint64_t where)
{
    return (void *)(hall->base + where);
}

/* comm_hall_enter — the first meeting of a call: brings in and out (addresses of this rank,
 * in_bytes, out_bytes; NULL: none) and, when slot_bytes > 0, the content of `in` itself; waits for
 * all; ST_BUG when they are in another call. comm_hall_meet — a later meeting of the same call. */
enum status comm_hall_enter(struct comm_hall *hall, struct comm_wire *wire, const void *in,
                            int64_t in_bytes, void *out, int64_t out_bytes, int64_t slot_bytes);
enum status comm_hall_meet(struct comm_hall *hall, struct comm_wire *wire);
/* What rank r brought to the last meeting. */
const struct comm_hall_card *comm_hall_card(const struct comm_hall *hall, int r);
char *comm_hall_slot(const struct comm_hall *hall, int r);
/* As comm_ops.entered. */
/* kept twice, by the round's parity */
char *comm_hall_stage(const struct comm_hall *hall, int r, int64_t round);
int comm_hall_entered(const struct comm_hall *hall, const struct comm_call *call, int r);

/* comm_hall_read_begin, _end — around any reading or writing of others' buffers, without waits
 * between. */
enum status comm_hall_read_begin(struct comm_hall *hall, struct comm_wire *wire);
void comm_hall_read_end(struct comm_hall *hall);
/* comm_hall_fail — this rank's call has failed with st: tells the others, waits for readers;
 * returns st. */
enum status comm_hall_fail(struct comm_hall *hall, enum status st);

enum status comm_hall_send(struct comm_hall *hall, struct comm_wire *wire,
                           const struct comm_call *call);
enum status comm_hall_recv(struct comm_hall *hall, struct comm_wire *wire,
                           const struct comm_call *call);

#endif
