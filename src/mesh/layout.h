/* layout — which rank holds which elements of a parameter table, and where whole buckets lie while
 * they are worked on. Pure arithmetic: a function of the table, the number of ranks and the way of
 * sharding.
 *
 * A table is cut into buckets, in its own order: what is gathered, reduced and updated at once.
 * With one rank a bucket is a unit. With more, the tensors of unit 0 are buckets of their own, for
 * their gradients are done at different times, and the other units are joined, from the last down,
 * until a bucket is worth a message. Each bucket is cut by part_extent: part r belongs to rank r.
 * The local shard holds a rank's own parts one after another.
 *
 * A buffer is memory for a few whole buckets instead of a whole table: one place for each bucket of
 * unit 0, and two that the others share, every second bucket in the same. Must not know memory,
 * messages or the model's meaning. */
#ifndef CONVOY_MESH_LAYOUT_H
#define CONVOY_MESH_LAYOUT_H

#include "comm/core/part.h"
#include "model/param.h"

/* What is in parts: nothing; moments; gradients too; parameters too (DDP, ZeRO-1, ZeRO-2, ZeRO-3:
 * Rajbhandari et al. 2020). */
enum layout_shard {
    LAYOUT_SHARD_NONE,
    LAYOUT_SHARD_OPTIMIZER,
    LAYOUT_SHARD_GRADIENTS,
    LAYOUT_SHARD_FULL
};

#define LAYOUT_BUCKET_ELEMS_MIN \
    ((int64_t)1 << 18) /* 1 MiB: below this a message is mostly latency */

struct layout_bucket {
    int64_t first, elems;   /* in the table */
    int unit_first;         /* its gradient is done when this unit's backward is */
    struct part_extent own; /* this rank's part, from the bucket's start */
    int64_t shard_at;       /* where that lies in the local shard */
    int64_t buffer_at;      /* where the bucket lies in a buffer */
    int slot;               /* of the buffer: 0, 1; -1: a place of its own */
};

struct layout {
    int rank, ranks;
    struct layout_bucket *bucket;
    int buckets_n;
    /* of each unit its last bucket, which is its only one but for unit 0 */
    int *unit_bucket;
    int units_n;
    int64_t shard_elems; /* the most that any rank needs, so that all take the same */
    int64_t buffer_elems;
    struct param_table buffer_table; /* the table with offsets into the buffer */
};

/* layout_init — bucket_elems_min: units are joined to at least so many; 0: LAYOUT_BUCKET_ELEMS_MIN.
 * Memory refused is ST_RETRY. */
enum status layout_init(const struct param_table *table, int ranks, int rank,
                        int64_t bucket_elems_min, struct layout *out);
void layout_free(struct layout *l); /* also twice */

/* layout_owner — whose part holds element `at` of a bucket, and how many from there on are in that
 * part. `shard_at_out`: where it lies in the owner's local shard. */
int layout_owner(const struct layout *l, int bucket, int64_t at, int64_t *elems_out,
                 int64_t *shard_at_out);
/* the bucket that holds this element of the table */
int layout_bucket_at(const struct layout *l, int64_t elem);

#endif
