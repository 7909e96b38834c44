/* mesh — how the ranks of a job are arranged along axes: pure arithmetic. It must not know models,
 * nor how ranks communicate.
 *
 * Axes, from the innermost:
 *   tensor    ranks that share matrices
 *   context   ranks that share samples
 *   data      ranks that have the same parameters, apart from sharding, and other samples
 *   pipeline  stages
 * So rank = ((pipeline · D + data) · C + context) · T + tensor. Ranks of one tensor group are
 * neighbours, and in one node if T divides its workers. */
#ifndef CONVOY_MESH_MESH_H
#define CONVOY_MESH_MESH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum mesh_axis {
    MESH_AXIS_TENSOR,
    MESH_AXIS_CONTEXT,
    MESH_AXIS_DATA,
    MESH_AXIS_PIPELINE,
    MESH_AXES
};
#define MESH_BIT(axis) (1u << (axis))

struct mesh {
    int size[MESH_AXES]; /* ranks along each axis, at least 1 */
};
struct mesh_coord {
    int at[MESH_AXES];
};

/* mesh_make — computes the mesh; the size of the data axis is `ranks` divided by the other sizes.
 * ST_BAD_SETTING: these do not divide `ranks`, or a size is below 1. */
enum status mesh_make(int ranks, int tensor, int context, int pipeline, struct mesh *out);
/* mesh_ranks — returns the number of all ranks: the product of the sizes. */
int mesh_ranks(const struct mesh *mesh);
/* mesh_coord_of — returns the position of a rank along each axis, from 0. */
struct mesh_coord mesh_coord_of(const struct mesh *mesh, int rank);
/* mesh_rank_of — returns the rank at a position; the inverse of mesh_coord_of. */
int mesh_rank_of(const struct mesh *mesh, const struct mesh_coord *coord);
/* mesh_group — lists the ranks that differ from `rank` only along the given axes (MESH_BIT), itself
 * included, ascending. Returns their number; out has room for them. */
int mesh_group(const struct mesh *mesh, int rank, unsigned axes, int *out);
/* mesh_group_n — returns the number of ranks of a group. */
int mesh_group_n(const struct mesh *mesh, unsigned axes);
/* mesh_is_same_group — returns true if two ranks differ only along the given axes. */
bool mesh_is_same_group(const struct mesh *mesh, unsigned axes, int rank, int other);
/* mesh_axis_name — returns "tensor", "context", "data" or "pipeline". */
const char *mesh_axis_name(enum mesh_axis axis);
/* mesh_place — describes the position of `ranks` ranks from `rank` on for messages: "stage 1,
 * tensor 0", along the axes of several ranks on which they all have the same position. "": there is
 * no such axis, or data is the only one. Returns out. */
const char *mesh_place(const struct mesh *mesh, int rank, int ranks, char *out, size_t cap);

#endif
