/* layout — which rank owns which elements of a parameter table, and where whole buckets lie in an
 * unsharded buffer. A pure function of the table, the number of ranks and the least size of a
 * bucket. It must not know memory, collectives or the computation of the model.
 *
 * - A bucket is a run of neighbouring tensors that is gathered, reduced and updated in one call.
 * - With one rank each unit is a bucket.
 * - With several ranks each tensor of unit 0 is a bucket, because their gradients are complete at
 *   different times. The other units are joined, from the last to the first, until a bucket has
 *   bucket_elems_min elements.
 * - Part r of a bucket (part_extent) belongs to rank r. A rank's parts, one after the other, are
 *   its local shard.
 * - An unsharded buffer has a range for each bucket of unit 0, and two slots that the other buckets
 *   use in turn. */
#ifndef CONVOY_MESH_LAYOUT_H
#define CONVOY_MESH_LAYOUT_H

#include "comm/core/part.h"
#include "model/param.h"

/* The state that is sharded: nothing (DDP), moments (ZeRO-1), gradients too (ZeRO-2), parameters
 * too (ZeRO-3, FSDP): Rajbhandari et al. 2020. */
enum layout_shard {
    LAYOUT_SHARD_NONE,
    LAYOUT_SHARD_OPTIMIZER,
    LAYOUT_SHARD_GRADIENTS,
    LAYOUT_SHARD_FULL,
    LAYOUT_SHARD_HYBRID, /* full inside a group of ranks, replicas between groups (HSDP) */
    LAYOUT_SHARD_AUTO    /* to be decided before store_open (node/choose/plan_choice.h) */
};

#define LAYOUT_BUCKET_ELEMS_MIN \
    ((int64_t)1 << 18) /* 1 MiB: below this a collective is mostly latency */

struct layout_bucket {
    int64_t first, elems;   /* elements of the table */
    int unit_first;         /* the gradient is complete after this unit's backward */
    struct part_extent own; /* this rank's part, counted from the bucket's start */
    int64_t shard_at;       /* offset of this rank's part in the local shard */
    /* offset of this rank's part in a shard without hidden matrices (param_rest) */
    int64_t rest_at;
    int64_t buffer_at; /* offset of the bucket in an unsharded buffer */
    int slot;          /* slot in the unsharded buffer: 0 or 1; -1: a range of its own */
};

struct layout {
    int rank, ranks;
    struct layout_bucket *bucket;
    int buckets_n;
    int *unit_bucket; /* the last bucket of each unit; only unit 0 has several */
    int units_n;
    int64_t shard_elems;  /* elements of the largest local shard; the same on all ranks */
    int64_t rest_elems;   /* elements of this rank's local shard without hidden matrices */
    int64_t buffer_elems; /* elements of an unsharded buffer */
    struct param_table buffer_table; /* the table, with offsets into an unsharded buffer */
};

/* layout_init — computes the layout of rank `rank` of `ranks`. bucket_elems_min 0:
 * LAYOUT_BUCKET_ELEMS_MIN. */
void layout_init(const struct param_table *table, int ranks, int rank, int64_t bucket_elems_min,
                 struct layout *out);
void layout_free(struct layout *l); /* may be called twice */

/* layout_pad — moves the tensors of a table so that all parts of each bucket are equal on `ranks`
 * ranks, and aligned: a transport such as NCCL then needs one reduce-scatter or all-gather. The
 * table of one rank stays as it is. Padding is zero in parameters, gradients and moments. Files
 * hold tensors without it. */
void layout_pad(struct param_table *table, int ranks);
/* layout_pad_blocks — does the same, and no part ends within a block of REDUCE_BLOCK_ELEMS elements
 * of a tensor, counted from its start. So every block lies on one rank. */
void layout_pad_blocks(struct param_table *table, int ranks);

/* layout_owner — returns the rank that owns element `at` of a bucket. elems_out: the number of
 * elements from `at` on that it owns. shard_at_out: the position of `at` in its local shard. */
int layout_owner(const struct layout *l, int bucket, int64_t at, int64_t *elems_out,
                 int64_t *shard_at_out);
/* layout_largest_part — returns the elements of the largest of `ranks` parts (part_extent). */
int64_t layout_largest_part(int64_t elems, int ranks);
/* layout_bucket_at — returns the bucket that holds an element of the table. */
int layout_bucket_at(const struct layout *l, int64_t elem);

#endif
