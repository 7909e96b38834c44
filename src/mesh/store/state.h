/* store_state — moves ranges of a store's state between the ranks that share it and the first of
 * them, however it is sharded. mesh_state.h does so for the whole model and all ranks.
 *
 * part and ranges are those of store.h. All ranks of the store make the same calls, after
 * store_drain; the calls block. */
#ifndef CONVOY_MESH_STORE_STATE_H
#define CONVOY_MESH_STORE_STATE_H

#include "mesh/store/store.h"

/* _is_sharded: no rank holds the whole part; else the first rank reads it without the others.
 * _gather: copies n elements of a part from `first` on to dst on rank 0, in host memory. The other
 * ranks send theirs; their dst is not used.
 * _scatter: copies n elements from values on rank 0, in host memory, to all ranks that hold them.
 * On the other ranks values is a buffer of as many. n may be 0: room for one element all the same,
 * and the ranks still meet. */
bool store_state_is_sharded(const struct store *s, int part);
enum status store_state_gather(struct store *s, int part, int64_t first, int64_t n, float *dst);
enum status store_state_scatter(struct store *s, int part, int64_t first, int64_t n, float *values);

/* Slices: the slice of a rank is its part (part.h) of every bucket, of masters and moments. The
 * slices of all ranks together are the state. Copies in the memory of peers are made of them
 * (train/peer_copy/peer_copy.h).
 *
 * A slice is host memory: one run of `store_slice_part_elems` elements for each part of the state,
 * laid out as a local shard (layout.h). With SHARD it is this rank's local shard. A part that ranks
 * hold whole has the slices of all of them.
 * Not for HYBRID, nor for moments that hidden matrices lack (skips_hidden_second). */
/* store_slice_elems_of — without a store: the elements of a slice with so many parts, of a table
 * that is padded for `ranks` ranks. */
int64_t store_slice_elems_of(const struct param_table *table, int ranks, int parts_n,
                             int64_t bucket_elems_min);
/* A run of elements of a part of a slice that lies within one tensor. */
struct store_slice_run {
    int64_t slice_at; /* in the slice's run of that part */
    int param;        /* of the table */
    int64_t param_at; /* in that tensor */
    int64_t elems;
};
/* store_slice_runs — without a store: calls take with each run of the slice of `rank` of `ranks`,
 * as store_slice_elems_of; padding is in none. Ends with the first status that is not ST_OK. */
enum status store_slice_runs(const struct param_table *table, int ranks, int rank,
                             int64_t bucket_elems_min,
                             enum status (*take)(void *arg, const struct store_slice_run *run),
                             void *arg);
int64_t store_slice_elems(const struct store *s);
/* store_slice_has_all — does this rank have the slices of all ranks? */
bool store_slice_has_all(const struct store *s);
/* store_slice_each — local: calls take with the runs that are a rank's slice, one behind the other,
 * in the device's memory. No update may be deferred (store.h). rank: this one, or with
 * store_slice_has_all any.
 * store_slice_set — collective: every rank gives its own slice; then all of them have the state. */
void store_slice_each(const struct store *s, int rank,
                      void (*take)(void *arg, const float *run, int64_t elems), void *arg);
enum status store_slice_set(struct store *s, const float *src);

#endif
