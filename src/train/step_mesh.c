/* step_mesh — where a step's rank is in the mesh: its communicators, its part of the model, its
 * samples. Which positions of them: step_context.c. */
#include "mesh/tensor_virtual.h"
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

/* has_parts — a rank computes a part of the model, or several. */
static bool has_parts(const struct step_config *c)
{
    return step_virtual_parts(c) > 1 || ranks_along(c, MESH_AXIS_PIPELINE) > 1;
}

bool step_mesh_moves_state(const struct step_config *c, int ranks)
{
    return ranks > 1 || dev_is_discrete(c->dev) || c->local.steps > 0 ||
           c->optim.kind == OPTIM_KIND_MUON || has_parts(c);
}

static bool is_divided(const struct step_config *c, int ranks)
{
    return ranks > 1 && (has_parts(c) || c->store.shard != LAYOUT_SHARD_NONE);
}

bool step_mesh_divides_state(const struct step_config *c, int ranks)
{
    return is_divided(c, ranks) || (ranks > 1 && c->local.steps > 0);
}

bool step_mesh_divides_passes(const struct step_config *c, int ranks)
{
    return is_divided(c, ranks) || ranks_along(c, MESH_AXIS_CONTEXT) > 1;
}

/* pad — for ranks that share a table. */
static void pad(const struct step_config *c, struct param_table *table, int ranks)
{
    if (c->shards > 0)
        layout_pad_blocks(table, ranks);
    else
        layout_pad(table, ranks);
}

/* vocab_multiple — of products on a device of this kind. */
static int64_t vocab_multiple(bool is_discrete)
{
    return is_discrete ? MODEL_VOCAB_MULTIPLE_GPU : 0;
}

/* The table of parts is padded for the ranks that share them, and that of a replica for its own;
 * the whole one is for files alone. */
enum status step_mesh_whole_table(const struct step_config *c, int ranks, bool is_discrete,
                                  struct param_table *out)
{
    struct model_dims dims = c->dims;
    dims.part.vocab_multiple = vocab_multiple(is_discrete);
    TRY(model_ops(&dims)->describe(&dims, out));
    if (!has_parts(c))
        pad(c, out,
            c->local.steps > 0 && c->local.replica_ranks > 0 ? c->local.replica_ranks : ranks);
    return ST_OK;
}

int step_mesh_context_ranks(const struct step *s) { return s->mesh.mesh.size[MESH_AXIS_CONTEXT]; }
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
    part_map_free(&s->map);
    tensor_axis_close(&s->tensor);
    tensor_axis_close(&s->context);
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

int step_mesh_store_rank_at(const struct mesh *mesh, const struct mesh_coord *at)
{
    return at->at[MESH_AXIS_DATA] * mesh->size[MESH_AXIS_CONTEXT] + at->at[MESH_AXIS_CONTEXT];
}
int step_mesh_store_rank(const struct step *s)
{
    return step_mesh_store_rank_at(&s->mesh.mesh, &s->mesh.at);
}
int step_mesh_store_ranks(const struct step *s)
{
    return mesh_group_n(&s->mesh.mesh, MESH_COMM_DATA_AXES);
}

/* set_counts — of ranks that have the same samples, one counts their targets: the first of its
 * tensor and its context group, in the last stage. So it is with losses, but for a language model's
 * over a context group, where each rank has those of its own positions. */
static void set_counts(struct step *s)
{
    const struct mesh_comm *m = &s->mesh;
    bool is_first = m->at.at[MESH_AXIS_CONTEXT] == 0,
         is_one = m->at.at[MESH_AXIS_TENSOR] == 0 &&
                  m->at.at[MESH_AXIS_PIPELINE] == m->mesh.size[MESH_AXIS_PIPELINE] - 1;
    s->counts_targets = is_one && is_first;
    s->counts_losses = is_one && (is_first || s->config.dims.task == MODEL_TASK_LM);
}

/* describe_part — what a tensor rank of a stage computes. The caller frees the table. */
static enum status describe_part(const struct step *s, int stage, int tensor_rank,
                                 struct model_part *part, struct model_dims *dims,
                                 struct param_table *table)
{
    *part = (struct model_part){0};
    TRY(step_pipe_part(s, stage, part));
    part->tensor_rank = tensor_rank;
    part->tensor_ranks = step_virtual_parts(&s->config);
    part->context_ranks = step_mesh_context_ranks(s);
    TRY(model_part_dims(&s->config.dims, part, dims));
    return model_ops(dims)->describe(dims, table);
}

/* join_parts — the table of `n` virtual ranks from tensor rank `first` on. */
static enum status join_parts(const struct step *s, int stage, int first, int n,
                              struct param_table *table)
{
    struct param_table each[TENSOR_VIRTUAL_MAX] = {{0}};
    struct model_part part;
    struct model_dims dims;
    enum status st = ST_OK;
    for (int i = 0; st == ST_OK && i < n; i++)
        st = describe_part(s, stage, first + i, &part, &dims, &each[i]);
    if (st == ST_OK)
        st = param_join(each, n, table);
    for (int i = 0; i < n; i++)
        param_table_free(&each[i]);
    return st;
}

