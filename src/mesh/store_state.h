/* store_state — reads and writes a model's whole state, however it is sharded: how rank 0 saves and
 * loads checkpoints. It must not know files.
 *
 * Rank 0 calls _get and _put for ranges, in any order, and then _end. All other ranks are in _serve
 * meanwhile: they send or take what rank 0's call needs. So only rank 0 needs the checkpoint
 * folder, and a checkpoint does not depend on the number of ranks or on SHARD.
 *
 * part and ranges are those of store.h. All calls block. */
#ifndef CONVOY_MESH_STORE_STATE_H
#define CONVOY_MESH_STORE_STATE_H

#include "mesh/store.h"

/* Rank 0 only.
 * _get: copies n elements of a part from `first` on to dst, in host memory.
 * _put: copies them from src to all ranks that hold them.
 * _end: ends _serve on the other ranks, where it returns ST_OK, or ST_PEER if st is not ST_OK.
 *       Returns st. */
enum status store_state_get(struct store *s, int part, int64_t first, int64_t n, float *dst);
enum status store_state_put(struct store *s, int part, int64_t first, int64_t n, const float *src);
enum status store_state_end(struct store *s, enum status st);
/* _serve: the other ranks, until rank 0 calls _end. */
enum status store_state_serve(struct store *s);

#endif
