/* peer_copy_inside — what the files of peer_copy share: peer_copy.c (open, the choice, when copies
 * are made), peer_copy/exchange.c (how), peer_copy/restore.c (slices to the ranks that need them).
 * Others use peer_copy.h. */
#ifndef CONVOY_TRAIN_PEER_COPY_INSIDE_H
#define CONVOY_TRAIN_PEER_COPY_INSIDE_H

#include <stdatomic.h>

#include "train/peer_copy/peer_copy.h"
#include "train/peer_copy/choice.h"

/* peer_copy_memory — the memory in which a rank holds copies of slices (peer_copy/choice.h): a
 * memfd that the supervisor made, so that it outlives the worker that writes it.
 *
 * The first page has what the slots hold, the slots follow. A slot is incomplete from
 * peer_copy_memory_begin until _commit, so a writer that is killed leaves no torn copy. The
 * checksum also covers what the slot says of itself. One process writes at a time, and within it
 * one thread a slot. Must not know ranks that are elsewhere. */
struct peer_copy_head; /* the first page */
struct peer_copy_memory {
    struct peer_copy_head *head;            /* NULL: not open */
    struct XXH3_state_s *sum;               /* of the slot that _write fills, and of _sum_add */
    int64_t written_bytes;                  /* of it */
    int64_t slot_bytes[PEER_COPY_HOLDINGS]; /* of a slot of each: room for one slice */
    int64_t bytes;                          /* of all */
    bool was_other; /* it held copies with another fingerprint, which are dropped */
};

/* peer_copy_memory_bytes — of the memory with slots of so many bytes in each holding. */
int64_t peer_copy_memory_bytes(const int64_t slot_bytes[PEER_COPY_HOLDINGS]);
struct peer_copy_memory_config {
    int fd;                                 /* borrowed */
    int64_t slot_bytes[PEER_COPY_HOLDINGS]; /* of the largest slice of each */
    uint64_t fingerprint;
    int64_t free_bytes;           /* that may be taken; -1: no limit */
    void (*heartbeat)(void *arg); /* while memory is taken; may be NULL */
    void *heartbeat_arg;
};
/* peer_copy_memory_open — maps the memory of fd. What it holds is kept if sizes and fingerprint are
 * the same. Else it is taken anew, empty. ST_RETRY: there is not as much. */
enum status peer_copy_memory_open(const struct peer_copy_memory_config *config,
                                  struct peer_copy_memory *out);
void peer_copy_memory_close(struct peer_copy_memory *m); /* may be called twice */
/* peer_copy_memory_release — gives the memory back; what it holds is lost. */
void peer_copy_memory_release(struct peer_copy_memory *m, int fd);

/* peer_copy_memory_offer — what the slots hold; has_room and was_other are set.
 * peer_copy_memory_set_history — the highest history that is known.
 * peer_copy_memory_set_suspect — of this history the copies of this step and of later ones. */
void peer_copy_memory_offer(const struct peer_copy_memory *m, struct peer_copy_offer *out);
void peer_copy_memory_set_history(struct peer_copy_memory *m, int64_t history);
void peer_copy_memory_set_suspect(struct peer_copy_memory *m, int64_t history, int64_t step);

/* peer_copy_memory_oldest — the slot of a holding to write next: an incomplete one, else the older.
 * peer_copy_memory_data — where the slice of a slot lies. peer_copy_memory_room — its bytes at
 *   most.
 * peer_copy_memory_begin — the slot becomes incomplete, and may be written.
 * peer_copy_memory_commit — it is written, and complete with this stamp.
 * peer_copy_memory_checksum — of a slice with a stamp; memory bound. _checksum_of: the one that a
 *   slot was committed with.
 * peer_copy_memory_is_sound — a complete slot whose content has its checksum.
 * peer_copy_memory_drop_newer — the slots that are newer than this history and step become
 *   incomplete; -1, -1: all. */
int peer_copy_memory_oldest(const struct peer_copy_memory *m, int holding);
void *peer_copy_memory_data(const struct peer_copy_memory *m, int slot);
int64_t peer_copy_memory_room(const struct peer_copy_memory *m, int slot);
void peer_copy_memory_begin(struct peer_copy_memory *m, int slot);
uint64_t peer_copy_memory_checksum(const void *slice, const struct peer_copy_stamp *stamp);
void peer_copy_memory_commit(struct peer_copy_memory *m, int slot,
                             const struct peer_copy_stamp *stamp, uint64_t checksum);
