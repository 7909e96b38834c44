/* peer_copy_inside — declarations for the files of peer_copy: peer_copy.c (open, the choice, when
 * copies are made), peer_copy/interval.c (how often), peer_copy/exchange.c (how they are made),
 * peer_copy/device.c (how slices leave a GPU), peer_copy/restore.c (slices to the ranks that need
 * them). Other files use peer_copy.h. */
#ifndef CONVOY_TRAIN_PEER_COPY_INSIDE_H
#define CONVOY_TRAIN_PEER_COPY_INSIDE_H

#include <stdatomic.h>

#include "train/peer_copy/peer_copy.h"
#include "train/peer_copy/choice.h"

/* peer_copy_memory — the memory in which a rank holds copies of slices (peer_copy/choice.h): a
 * memfd that the supervisor made, so that it outlives the worker that writes it.
 *
 * The first page describes the slots; the slots follow. A slot is incomplete from
 * peer_copy_memory_begin until peer_copy_memory_commit, so a writer that is killed leaves no torn
 * copy. The checksum also covers the slot's description. One process writes at a time, and within
 * it one thread for each slot. Must not know ranks that are elsewhere. */
struct peer_copy_head; /* the first page */
struct peer_copy_memory {
    struct peer_copy_head *head; /* NULL: not open */
    /* state of the checksum of the slot that is written, or of peer_copy_memory_sum_add */
    struct XXH3_state_s *sum;
    int64_t written_bytes; /* bytes of the slot written so far */
    /* size of a slot of each kind of copy: room for one slice */
    int64_t slot_bytes[PEER_COPY_KINDS];
    int64_t bytes;  /* size of the memory */
    bool was_other; /* it held copies with another fingerprint, which are dropped */
};

/* peer_copy_memory_bytes — returns the size of the memory with slots of slot_bytes for each
 * kind of copy. */
int64_t peer_copy_memory_bytes(const int64_t slot_bytes[PEER_COPY_KINDS]);
struct peer_copy_memory_config {
    int fd;                              /* borrowed */
    int64_t slot_bytes[PEER_COPY_KINDS]; /* size of the largest slice of each kind of copy */
    uint64_t fingerprint;
    int64_t free_bytes;           /* bytes that may be allocated; -1: no limit */
    void (*heartbeat)(void *arg); /* called while memory is allocated; may be NULL */
    void *heartbeat_arg;
};
/* peer_copy_memory_open — maps the memory of fd. Its content is kept if sizes and fingerprint are
 * the same. Else it is allocated anew, empty. ST_RETRY: there is not enough memory. */
enum status peer_copy_memory_open(const struct peer_copy_memory_config *config,
                                  struct peer_copy_memory *out);
void peer_copy_memory_close(struct peer_copy_memory *m); /* may be called twice */
/* peer_copy_memory_release — frees the memory; its content is lost. */
void peer_copy_memory_release(struct peer_copy_memory *m, int fd);

/* peer_copy_memory_offer — writes the content of the slots to an offer; has_room and was_other are
 * set. */
void peer_copy_memory_offer(const struct peer_copy_memory *m, struct peer_copy_offer *out);
/* peer_copy_memory_set_history — sets the highest history that this rank has seen. */
void peer_copy_memory_set_history(struct peer_copy_memory *m, int64_t history);
/* peer_copy_memory_set_suspect — marks the copies of this history, of this step and later ones, as
 * suspect. */
void peer_copy_memory_set_suspect(struct peer_copy_memory *m, int64_t history, int64_t step);

/* peer_copy_memory_oldest — returns the slot of a kind of copy to write next: an incomplete one,
 * else the older one. */
int peer_copy_memory_oldest(const struct peer_copy_memory *m, int kind);
/* peer_copy_memory_data — returns the address of a slot's slice. */
void *peer_copy_memory_data(const struct peer_copy_memory *m, int slot);
/* peer_copy_memory_room — returns the largest size of a slot's slice in bytes. */
int64_t peer_copy_memory_room(const struct peer_copy_memory *m, int slot);
/* peer_copy_memory_begin — makes a slot incomplete; it may be written then. */
void peer_copy_memory_begin(struct peer_copy_memory *m, int slot);
/* peer_copy_memory_checksum — returns the checksum of a slice with a stamp; memory bound. */
uint64_t peer_copy_memory_checksum(const void *slice, const struct peer_copy_stamp *stamp);
/* peer_copy_memory_commit — makes a slot that was written complete, with this stamp. */
void peer_copy_memory_commit(struct peer_copy_memory *m, int slot,
                             const struct peer_copy_stamp *stamp, uint64_t checksum);
