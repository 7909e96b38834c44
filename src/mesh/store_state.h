/* store_state — a model's whole state by ranges, however it is spread over ranks: how rank 0 saves
 * and loads it.
 *
 * Rank 0 leads: it asks for ranges or gives them, in any order; meanwhile all others are in
 * store_state_follow, where they send and keep what rank 0's call wants of them, until it says that
 * it is done. So only rank 0 knows of files, other nodes need no folder, and a file of one mesh
 * fits every other. Must not know files. */
#ifndef CONVOY_MESH_STORE_STATE_H
#define CONVOY_MESH_STORE_STATE_H

#include "mesh/store.h"

/* store_state_get — n elements of a part from `first` on, to dst (host). store_state_put: the same
 * from src, to all that hold them. Rank 0 only. */
enum status store_state_get(struct store *s, int part, int64_t first, int64_t n, float *dst);
enum status store_state_put(struct store *s, int part, int64_t first, int64_t n, const float *src);
/* store_state_end — rank 0: with st, what became of it, which it also returns; the others' follow
 * returns ST_OK, or ST_PEER when st is not ST_OK. */
enum status store_state_end(struct store *s, enum status st);
enum status store_state_follow(struct store *s); /* the other ranks; with one rank there is none */

#endif
