/* mesh_comm — see mesh_comm.h. */
#include "mesh/mesh_comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"

static enum status open_group(struct mesh_comm *m, unsigned axes, struct comm **out)
{
    int n = mesh_group_n(&m->mesh, axes);
    if (n == 1)
        return ST_OK;
    if (n == comm_place(m->world)->ranks) {
        *out = m->world;
        return ST_OK;
    }
    int *ranks = memory_new((size_t)n, sizeof *ranks);
    mesh_group(&m->mesh, comm_place(m->world)->rank, axes, ranks);
    enum status st = comm_split(m->world, ranks, n, out);
    free(ranks);
    return st;
}

enum status mesh_comm_open(struct comm *world, const struct mesh *mesh, struct mesh_comm *out)
{
    const struct comm_place *place = comm_place(world);
    ASSERTF(mesh_ranks(mesh) == place->ranks, "a mesh of %d ranks on %d", mesh_ranks(mesh),
            place->ranks);
    struct mesh_comm m = {.mesh = *mesh, .at = mesh_coord_of(mesh, place->rank), .world = world};
    struct status_saved saved;
    enum status st;
    TRY_OR(open_group(&m, MESH_BIT(MESH_AXIS_TENSOR), &m.tensor), failed);
    TRY_OR(open_group(&m, MESH_BIT(MESH_AXIS_CONTEXT), &m.context), failed);
    TRY_OR(open_group(&m, MESH_COMM_DATA_AXES, &m.data), failed);
    TRY_OR(open_group(&m, MESH_BIT(MESH_AXIS_PIPELINE), &m.pipeline), failed);
    *out = m;
    return ST_OK;
failed:
    status_save(&saved);
    mesh_comm_close(&m);
    status_restore(&saved);
    return st;
}

static void close_group(struct mesh_comm *m, struct comm **group)
{
    if (*group != m->world)
        comm_close(*group);
    *group = NULL;
}

void mesh_comm_close(struct mesh_comm *m)
{
    close_group(m, &m->pipeline);
    close_group(m, &m->data);
    close_group(m, &m->context);
    close_group(m, &m->tensor);
}

/* most_in_node — returns the most ranks of any group along the axes that are in one node. */
static int most_in_node(const struct mesh *mesh, unsigned axes, int locals)
{
    int most = 0;
    for (int rank = 0; rank < mesh_ranks(mesh); rank++) {
        int first = rank / locals * locals, in_node = 0;
        for (int other = first; other < first + locals && other < mesh_ranks(mesh); other++)
            in_node += mesh_is_same_group(mesh, axes, rank, other);
        most = in_node > most ? in_node : most;
    }
    return most;
}

bool mesh_comm_is_within_node(const struct mesh *mesh, unsigned axes, int locals)
{
    for (int rank = 0; rank < mesh_ranks(mesh); rank++) {
        struct mesh_coord at = mesh_coord_of(mesh, rank);
        for (int i = 0; i < MESH_AXES; i++)
            at.at[i] = axes & MESH_BIT(i) ? 0 : at.at[i];
        if (mesh_rank_of(mesh, &at) / locals != rank / locals)
            return false;
    }
    return true;
}

void mesh_comm_link(const struct mesh *mesh, unsigned axes, int locals, const char *backend,
                    char *out, size_t cap)
{
    const char *network = strstr(backend, " + ");
    if (mesh_group_n(mesh, axes) == 1)
        text_copy(out, cap, "");
    else if (network && mesh_comm_is_within_node(mesh, axes, locals))
        text_format(out, cap, "%.*s", (int)(network - backend), backend);
    else if (network && most_in_node(mesh, axes, locals) == 1)
        text_copy(out, cap, network + strlen(" + "));
    else
        text_copy(out, cap, backend);
}
