/* peer_copy_inside — what the files of peer_copy share: peer_copy.c (open, the choice, when copies
 * are made), peer_copy_exchange.c (how), peer_copy_restore.c (slices to the ranks that need them).
 * Others use peer_copy.h. */
#ifndef CONVOY_TRAIN_PEER_COPY_INSIDE_H
#define CONVOY_TRAIN_PEER_COPY_INSIDE_H

#include <stdatomic.h>

#include "train/peer_copy.h"
#include "train/peer_copy_memory.h"

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

/* A copy (peer_copy_exchange.c).
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
