/* step_mesh — where a step's rank is in the mesh: its communicators, its part of the model, its
 * samples. */
#include "model/model_part.h"
#include "train/step_pipe.h"

static int ranks_along(const struct step_config *c, enum mesh_axis axis)
{
    return c->axis_ranks[axis] > 0 ? c->axis_ranks[axis] : 1;
}

enum status step_mesh(const struct step_config *c, int ranks, struct mesh *out)
{
    return mesh_make(ranks, ranks_along(c, MESH_AXIS_TENSOR), ranks_along(c, MESH_AXIS_CONTEXT),
                     ranks_along(c, MESH_AXIS_PIPELINE), out);
}

int step_mesh_data_rank(const struct step *s) { return s->mesh.at.at[MESH_AXIS_DATA]; }
int step_mesh_data_ranks(const struct step *s) { return s->mesh.mesh.size[MESH_AXIS_DATA]; }

/* ---- life ---- */

/* open_alone — a comm of one rank. */
static enum status open_alone(struct step *s)
{
    int64_t bytes;
    char address[COMM_ADDRESS_MAX];
    struct comm_config alone = {.kind = COMM_KIND_SELF,
                                .place = {.ranks = 1, .nodes = 1, .locals = 1},
                                .timeout_ms = 60000,
                                .shm_fd = -1};
    TRY(comm_begin_open(&alone, &s->comm_alone, address, &bytes));
    return comm_end_open(s->comm_alone, 0, address, &bytes);
}

enum status step_mesh_open(struct step *s)
{
    const int ranks = s->config.comm ? comm_place(s->config.comm)->ranks : 1;
    struct mesh mesh;
    TRY(step_mesh(&s->config, ranks, &mesh));
    if (!s->config.comm || (ranks > 1 && mesh_group_n(&mesh, MESH_COMM_DATA_AXES) == 1))
        TRY(open_alone(s));
    if (!s->config.comm)
        s->config.comm = s->comm_alone;
    return mesh_comm_open(s->config.comm, &mesh, &s->mesh);
}

struct comm *step_mesh_data(const struct step *s)
{
    if (s->mesh.data)
        return s->mesh.data;
    return mesh_ranks(&s->mesh.mesh) > 1 ? s->comm_alone : s->config.comm;
}

void step_mesh_close(struct step *s)
{
    mesh_comm_close(&s->mesh);
    comm_close(s->comm_alone);
    s->comm_alone = NULL;
}

/* ---- this rank's part ---- */

enum status step_mesh_place(struct step *s, int rank, int ranks)
{
    TRY(step_mesh(&s->config, ranks, &s->mesh.mesh));
    s->mesh.at = mesh_coord_of(&s->mesh.mesh, rank);
    return ST_OK;
}

int step_mesh_store_rank(const struct step *s)
{
    const struct mesh *mesh = &s->mesh.mesh;
    return s->mesh.at.at[MESH_AXIS_DATA] * mesh->size[MESH_AXIS_CONTEXT] +
           s->mesh.at.at[MESH_AXIS_CONTEXT];
}
int step_mesh_store_ranks(const struct step *s)
{
    return mesh_group_n(&s->mesh.mesh, MESH_COMM_DATA_AXES);
}

/* Of ranks that have the same samples, one counts: the first of its tensor group, which in the last
 * stage has the losses. */
static bool counts(const struct mesh_comm *m)
{
    return m->at.at[MESH_AXIS_TENSOR] == 0 &&
           m->at.at[MESH_AXIS_PIPELINE] == m->mesh.size[MESH_AXIS_PIPELINE] - 1;
}

/* mark_counted — the gradient norm counts the token embedding of the first stage, not the copy of
 * the last one. */
static void mark_counted(struct step *s)
{
    struct param *first = &s->table.param[0];
    first->is_counted_elsewhere = first->unit == 0 && s->dims.part.lacks_embed;
}

static enum status count_whole(struct step *s)
{
    struct param_table whole = {0};
    TRY(s->model->describe(&s->config.dims, &whole));
    s->whole_params_n = whole.params_n;
    param_table_free(&whole);
    return ST_OK;
}

enum status step_mesh_describe(struct step *s)
{
    struct model_part part = {0};
    s->samples = s->config.global_samples / step_mesh_data_ranks(s);
    s->counts = counts(&s->mesh);
    TRY(step_pipe_part(s, s->mesh.at.at[MESH_AXIS_PIPELINE], &part));
    TRY(step_pipe_describe(s, &part));
    TRY(model_part_dims(&s->config.dims, &part, &s->dims));
    s->model = model_ops(&s->dims);
    TRY(s->model->describe(&s->dims, &s->table));
    mark_counted(s);
    TRY(count_whole(s));
    layout_pad(&s->table, step_mesh_store_ranks(s));
    return ST_OK;
}
