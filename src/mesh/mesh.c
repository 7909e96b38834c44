/* mesh — see mesh.h. */
#include "mesh/mesh.h"

#include <string.h>

#include "base/assert.h"
#include "base/text.h"

/* From the outermost to the innermost. */
static const enum mesh_axis order[MESH_AXES] = {MESH_AXIS_PIPELINE, MESH_AXIS_DATA,
                                                MESH_AXIS_CONTEXT, MESH_AXIS_TENSOR};

enum status mesh_make(int ranks, int tensor, int context, int pipeline, struct mesh *out)
{
    int64_t others = (int64_t)tensor * context * pipeline;
    if (tensor < 1 || context < 1 || pipeline < 1)
        return FAIL(ST_BAD_SETTING, "TP=%d, CP=%d, PP=%d; each must be 1 or more", tensor, context,
                    pipeline);
    if (others > ranks || ranks % others != 0)
        return FAIL(ST_BAD_SETTING,
                    "TP=%d x CP=%d x PP=%d are %lld ranks, which do not divide the job's %d "
                    "(N_NODES x N_GPU_EACH_NODE); change one of them",
                    tensor, context, pipeline, (long long)others, ranks);
    *out = (struct mesh){.size = {[MESH_AXIS_TENSOR] = tensor,
                                  [MESH_AXIS_CONTEXT] = context,
                                  [MESH_AXIS_DATA] = ranks / (int)others,
                                  [MESH_AXIS_PIPELINE] = pipeline}};
    return ST_OK;
}

int mesh_ranks(const struct mesh *mesh) { return mesh_group_n(mesh, MESH_BIT(MESH_AXES) - 1); }

int mesh_group_n(const struct mesh *mesh, unsigned axes)
{
    int n = 1;
    for (int i = 0; i < MESH_AXES; i++)
        n *= axes & MESH_BIT(i) ? mesh->size[i] : 1;
    return n;
}

struct mesh_coord mesh_coord_of(const struct mesh *mesh, int rank)
{
    struct mesh_coord coord;
    ASSERTF(rank >= 0 && rank < mesh_ranks(mesh), "rank %d of %d", rank, mesh_ranks(mesh));
    for (int i = MESH_AXES - 1; i >= 0; i--) {
        coord.at[order[i]] = rank % mesh->size[order[i]];
        rank /= mesh->size[order[i]];
    }
    return coord;
}

int mesh_rank_of(const struct mesh *mesh, const struct mesh_coord *coord)
{
    int rank = 0;
    for (int i = 0; i < MESH_AXES; i++)
        rank = rank * mesh->size[order[i]] + coord->at[order[i]];
    return rank;
}

bool mesh_is_same_group(const struct mesh *mesh, unsigned axes, int rank, int other)
{
    struct mesh_coord a = mesh_coord_of(mesh, rank), b = mesh_coord_of(mesh, other);
    for (int i = 0; i < MESH_AXES; i++)
        if (!(axes & MESH_BIT(i)) && a.at[i] != b.at[i])
            return false;
    return true;
}

int mesh_group(const struct mesh *mesh, int rank, unsigned axes, int *out)
{
    int n = 0;
    for (int other = 0; other < mesh_ranks(mesh); other++)
        if (mesh_is_same_group(mesh, axes, rank, other))
            out[n++] = other;
    return n;
}

const char *mesh_axis_name(enum mesh_axis axis)
{
    static const char *const name[] = {"tensor", "context", "data", "pipeline"};
    return name[axis];
}

/* is_shared — returns true if all of the ranks have the same position along the axis. */
static bool is_shared(const struct mesh *mesh, enum mesh_axis axis, int rank, int ranks)
{
    for (int other = rank + 1; other < rank + ranks; other++)
        if (mesh_coord_of(mesh, other).at[axis] != mesh_coord_of(mesh, rank).at[axis])
            return false;
    return true;
}

const char *mesh_place(const struct mesh *mesh, int rank, int ranks, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = 0;
    if (mesh_ranks(mesh) == mesh->size[MESH_AXIS_DATA])
        return out;
    for (int i = 0; i < MESH_AXES; i++) {
        const enum mesh_axis axis = order[i];
        if (mesh->size[axis] == 1 || !is_shared(mesh, axis, rank, ranks))
            continue;
        text_format(out + n, cap - n, "%s%s %d", n > 0 ? ", " : "",
                    axis == MESH_AXIS_PIPELINE ? "stage" : mesh_axis_name(axis),
                    mesh_coord_of(mesh, rank).at[axis]);
        n += strlen(out + n);
    }
    return out;
}
