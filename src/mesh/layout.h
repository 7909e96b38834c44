/* layout — which rank holds which elements of a parameter table, and where whole pieces lie while
 * they are worked on. Pure arithmetic: a function of the table, the number of ranks and the way of
 * sharding.
 *
 * A table is cut into pieces, in its own order: what is gathered, reduced and updated at once. With
 * one rank a piece is a unit. With more, the tensors of unit 0 are pieces of their own, for their
 * gradients are done at different times, and the other units are joined, from the last down, until
 * a piece is worth a message. Each piece is cut by order_extent: part r belongs to rank r. A packed
 * array holds a rank's own parts one after another.
 *
 * A window is memory for a few whole pieces instead of a whole table: one place for each piece of
 * unit 0, and two that the others share, every second piece in the same. Must not know memory,
 * messages or the model's meaning. */
#ifndef CONVOY_MESH_LAYOUT_H
#define CONVOY_MESH_LAYOUT_H

#include "comm/order.h"
#include "model/param.h"

/* What is in parts: nothing; moments; gradients too; parameters too (DDP, ZeRO-1, ZeRO-2, ZeRO-3:
 * Rajbhandari et al. 2020). */
enum layout_shard {
    LAYOUT_SHARD_NONE,
    LAYOUT_SHARD_OPTIMIZER,
    LAYOUT_SHARD_GRADIENTS,
    LAYOUT_SHARD_FULL
};

#define LAYOUT_BUCKET_ELEMS ((int64_t)1 << 18) /* 1 MiB: below this a message is mostly latency */

struct layout_piece {
    int64_t first, elems;    /* in the table */
    int unit_first;          /* its gradient is done when this unit's backward is */
    struct order_extent own; /* this rank's part, from the piece's start */
    int64_t packed;          /* where that lies in a packed array */
    int64_t at;              /* where the piece lies in a window */
    int slot;                /* of the window: 0, 1; -1: a place of its own */
};

struct layout {
    int rank, ranks;
    struct layout_piece *piece;
    int pieces_n;
    /* of each unit its last piece, which is its only one but for unit 0 */
    int *unit_piece;
    int units_n;
    int64_t packed_elems; /* the most that any rank needs, so that all take the same */
    int64_t window_elems;
    struct param_table window; /* the table with offsets into the window */
};

/* layout_init — bucket_elems: units are joined to at least so many; 0: LAYOUT_BUCKET_ELEMS. Memory
 * refused is ST_RETRY. */
enum status layout_init(const struct param_table *table, int ranks, int rank, int64_t bucket_elems,
                        struct layout *out);
void layout_free(struct layout *l); /* also twice */

/* layout_owner — whose part holds element `at` of a piece, and how many from there on are in that
 * part. `packed_out`: where it lies in the owner's packed array. */
int layout_owner(const struct layout *l, int piece, int64_t at, int64_t *elems_out,
                 int64_t *packed_out);
/* the piece that holds this element of the table */
int layout_piece_at(const struct layout *l, int64_t elem);

#endif
