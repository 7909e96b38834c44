/* store_state — moves ranges of a store's state between the ranks that share it and the first of
 * them, however it is sharded. mesh_state.h does so for the whole model and all ranks.
 *
 * part and ranges are those of store.h. All ranks of the store make the same calls, after
 * store_drain; the calls block. */
#ifndef CONVOY_MESH_STORE_STATE_H
#define CONVOY_MESH_STORE_STATE_H

#include "mesh/store.h"

/* _is_sharded: no rank holds the whole part; else the first rank reads it without the others.
 * _gather: copies n elements of a part from `first` on to dst on rank 0, in host memory. The other
 * ranks send theirs; their dst is not used.
 * _scatter: copies n elements from values on rank 0, in host memory, to all ranks that hold them.
 * On the other ranks values is a buffer of as many. n may be 0: room for one element all the same,
 * and the ranks still meet. */
bool store_state_is_sharded(const struct store *s, int part);
enum status store_state_gather(struct store *s, int part, int64_t first, int64_t n, float *dst);
enum status store_state_scatter(struct store *s, int part, int64_t first, int64_t n, float *values);

#endif
