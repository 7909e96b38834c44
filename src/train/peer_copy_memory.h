/* peer_copy_memory — the memory in which a rank holds copies of slices (peer_copy_choice.h): a
 * memfd that the supervisor made, so that it outlives the worker that writes it.
 *
 * The first page has what the slots hold, the slots follow. A slot is incomplete from
 * peer_copy_memory_begin until _commit, so a writer that is killed leaves no torn copy. The
 * checksum also covers what the slot says of itself. One process writes at a time, and within it
 * one thread a slot. Must not know ranks that are elsewhere. */
#ifndef CONVOY_TRAIN_PEER_COPY_MEMORY_H
#define CONVOY_TRAIN_PEER_COPY_MEMORY_H

#include "train/peer_copy_choice.h"

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

#endif