/* peer_copy_memory_write_begin — begins to write a slot from this process's memory, in one pass.
 * One slot at a time. */
void peer_copy_memory_write_begin(struct peer_copy_memory *m, int slot,
                                  const struct peer_copy_stamp *stamp);
/* peer_copy_memory_write — adds bytes to it. */
void peer_copy_memory_write(struct peer_copy_memory *m, int slot, const void *from, int64_t bytes);
/* peer_copy_memory_write_end — commits the slot when all bytes have been added. */
void peer_copy_memory_write_end(struct peer_copy_memory *m, int slot,
                                const struct peer_copy_stamp *stamp);
/* peer_copy_memory_sum_begin — begins the checksum of a slice that arrives in several messages. Not
 * while a slot is written. */
void peer_copy_memory_sum_begin(struct peer_copy_memory *m, const struct peer_copy_stamp *stamp);
/* peer_copy_memory_sum_add — adds the bytes of a message. */
void peer_copy_memory_sum_add(struct peer_copy_memory *m, const void *from, int64_t bytes);
/* peer_copy_memory_sum_end — returns the checksum. */
uint64_t peer_copy_memory_sum_end(const struct peer_copy_memory *m);
/* peer_copy_memory_checksum_of — returns the checksum with which a slot was committed. */
uint64_t peer_copy_memory_checksum_of(const struct peer_copy_memory *m, int slot);
/* peer_copy_memory_is_sound — returns true if a slot is complete and its content has its
 * checksum. */
bool peer_copy_memory_is_sound(const struct peer_copy_memory *m, int slot);
/* peer_copy_memory_drop_newer — makes the slots that are newer than this history and step
 * incomplete; -1, -1: all slots. */
void peer_copy_memory_drop_newer(struct peer_copy_memory *m, int64_t history, int64_t step);

/* The message that is sent before a slice: the description of its slot, without is_complete. */
struct peer_copy_label {
    struct peer_copy_stamp stamp;
    uint64_t checksum;
};

/* A job that sends one chunk of a slice. */
struct peer_copy_chunk {
    struct peer_copy *copy;
    int i;
    struct comm_ticket ticket;
    bool is_begun; /* the ticket must be waited for */
};

/* peer_copy_interval — the number of steps from one copy to the next. On a GPU it is measured: some
 * steps with a copy each, then some without (peer_copy/interval.c). */
struct peer_copy_interval {
    int every;        /* 0: not chosen yet */
    int64_t step;     /* step in progress; -1: none */
    int64_t begin_ns; /* begin of that step */
    int steps_n;      /* steps that have begun */
    /* shortest step without a copy, and with one, without the waits for earlier copies; 0: none
     * yet */
    double least_ms[2];
};
/* peer_copy_interval_begin — notes that a step has begun; no effect if it has already. */
void peer_copy_interval_begin(struct peer_copy_interval *interval, int64_t step);
/* peer_copy_interval_skip — leaves a wait of this thread out of the step's duration. */
void peer_copy_interval_skip(struct peer_copy_interval *interval, int64_t waited_ns);
/* peer_copy_interval_is_due — returns true if this step's state is to be copied. copied_step: the
 * newest copy; -1: none. */
bool peer_copy_interval_is_due(const struct peer_copy_interval *interval, int64_t copied_step);
/* peer_copy_interval_is_measured — returns true if the interval can be chosen now; in the same step
 * on all ranks. */
