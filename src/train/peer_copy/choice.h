/* peer_copy_choice — which rank keeps a copy of which other rank's slice, and from which copies a
 * job can go on. Pure functions of numbers. Must not know memory or how slices travel.
 *
 * A slice is a rank's part of the state (mesh/store/state.h). Each rank holds its own slice and
 * that of one rank on another node, each of two steps: four slots. A job that goes on with fewer
 * or more nodes (ON_LOSS=shrink) begins with the slices of the ranks before.
 *
 * With TP and PP ranks hold different parts of the model. A rank's copy is kept by one that holds
 * the same part, on another node, where each part has enough ranks elsewhere. */
#ifndef CONVOY_TRAIN_PEER_COPY_CHOICE_H
#define CONVOY_TRAIN_PEER_COPY_CHOICE_H

#include "comm/core/comm.h"
#include "mesh/mesh.h"
#include "train/checkpoint/checkpoint.h"

enum { PEER_COPY_OWN, PEER_COPY_KEPT, PEER_COPY_HOLDINGS };
#define PEER_COPY_BUFFERS 2
#define PEER_COPY_SLOTS (PEER_COPY_HOLDINGS * PEER_COPY_BUFFERS)

/* What a slot holds. */
struct peer_copy_stamp {
    int64_t history; /* grows with each generation; of two copies the one of the later is chosen */
    int64_t step;    /* updates done */
    int32_t rank;    /* whose slice */
    int32_t is_complete;
    int32_t ranks; /* that share the state: another number of them has other slices */
    int64_t bytes; /* of the slice */
    struct checkpoint_progress progress;
};

/* What a rank can give, as ranks exchange it. */
struct peer_copy_offer {
    _Alignas(16) struct peer_copy_stamp slot[PEER_COPY_SLOTS]; /* holding · BUFFERS + buffer */
    int64_t history; /* the highest that this rank has known; 0: none */
    /* of this history the copies of this step and of later ones may hold a bit that had changed, on
     * any rank; 0: none do */
    int64_t suspect_history, suspect_step;
    int32_t has_room;  /* it has memory for its slots */
    int32_t was_other; /* it had copies of another model, layout or settings, which are dropped */
};

/* Who gives the slice of a rank. */
struct peer_copy_holder {
    int rank; /* -1: no rank has it */
    int slot;
};
struct peer_copy_choice {
    bool is_found;
    int64_t history, step;  /* of the newest copies that are whole; not found: of the newest */
    int ranks;              /* whose slices these are */
    int missing, missing_n; /* not found: a rank whose slice of that step is gone; how many are */
    bool is_any;            /* there is any copy at all */
    struct checkpoint_progress progress;
};

/* The ranks of a generation: nodes · locals. */
struct peer_copy_world {
    int nodes, locals;
    struct mesh mesh;
};
/* peer_copy_choice_keeper — the rank that keeps a copy of `rank`'s slice, on another node.
 * - If is_within, one that holds the same part of the model: the ranks of a part form pairs of
 *   nodes; where these are odd, the last three form a ring. Where a part's ranks are not as many
 *   on each of its nodes, each goes to the one that is so many further.
 * - Else the same local rank of another node of a pair or ring of all nodes.
 * peer_copy_choice_source — the rank whose slice `rank` keeps. On one node both are -1.
 * peer_copy_choice_is_within — every part has at least twice the ranks that a node may have of it.
 * peer_copy_choice_is_same_part — whether two ranks hold the same part. */
int peer_copy_choice_keeper(const struct peer_copy_world *world, int rank);
int peer_copy_choice_source(const struct peer_copy_world *world, int rank);
bool peer_copy_choice_is_within(const struct peer_copy_world *world);
bool peer_copy_choice_is_same_part(const struct peer_copy_world *world, int rank, int other);

/* peer_copy_choice_slot — the slot of a holding in which a rank has the slice of slice_rank, one of
 * `ranks`, complete and of this history and step; -1: in none. */
int peer_copy_choice_slot(const struct peer_copy_offer *offer, int holding, int slice_rank,
                          int ranks, int64_t history, int64_t step);
/* peer_copy_choice_make — the newest history, and in it the newest step, of which all slices are
 * complete somewhere, and that no rank calls suspect. offers: of the world's ranks. holders: of
 * each slice; ranks_max of them. A rank's own copy goes before its keeper's, and both before those
 * of other ranks, which have them from a world with other nodes. Offers come from other processes:
 * their numbers are checked. */
void peer_copy_choice_make(const struct peer_copy_offer *offers,
                           const struct peer_copy_world *world, int ranks_max,
                           struct peer_copy_holder *holders, struct peer_copy_choice *out);

#endif
