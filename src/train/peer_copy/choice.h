/* peer_copy_choice — chooses the rank that keeps a copy of another rank's slice, and the copies
 * from which a job can continue. Pure functions of numbers. Must not know memory or how slices
 * travel.
 *
 * A slice is a rank's share of the state (mesh/store/state.h). Each rank holds its own slice and
 * the slice of one rank on another node, each of two steps: four slots. A job that continues with
 * fewer or more nodes (ON_LOSS=shrink) begins with the slices of the previous ranks.
 *
 * With TP and PP ranks hold different shards of the model. If each shard has enough ranks on other
 * nodes, the copy of a rank's slice is kept by a rank that holds the same shard, on another
 * node. */
#ifndef CONVOY_TRAIN_PEER_COPY_CHOICE_H
#define CONVOY_TRAIN_PEER_COPY_CHOICE_H

#include "comm/core/comm.h"
#include "mesh/mesh.h"
#include "train/checkpoint/checkpoint.h"

enum { PEER_COPY_OWN, PEER_COPY_KEPT, PEER_COPY_KINDS };
#define PEER_COPY_BUFFERS 2
#define PEER_COPY_SLOTS (PEER_COPY_KINDS * PEER_COPY_BUFFERS)

/* The content of a slot. */
struct peer_copy_stamp {
    int64_t history; /* grows with each generation; the copy with the higher number is chosen */
    int64_t step;    /* updates done */
    int32_t rank;    /* the rank whose slice it is */
    int32_t is_complete;
    int32_t ranks; /* number of ranks that share the state; slices depend on it */
    int64_t bytes; /* size of the slice */
    struct checkpoint_progress progress;
};

/* The copies that a rank can offer, as ranks exchange it. */
struct peer_copy_offer {
    _Alignas(16) struct peer_copy_stamp slot[PEER_COPY_SLOTS]; /* kind · BUFFERS + buffer */
    int64_t history; /* the highest history that this rank has seen; 0: none */
    /* copies of this history, of this step and later ones, may contain a changed bit, on any rank;
     * 0: none */
    int64_t suspect_history, suspect_step;
    int32_t has_room;  /* it has memory for its slots */
    int32_t was_other; /* it had copies of another model, layout or settings, which are dropped */
};

/* The copy that was chosen for a slice: its keeper (the rank itself for its own copy) and slot. */
struct peer_copy_chosen {
    int rank; /* -1: no rank has one */
    int slot;
};
struct peer_copy_choice {
    bool is_found;
    /* history and step of the newest whole copies; not found: of the newest copies */
    int64_t history, step;
    int ranks; /* number of ranks that made these slices */
    /* not found: a rank whose slice of that step is lost; number of such ranks */
    int missing, missing_n;
    bool is_any; /* there is any copy at all */
    struct checkpoint_progress progress;
};

/* The ranks of a generation: nodes · locals. */
struct peer_copy_world {
    int nodes, locals;
    struct mesh mesh;
};
/* peer_copy_choice_keeper — returns the rank that keeps a copy of `rank`'s slice, on another node;
 * -1: there is only one node.
 * - If is_within, it is a rank that holds the same shard of the model. The ranks of a shard form
 *   pairs of nodes; if the number of nodes is odd, the last three form a ring. If nodes hold
 *   unequal numbers of a shard's n ranks, rank (i + m) mod n keeps the copy of rank i; m is the
 *   largest number of these ranks on one node.
 * - Else it is the same local rank of another node, in a pair or ring of all nodes. */
int peer_copy_choice_keeper(const struct peer_copy_world *world, int rank);
/* peer_copy_choice_kept_rank — returns the rank whose slice `rank` keeps; -1: there is only one
 * node. */
int peer_copy_choice_kept_rank(const struct peer_copy_world *world, int rank);
/* peer_copy_choice_is_within — returns true if every shard has at least twice as many ranks as one
 * node may hold of it. */
bool peer_copy_choice_is_within(const struct peer_copy_world *world);
/* peer_copy_choice_is_same_shard — returns true if two ranks hold the same model shard. */
bool peer_copy_choice_is_same_shard(const struct peer_copy_world *world, int rank, int other);

/* peer_copy_choice_slot — returns the slot of a kind of copy that contains the slice of slice_rank,
 * one of `ranks` ranks, complete and of this history and step; -1: none does. */
int peer_copy_choice_slot(const struct peer_copy_offer *offer, int kind, int slice_rank, int ranks,
                          int64_t history, int64_t step);
/* peer_copy_choice_make — finds the newest history, and in it the newest step, for which complete
 * copies of all slices exist somewhere and no rank marks them as suspect. offers: of the world's
 * ranks. chosen: the copy of each slice; ranks_max of them. A rank's own copy is preferred to its
 * keeper's, and both to copies on other ranks, which come from a world with other nodes. Offers
 * come from other processes: their numbers are checked. */
void peer_copy_choice_make(const struct peer_copy_offer *offers,
                           const struct peer_copy_world *world, int ranks_max,
                           struct peer_copy_chosen *chosen, struct peer_copy_choice *out);

#endif