/* describe_rank — what the ranks at a coordinate compute; part and dims: of the first virtual rank,
 * where they have several. The caller frees the table. */
static enum status describe_rank(const struct step *s, struct mesh_coord at,
                                 struct model_part *part, struct model_dims *dims,
                                 struct param_table *table)
{
    const int n = step_virtual_n(&s->config), stage = at.at[MESH_AXIS_PIPELINE],
              first = at.at[MESH_AXIS_TENSOR] * n;
    TRY(describe_part(s, stage, first, part, dims, table));
    if (n > 1) {
        param_table_free(table);
        TRY(join_parts(s, stage, first, n, table));
    }
    pad(&s->config, table, step_mesh_store_ranks(s));
    return ST_OK;
}

enum status step_mesh_rank_table(const struct step_config *c, int ranks, int rank,
                                 struct param_table *out)
{
    struct step s = {.config = *c};
    struct model_part part;
    struct model_dims dims;
    TRY(step_mesh_place(&s, rank, ranks));
    s.samples = step_shards_most(c, step_mesh_data_ranks(&s));
    return describe_rank(&s, s.mesh.at, &part, &dims, out);
}

/* mark_counted — of a tensor with copies the gradient norm counts one: of its tensor ranks the
 * first's, and the token embedding of the first stage, not that of the last one. */
static void mark_counted(struct step *s)
{
    for (int i = 0; i < s->table.params_n; i++) {
        struct param *row = &s->table.param[i];
        row->is_counted_elsewhere = row->tensor_rank % row->tensor_copies != 0 ||
                                    (row->unit == 0 && s->dims.part.lacks_embed);
    }
}

static enum status describe_own(struct step *s)
{
    struct model_part part;
    TRY(describe_rank(s, s->mesh.at, &part, &s->dims, &s->table));
    TRY(step_pipe_describe(s, &part));
    mark_counted(s);
    return ST_OK;
}

/* describe_all_stages — what the last tensor rank holds, which has no fewer rows of the vocabulary
 * than another one. */
static enum status describe_all_stages(struct step *s)
{
    const int ranks = step_virtual_parts(&s->config);
    const struct model_part part = {
        .tensor_rank = ranks - 1, .tensor_ranks = ranks, .context_ranks = 1};
    struct model_dims dims;
    TRY(model_part_dims(&s->config.dims, &part, &dims));
    return model_ops(&dims)->describe(&dims, &s->all_stages);
}

struct store_exact_place step_mesh_exact(const struct step *s)
{
    return (struct store_exact_place){.part = &s->all_stages,
                                      .tensor_ranks = step_virtual_parts(&s->config),
                                      .context_ranks = step_mesh_context_ranks(s)};
}

enum status step_mesh_describe(struct step *s, bool is_discrete)
{
    s->config.dims.part.vocab_multiple = vocab_multiple(is_discrete);
    TRY(step_shards_check(&s->config, &s->mesh.mesh));
    TRY(step_virtual_check(&s->config));
    s->samples = step_shards_most(&s->config, step_mesh_data_ranks(s));
    set_counts(s);
    TRY(model_part_tokens(s->config.seq_tokens, step_mesh_context_ranks(s), &s->own_tokens));
    TRY(describe_own(s));
    s->model = model_ops(&s->dims);
    TRY(step_virtual_describe(s));
    if (s->config.shards > 0)
        TRY(describe_all_stages(s));
    s->has_whole = has_parts(&s->config);
    return s->has_whole ? step_mesh_whole_table(&s->config, mesh_ranks(&s->mesh.mesh), is_discrete,
                                                &s->whole)
                        : ST_OK;
}

void step_mesh_forget(struct step *s)
{
    step_virtual_forget(s);
    param_table_free(&s->table);
    param_table_free(&s->whole);
    param_table_free(&s->all_stages);
}

/* add_rank — the parts of the ranks at a coordinate, from part `first` of the map on. */
static enum status add_rank(struct step *s, struct mesh_coord at, int first)
{
    const int n = step_virtual_n(&s->config);
    struct model_part own;
    struct model_dims dims;
    struct param_table table = {0};
    enum status st = describe_rank(s, at, &own, &dims, &table);
    for (int i = 0; st == ST_OK && i < n; i++) {
        struct param_table part = {0};
        st = param_of_part(&table, own.tensor_rank + i, &part);
        if (st == ST_OK)
            st = part_map_add(&s->map, first + i, &part);
        param_table_free(&part);
    }
    param_table_free(&table);
    return st;
}

