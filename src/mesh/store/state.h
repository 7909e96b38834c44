/* store_state — the state of a store: what this rank has of it, and how ranges move between the
 * ranks that share it and the first of them. mesh/state.h has that of the whole model.
 *
 * part: 0 parameters (masters), 1 and 2 moments. Ranges count elements of the table. What has no
 * second moment reads as zero, and writing ignores it. */
#ifndef CONVOY_MESH_STORE_STATE_H
#define CONVOY_MESH_STORE_STATE_H

#include "mesh/state.h"

/* store_state — the state on this rank, valid until store_close. Parts that it holds whole are
 *   `here`. Written are those elements of a range that it holds, without communication. The compute
 *   copy follows; writing to what is `here` would not change it.
 * store_drain — waits for gathers and deferred updates; collective. Call it before what is `here`
 *   is read, and before store_grads.
 * store_grads — the reduced gradients, where this rank holds them whole, else data NULL.
 * store_holds — whether this rank holds any element of the range.
 * store_params_writes — how often something else than an update has written to the state here. */
const struct state *store_state(const struct store *s);
enum status store_drain(struct store *s);
struct tensor store_grads(const struct store *s);
bool store_holds(const struct store *s, int part, int64_t first, int64_t n);
int64_t store_params_writes(const struct store *s);

/* store_params_flip — FAULT=flip: inverts a bit (0 … 31) of the first parameter that this rank
 * updates, without communication. Other ranks that gather it read it after the next update at the
 * latest. Where masters are whole it counts as a write, because the compute copy must follow. name:
 * of its tensor, until store_close; "": this rank updates none. elem: in this rank's part of that
 * tensor. */
struct store_flip {
    const char *name;
    int64_t elem;
    float before, after;
};
enum status store_params_flip(struct store *s, int bit, struct store_flip *out);

/* All ranks of the store make the same calls, after store_drain; the calls block.
 * _gather: copies n elements of a part from `first` on to dst on rank 0, in host memory. The other
 * ranks send theirs; their dst is not used.
 * _scatter: copies n elements from values on rank 0, in host memory, to all ranks that hold them.
 * On the other ranks values is a buffer of as many. n may be 0: room for one element all the same,
 * and the ranks still meet. */
enum status store_state_gather(struct store *s, int part, int64_t first, int64_t n, float *dst);
enum status store_state_scatter(struct store *s, int part, int64_t first, int64_t n, float *values);

/* Slices: the slice of a rank is its part (part.h) of every bucket, of masters and moments. The
 * slices of all ranks together are the state. Copies in the memory of peers are made of them
 * (train/peer_copy/peer_copy.h).
 *
 * A part of a slice is laid out as a local shard (layout.h). With SHARD it is this rank's local
 * shard. A part that ranks hold whole has the slices of all of them.
 * Not for HYBRID, nor for moments that hidden matrices lack (skips_hidden_second). */
/* store_slice — the slice of a rank: this one, or any rank's where this one holds every part whole.
 * What is `here` lies in the device's memory; no update may be deferred (store.h). Writing is
 * collective: every rank writes a whole part of its own slice; then all of them have that part. */
struct state store_slice(struct store *s, int rank);
/* store_slice_elems_of — without a store: the elements of a slice with so many parts, of a table
 * that is padded for `ranks` ranks. */
int64_t store_slice_elems_of(const struct param_table *table, int ranks, int parts_n,
                             int64_t bucket_elems_min);
/* A run of elements of a part of a slice that lies within one tensor. */
struct store_slice_run {
    int64_t slice_at; /* in that part of the slice */
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

#endif