bool peer_copy_interval_is_measured(const struct peer_copy_interval *interval);
struct peer_copy {
    struct peer_copy_config config;
    struct comm_place place;
    /* the rank that keeps this rank's slice, and the rank whose slice this rank keeps; -1: one
     * node */
    int keeper, kept_rank;
    int64_t slice_bytes[PEER_COPY_KINDS]; /* size of this rank's slice, and of kept_rank's */
    struct peer_copy_memory memory;
    struct peer_copy_offer *offers;  /* offers of all ranks */
    struct peer_copy_chosen *chosen; /* the copies of all slices that were chosen (ranks_max) */
    struct peer_copy_choice choice;
    int64_t history; /* history of the copies that are made now */
    int64_t step;    /* step that is being copied, or was copied last; -1: none */
    struct peer_copy_interval interval;
    /* a GPU: the stream that reads slices, and the event after the last read; else NULL */
    struct stream *stream;
    struct dev_event *are_read;
    bool is_pinned; /* the memory is page-locked */
    /* the exchange of that step */
    bool sends, receives; /* to keeper; from kept_rank */
    int own_slot, kept_slot;
    struct peer_copy_label own, kept;
    struct peer_copy_chunk *chunks;
    int chunks_n, begun_n;
    int64_t begin_ns;
    /* a CPU: time for the copies in this rank's memory; a GPU: time by which a copy delays a step
     * (NAN: not measured yet) */
    double local_ms;
    _Atomic int64_t moved_ns;      /* time for the exchange */
    _Atomic int64_t complete_step; /* step of the newest copy that has arrived; -1: none */
    _Atomic int64_t travel_ns;     /* time from the begin of the last complete copy to its end */
    int copies_n;                  /* number of copies made */
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

/* peer_copy_restore_accept — commits a slot that was received, if its content is the slice of
 * `rank` that was sent. Else ST_PEER. */
enum status peer_copy_restore_accept(struct peer_copy *copy, int slot,
                                     const struct peer_copy_label *label, int rank);

/* ---- slices in the memory of a GPU (peer_copy/device.c) ----
 *
 * The step's thread calls all functions but peer_copy_device_await and _commit, which the first job
 * of a copy calls. */

/* peer_copy_device_open — opens the stream, and page-locks the memory of copies. */
enum status peer_copy_device_open(struct peer_copy *copy);
/* peer_copy_device_close — waits for reads in progress; may be called twice. Call it before the
 * memory is closed. */
void peer_copy_device_close(struct peer_copy *copy);
/* peer_copy_device_begin — orders reads after all work that was submitted to the step's stream so
 * far. */
enum status peer_copy_device_begin(struct peer_copy *copy, const struct step *step);
/* peer_copy_device_read — begins to read a slice to a slot. */
enum status peer_copy_device_read(struct peer_copy *copy, const struct state *slice, int slot);
/* peer_copy_device_end — marks the end of the reads. */
enum status peer_copy_device_end(struct peer_copy *copy);
/* peer_copy_device_await — waits for the reads. Fails if the step's comm has failed: the state that
 * was read may be wrong then. */
enum status peer_copy_device_await(struct peer_copy *copy);
/* peer_copy_device_commit — commits the slots that were read. */
void peer_copy_device_commit(struct peer_copy *copy);
/* peer_copy_device_wait — lets work submitted to the step's stream from now on start after the
 * reads. The host does not wait. */
enum status peer_copy_device_wait(struct peer_copy *copy, const struct step *step);

/* ---- one copy (peer_copy/exchange.c) ---- */

/* peer_copy_exchange_begin — begins a copy of the state with this progress, after
 * peer_copy_exchange_finish: copies the slices that this rank has in its own memory; from a GPU's
 * memory, begins to read them. Other slices follow in chunks_n chunks; the number is the same at
 * both ends. */
enum status peer_copy_exchange_begin(struct peer_copy *copy, const struct step *step,
                                     const struct checkpoint_progress *progress, int chunks_n);
/* peer_copy_exchange_chunk — queues the next chunk, if there is one. */
enum status peer_copy_exchange_chunk(struct peer_copy *copy);
/* peer_copy_exchange_finish — waits for the chunks that were begun; returns the first failure. */
enum status peer_copy_exchange_finish(struct peer_copy *copy);
/* peer_copy_has_own_queue — returns true if no other calls share the queue of copies. */
static inline bool peer_copy_has_own_queue(const struct peer_copy *copy)
{
    return copy->config.step_comm && copy->config.comm != copy->config.step_comm;
}
/* peer_copy_exchange_travels — returns true if slices of any rank are sent; the same on all ranks.
 * Else each rank copies the slice that it keeps from its own memory, which has the same state. */
bool peer_copy_exchange_travels(const struct peer_copy *copy, const struct step *step);

#endif