enum status step_mesh_open_state(struct step *s)
{
    const struct mesh *mesh = &s->mesh.mesh;
    const int tensor = mesh->size[MESH_AXIS_TENSOR], each = step_virtual_n(&s->config),
              places = tensor * mesh->size[MESH_AXIS_PIPELINE];
    s->state = (struct mesh_state){
        .world = s->config.comm, .mesh = *mesh, .store = s->store, .each = each};
    if (!s->has_whole)
        return ST_OK;
    TRY(part_map_init(&s->whole, places * each, &s->map));
    for (int i = 0; i < places; i++) {
        const struct mesh_coord at = {
            .at = {[MESH_AXIS_TENSOR] = i % tensor, [MESH_AXIS_PIPELINE] = i / tensor}};
        TRY(add_rank(s, at, i * each));
    }
    s->state.map = &s->map;
    return part_map_check(&s->map);
}

/* open_tensor — the axis of the ranks; its parts are theirs, not those of virtual ranks. */
static enum status open_tensor(struct step *s)
{
    struct model_dims dims = s->dims;
    if (!s->mesh.tensor)
        return ST_OK;
    dims.part.tensor_rank = s->mesh.at.at[MESH_AXIS_TENSOR];
    dims.part.tensor_ranks = s->mesh.mesh.size[MESH_AXIS_TENSOR];
    TRY(tensor_axis_open(s->mesh.tensor, &dims, s->config.shards > 0, &s->tensor));
    s->tensor_axis = &s->tensor.model;
    return ST_OK;
}

enum status step_mesh_open_axes(struct step *s)
{
    if (s->mesh.context) {
        TRY(tensor_axis_of_context(s->mesh.context, s->config.shards > 0, &s->context));
        s->context_axis = &s->context.model;
    }
    TRY(open_tensor(s));
    return step_virtual_open(s);
}

/* ---- gradients of which each rank of the tensor axis has a part ---- */

static bool is_partial(const struct param *p, int unit, int tensor_rank)
{
    return p->unit == unit && p->tensor_rank == tensor_rank && p->grad_is_partial;
}

/* partial_each — of s->partial, for one virtual rank; all have as many. */
static int64_t partial_each(const struct step *s)
{
    int64_t most = 0;
    for (int unit = 0; unit < s->table.units_n; unit++) {
        int64_t elems = 0;
        for (int row = 0; row < s->table.params_n; row++)
            elems += is_partial(&s->table.param[row], unit, s->dims.part.tensor_rank)
                         ? s->table.param[row].elems
                         : 0;
        most = elems > most ? elems : most;
    }
    return (most + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

int64_t step_mesh_partial_elems(const struct step *s)
{
    return step_virtual_n(&s->config) * partial_each(s);
}

/* A unit's gradients of which a virtual rank has a part, and where they are added up. */
struct partial {
    struct step *s;
    struct pass pass;
    int unit;
    int64_t each; /* elements of the buffer of one */
};

/* copy_partial — those with so many copies, of virtual rank i, to the buffer or back. Returns in
 * *elems_out how many elements they have. */
static enum status copy_partial(const struct partial *of, int i, int copies, bool is_back,
                                int64_t *elems_out)
{
    struct step *s = of->s;
    const struct pass *p = &of->pass;
    struct tensor buffer = tensor_at(s->partial, i * of->each);
    int64_t elems = 0;
    for (int row = 0; row < s->table.params_n; row++) {
        const struct param *param = &s->table.param[row];
        if (!is_partial(param, of->unit, s->dims.part.tensor_rank + i) ||
            param->tensor_copies != copies)
            continue;
        void *grad = tensor_at(p->grads, p->grad_table->param[row].offset).data,
             *at = tensor_at(buffer, elems).data;
        TRY(dev_copy(s->stream, is_back ? grad : at, is_back ? at : grad,
                     (size_t)param->elems * sizeof(float)));
        elems += param->elems;
    }
    *elems_out = elems;
    return ST_OK;
}

/* sum_partial — of virtual rank i. */
static enum status sum_partial(void *arg, int i)
{
    const struct partial *of = arg;
    struct step *s = of->s;
    const struct model_axis *axis = step_virtual_axis(s, i);
    for (int copies = 2; copies <= axis->parts; copies++) {
        int64_t elems;
        TRY(copy_partial(of, i, copies, false, &elems));
        if (elems == 0)
            continue;
        TRY(axis->sum(axis->arg, s->stream, tensor_at(s->partial, i * of->each), elems, copies));
        TRY(copy_partial(of, i, copies, true, &elems));
    }
    return ST_OK;
}

enum status step_mesh_sum_partial(struct step *s, int64_t first, int unit)
{
    if (!s->tensor_axis)
        return ST_OK;
    struct partial of = {.s = s, .unit = unit, .each = partial_each(s)};
    store_bind(s->store, &of.pass);
    step_shards_bind(s, first, &of.pass);
    /* a comparison of shards has this rank's own gradients; not all of its passes add them up */
    struct step_shard_trace *now = s->check.now;
    s->check.now = NULL;
    enum status st = step_virtual_each(s, sum_partial, &of);
    s->check.now = now;
    return st;
}