/* From this process's memory, in one pass: _write_begin begins a slot, _write adds bytes, and
 * _write_end commits it when all are there. One slot at a time. */
void peer_copy_memory_write_begin(struct peer_copy_memory *m, int slot,
                                  const struct peer_copy_stamp *stamp);
void peer_copy_memory_write(struct peer_copy_memory *m, int slot, const void *from, int64_t bytes);
void peer_copy_memory_write_end(struct peer_copy_memory *m, int slot,
                                const struct peer_copy_stamp *stamp);
/* The checksum of bytes that come piece by piece: _sum_begin, _sum_add, and _sum_end, which returns
 * it. Not while a slot is written. */
void peer_copy_memory_sum_begin(struct peer_copy_memory *m, const struct peer_copy_stamp *stamp);
void peer_copy_memory_sum_add(struct peer_copy_memory *m, const void *from, int64_t bytes);
uint64_t peer_copy_memory_sum_end(const struct peer_copy_memory *m);
uint64_t peer_copy_memory_checksum_of(const struct peer_copy_memory *m, int slot);
bool peer_copy_memory_is_sound(const struct peer_copy_memory *m, int slot);
void peer_copy_memory_drop_newer(struct peer_copy_memory *m, int64_t history, int64_t step);

/* What travels before a slice: all that its slot says, but whether it is complete. */
struct peer_copy_label {
    struct peer_copy_stamp stamp;
    uint64_t checksum;
};

/* A job: one of the pieces in which slices travel. */
struct peer_copy_piece {
    struct peer_copy *copy;
    int i;
    struct comm_ticket ticket;
    bool is_begun; /* the ticket must be waited for */
};

struct peer_copy {
    struct peer_copy_config config;
    struct comm_place place;
    /* the ranks that keep this one's slice, and whose slice this one keeps; -1: one node */
    int keeper, source;
    int64_t slice_bytes[PEER_COPY_HOLDINGS]; /* of this rank, and of source */
    struct peer_copy_memory memory;
    struct peer_copy_offer *offers;   /* of all ranks */
    struct peer_copy_holder *holders; /* of slices; ranks_max */
    struct peer_copy_choice choice;
    int64_t history; /* of copies that are made now */
    int64_t step;    /* being copied, or copied; -1: none */
    /* the exchange of that step */
    bool sends, receives; /* to keeper; from source */
    int own_slot, kept_slot;
    struct peer_copy_label own, kept;
    struct peer_copy_piece *pieces;
    int pieces_n, begun_n;
    int64_t begin_ns;
    double local_ms;          /* the copies in this rank's memory took */
    _Atomic int64_t moved_ns; /* the exchange took */
    int copies_n;             /* that are done */
};

static inline struct tensor peer_copy_bytes_at(void *data)
{
    return (struct tensor){data, DTYPE_U8};
}

static inline void peer_copy_beat(const struct peer_copy *copy)
{
    if (copy->config.heartbeat)
        copy->config.heartbeat(copy->config.heartbeat_arg);
}

/* peer_copy_restore_accept — commits a slot that was received, if it is what was sent: rank's
 * slice. Else ST_PEER. */
enum status peer_copy_restore_accept(struct peer_copy *copy, int slot,
                                     const struct peer_copy_label *label, int rank);

/* A copy (peer_copy/exchange.c).
 * _begin   of the state with this progress, after _finish: what this rank can copy from its own
 *          memory. What travels follows in pieces_n pieces, as many at both ends.
 * _piece   queues the next piece, if there is one.
 * _finish  waits for the pieces that were begun; returns the first failure.
 * _travels whether slices of any rank are sent; the same on all. Else each rank copies the one that
 *          it keeps from its own memory, which has the same state. */
void peer_copy_exchange_begin(struct peer_copy *copy, const struct step *step,
                              const struct checkpoint_progress *progress, int pieces_n);
enum status peer_copy_exchange_piece(struct peer_copy *copy);
enum status peer_copy_exchange_finish(struct peer_copy *copy);
bool peer_copy_exchange_travels(const struct peer_copy *copy, const struct step *step);

#endif
