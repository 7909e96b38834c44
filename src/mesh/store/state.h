/* store_state — the state of a store: the arrays that this rank holds, and transfers of ranges
 * between the ranks that share the state and the first of them. mesh/state.h describes the state of
 * the whole model.
 *
 * array: 0 parameters (masters), 1 and 2 moments. Ranges count elements of the table. Elements
 * without a second moment read as zero there, and writing ignores them. */
#ifndef CONVOY_MESH_STORE_STATE_H
#define CONVOY_MESH_STORE_STATE_H

#include "mesh/state.h"

/* store_state — returns the state on this rank, valid until store_close. Arrays that it holds whole
 * are `here`. A write changes those elements of a range that this rank holds, without
 * communication. The compute copy follows a write, but not a change through `here`. */
const struct state *store_state(const struct store *s);
/* store_drain — waits for gathers and deferred updates. Collective. Call it before data that are
 * `here` are read, and before store_grads. */
enum status store_drain(struct store *s);
/* store_grads — returns the reduced gradients if this rank holds them whole, else data NULL. */
struct tensor store_grads(const struct store *s);
/* store_holds — returns true if this rank holds any element of the range. */
bool store_holds(const struct store *s, int array, int64_t first, int64_t n);
/* store_params_writes — returns the number of writes to the state here, updates not counted. */
int64_t store_params_writes(const struct store *s);

/* A flipped bit: the tensor's name, valid until store_close; "": this rank updates no tensor. elem:
 * element in that tensor of store_config.table. */
struct store_flip {
    const char *name;
    int64_t elem;
    float before, after;
};
/* store_params_flip — inverts a bit (0 … 31) of the first parameter that this rank updates, without
 * communication (FAULT=flip). Other ranks that gather it read it after the next update at the
 * latest. If masters are whole it counts as a write, because the compute copy must follow. */
enum status store_params_flip(struct store *s, int bit, struct store_flip *out);

/* store_state_gather — copies n elements of an array from `first` on to dst on rank 0, in host
 * memory. The other ranks send their elements; their dst is not used. Blocks. All ranks of the
 * store make the same calls, after store_drain. */
enum status store_state_gather(struct store *s, int array, int64_t first, int64_t n, float *dst);
/* store_state_scatter — copies n elements from values on rank 0, in host memory, to all ranks that
 * hold them. On the other ranks values is a buffer of n elements. n may be 0: the buffer still has
 * one element, and the ranks still wait for each other. Blocks. All ranks of the store make the
 * same calls, after store_drain. */
enum status store_state_scatter(struct store *s, int array, int64_t first, int64_t n,
                                float *values);

/* Slices: the slice of a rank is its part (part.h) of every bucket, of masters and moments. The
 * slices of all ranks together are the state. Copies in the memory of peers consist of slices
 * (train/peer_copy/peer_copy.h).
 *
 * An array of a slice is laid out as a local shard (layout.h). If SHARD shards the array, it is
 * this rank's local shard; if ranks hold the array whole, they have the slices of all ranks. Not
 * for HYBRID, nor if hidden matrices have no second moment (skips_hidden_second). */

/* store_slice — returns the slice of this rank, or of any rank if this one holds every array whole.
 * Data that are `here` lie in the device's memory; no update may be deferred (store.h). Writing is
 * collective: every rank writes a whole array of its own slice, and then all ranks have that
 * array. */
struct state store_slice(struct store *s, int rank);
/* store_slice_elems_of — returns the elements of a slice with arrays_n arrays, of a table that is
 * padded for `ranks` ranks. Needs no store. */
int64_t store_slice_elems_of(const struct param_table *table, int ranks, int arrays_n,
                             int64_t bucket_elems_min);
/* A run of elements of an array of a slice that lies within one tensor. */
struct store_slice_run {
    int64_t slice_at; /* position in that array of the slice */
    int param;        /* index of the tensor in the table */
    int64_t param_at; /* position in that tensor */
    int64_t elems;
};
/* store_slice_runs — calls on_run with each run of the slice of `rank` of `ranks`, laid out as for
 * store_slice_elems_of; padding belongs to no run. Ends with the first status that is not ST_OK.
 * Needs no store. */
enum status store_slice_runs(const struct param_table *table, int ranks, int rank,
                             int64_t bucket_elems_min,
                             enum status (*on_run)(void *arg, const struct store_slice_run *run),
                             void *arg);

#endif
