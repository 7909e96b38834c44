/* layout — which rank owns which elements of a parameter table, and where whole buckets lie in an
 * unsharded buffer. A pure function of the table, the number of ranks and the least size of a
 * bucket. It must not know memory, collectives or what the model computes.
 *
 * - A bucket is a run of neighbouring tensors that is gathered, reduced and updated at once.
 * - With one rank each unit is a bucket.
 * - With several ranks each tensor of unit 0 is a bucket, because their gradients are complete at
 *   different times. The other units are joined, from the last to the first, until a bucket has
 *   bucket_elems_min elements.
 * - Part r of a bucket (part_extent) belongs to rank r. A rank's parts, one after the other, are
 *   its local shard.
 * - An unsharded buffer has a place for each bucket of unit 0, and two slots that the other buckets
 *   use in turn. */
#ifndef CONVOY_MESH_LAYOUT_H
#define CONVOY_MESH_LAYOUT_H

#include "comm/core/part.h"
#include "model/param.h"

/* What is sharded: nothing (DDP), moments (ZeRO-1), gradients too (ZeRO-2), parameters too (ZeRO-3,
 * FSDP): Rajbhandari et al. 2020. */
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
    int64_t first, elems;   /* in the table */
    int unit_first;         /* the gradient is complete after this unit's backward */
    struct part_extent own; /* this rank's part, counted from the bucket's start */
    int64_t shard_at;       /* where this rank's part lies in the local shard */
    int64_t rest_at;        /* the same in a shard without hidden matrices (param_rest) */
    int64_t buffer_at;      /* where the bucket lies in an unsharded buffer */
    int slot;               /* of the unsharded buffer: 0 or 1; -1: a place of its own */
};

struct layout {
    int rank, ranks;
    struct layout_bucket *bucket;
    int buckets_n;
    int *unit_bucket; /* the last bucket of each unit; units but 0 have only one */
    int units_n;
    int64_t shard_elems;             /* of a local shard; the largest rank's, the same on all */
    int64_t rest_elems;              /* of a local shard without hidden matrices: this rank's own */
    int64_t buffer_elems;            /* of an unsharded buffer */
    struct param_table buffer_table; /* the table, with offsets into an unsharded buffer */
};

/* layout_init — bucket_elems_min: 0: LAYOUT_BUCKET_ELEMS_MIN. */
void layout_init(const struct param_table *table, int ranks, int rank, int64_t bucket_elems_min,
                 struct layout *out);
void layout_free(struct layout *l); /* may be called twice */

/* layout_pad — moves the tensors of a table so that all parts of each bucket are equal on `ranks`
 * ranks, and aligned: a transport such as NCCL then needs one reduce-scatter or all-gather. The
 * table of one rank stays as it is. Padding is zero in parameters, gradients and moments. Files
 * hold tensors without it. */
void layout_pad(struct param_table *table, int ranks);
/* layout_pad_blocks — the same, and no part ends within a block of REDUCE_BLOCK_ELEMS elements of a
 * tensor, counted from its start: one rank has all of a block. */
void layout_pad_blocks(struct param_table *table, int ranks);

/* layout_owner — the rank that owns element `at` of a bucket. elems_out: how many elements from
 * `at` on it owns. shard_at_out: where `at` lies in its local shard. */
int layout_owner(const struct layout *l, int bucket, int64_t at, int64_t *elems_out,
                 int64_t *shard_at_out);
/* layout_largest_part — the elements of the largest part of so many (part_extent). */
int64_t layout_largest_part(int64_t elems, int ranks);
/* layout_bucket_at — the bucket that holds an element of the table. */
int layout_bucket_at(const struct layout *l, int64_t elem);

#endif
