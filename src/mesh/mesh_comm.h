/* mesh_comm — the communicators of a rank's groups in a mesh. It must not know the data that are
 * sent over them.
 *
 * A group of all ranks uses the world's comm itself, and a group of one rank has none. The others
 * are splits of the world's comm (comm.h): they share its connections, its queue, its deadline, its
 * abort and its first failure. So the calls of all groups end when a rank is lost, and a ticket of
 * one group can be waited for with the comm of any other group.
 *
 * The ranks of all groups make their calls from one thread and in one order, so that no two groups
 * wait for each other. */
#ifndef CONVOY_MESH_MESH_COMM_H
#define CONVOY_MESH_MESH_COMM_H

#include <stddef.h>

#include "comm/core/comm.h"
#include "mesh/mesh.h"

/* The axes of the ranks that have the same parameters. */
#define MESH_COMM_DATA_AXES (MESH_BIT(MESH_AXIS_DATA) | MESH_BIT(MESH_AXIS_CONTEXT))

struct mesh_comm {
    struct mesh mesh;
    struct mesh_coord at; /* this rank */
    struct comm *world;   /* borrowed; outlives this */
    /* NULL: one rank. data: along MESH_COMM_DATA_AXES. */
    struct comm *tensor, *context, *data, *pipeline;
};

/* mesh_comm_open — opens the comms of all groups. Collective among all ranks of world, which are
 * the mesh's. The order of splits is the same on all ranks. Fails as comm_split does; closes the
 * comms that it opened. */
enum status mesh_comm_open(struct comm *world, const struct mesh *mesh, struct mesh_comm *out);
/* mesh_comm_close — closes these comms. Call it before the world's comm is closed. Accepts a
 * zero-initialised struct, and a second call. */
void mesh_comm_close(struct mesh_comm *m);

/* mesh_comm_is_within_node — returns true if every group along the axes (MESH_BIT) lies in one node
 * of `locals` ranks each, world ranks being node by node. Pure. */
bool mesh_comm_is_within_node(const struct mesh *mesh, unsigned axes, int locals);
/* mesh_comm_link — writes the transport of such groups, as a part of the world's comm_backend: of
 * "shm + tcp", "shm" for groups inside nodes, "tcp" if each rank of a group is on another node. "":
 * one rank. Pure. */
void mesh_comm_link(const struct mesh *mesh, unsigned axes, int locals, const char *backend,
                    char *out, size_t cap);

#endif
