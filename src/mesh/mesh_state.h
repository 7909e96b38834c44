/* mesh_state — reads and writes the state of the whole model, however ranks share it: how rank 0
 * saves and loads checkpoints. It must not know files.
 *
 * Rank 0 calls _get and _put for ranges, in any order, and then _end. All other ranks are in _serve
 * meanwhile: they send or take what rank 0's call needs. So only rank 0 needs the checkpoint
 * folder, and a checkpoint depends neither on the mesh nor on SHARD.
 *
 * Where matrices are cut, or layers divided among stages, the model has parts (part_map.h). Each
 * part is shared by the ranks of one store. The first of them, the part's leader, exchanges one
 * message with rank 0 for each MESH_STATE_ELEMS elements of the whole model; its store gathers or
 * scatters what it carries.
 *
 * part: 0 parameters, 1 and 2 moments. Ranges count elements of the whole model's table: the map's,
 * or the store's where the model has one part. All calls block. */
#ifndef CONVOY_MESH_MESH_STATE_H
#define CONVOY_MESH_MESH_STATE_H

#include "mesh/mesh.h"
#include "mesh/store/store.h"

/* 4 MiB: of a buffer on rank 0, and of a request; on leaders their part of it */
#define MESH_STATE_ELEMS ((int64_t)1 << 20)

struct part_map; /* mesh/part_map.h */

/* Pointers are borrowed. Part `pipeline rank · tensor ranks + tensor rank` of the map is that of
 * the ranks with these coordinates. */
struct mesh_state {
    struct comm *world; /* all ranks */
    struct mesh mesh;
    struct store *store;        /* of this rank's part */
    const struct part_map *map; /* NULL: one part, the whole model */
};

/* Rank 0 only.
 * _get: copies n elements of a part from `first` on to dst, in host memory; padding is zero.
 * _put: copies them from src to all ranks that hold them.
 * _end: ends _serve on the other ranks, where it returns ST_OK, or ST_PEER if st is not ST_OK.
 *       Returns st. */
enum status mesh_state_get(const struct mesh_state *m, int part, int64_t first, int64_t n,
                           float *dst);
enum status mesh_state_put(const struct mesh_state *m, int part, int64_t first, int64_t n,
                           const float *src);
enum status mesh_state_end(const struct mesh_state *m, enum status st);
/* _serve: the other ranks, until rank 0 calls _end. */
enum status mesh_state_serve(const struct mesh_state *m);

#endif
