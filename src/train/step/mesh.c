/* step_mesh — the place of a step's rank in the mesh: its communicators, its shard of the model,
 * its samples. step/context.c has the positions that it computes of each sample. */
#include "mesh/store/exact.h"
#include "train/step/pipe.h"

static int ranks_along(const struct step_config *c, enum mesh_axis axis)
{
    return c->axis_ranks[axis] > 0 ? c->axis_ranks[axis] : 1;
}

enum status step_mesh(const struct step_config *c, int ranks, struct mesh *out)
{
    return mesh_make(ranks, ranks_along(c, MESH_AXIS_TENSOR), ranks_along(c, MESH_AXIS_CONTEXT),
                     ranks_along(c, MESH_AXIS_PIPELINE), out);
}

/* Returns true if a rank computes a shard of the model. */
static bool has_shards(const struct step_config *c)
{
    return ranks_along(c, MESH_AXIS_TENSOR) > 1 || ranks_along(c, MESH_AXIS_PIPELINE) > 1;
}

/* Fails with ST_BAD_SETTING if the ranks along the data axis cannot share the virtual shards of a
 * configuration. It accepts one without shards. */
static enum status check_shards(const struct step_config *c, const struct mesh *mesh)
{
    const int ranks = mesh->size[MESH_AXIS_DATA];
    if (c->shards == 0)
        return ST_OK;
    if (c->shards < ranks)
        return FAIL(ST_BAD_SETTING,
                    "EXACT=layout: %d virtual shards are fewer than %d data-parallel workers, each "
                    "of which computes at least one; raise VIRTUAL_SHARDS, or use fewer workers",
                    c->shards, ranks);
    if (c->shards % ranks != 0 && mesh->size[MESH_AXIS_PIPELINE] > 1)
        return FAIL(ST_BAD_SETTING,
                    "EXACT=layout: with PP the pipelines have equal numbers of virtual shards, but "
                    "%d is not a multiple of %d; change VIRTUAL_SHARDS",
                    c->shards, ranks);
    if (c->global_samples % c->shards != 0 || c->global_samples / c->shards % c->batch_samples != 0)
        return FAIL(ST_BAD_SETTING,
                    "EXACT=layout: GLOBAL_BATCH=%lld cannot be divided into VIRTUAL_SHARDS=%d "
                    "shards of whole micro-batches of BATCH_SIZE=%lld; change one of them",
                    (long long)c->global_samples, c->shards, (long long)c->batch_samples);
    if (step_pipe_ends_is_tied(c) && mesh->size[MESH_AXIS_PIPELINE] > 1 &&
        c->global_samples / c->shards != c->batch_samples)
        return FAIL(ST_BAD_SETTING,
                    "EXACT=layout: with PP and an embedding that the output layer shares, each "
                    "virtual shard is one micro-batch, and VIRTUAL_SHARDS=%d of "
                    "GLOBAL_BATCH=%lld have %lld samples of BATCH_SIZE=%lld; set "
                    "VIRTUAL_SHARDS=%lld",
                    c->shards, (long long)c->global_samples,
                    (long long)(c->global_samples / c->shards), (long long)c->batch_samples,
                    (long long)(c->global_samples / c->batch_samples));
    return ST_OK;
}

/* With BALANCE=auto, the largest number of samples of a rank, as a multiple of the mean. It limits
 * host memory, and the losses that GPUs all-gather. */
#define BALANCED_MOST 4

/* Returns the largest number of samples that a rank may have in a step: of whole virtual shards, or
 * of whole micro-batches. */
static int64_t count_samples_most(const struct step_config *c, int ranks)
{
    const int64_t units = c->shards > 0 ? c->shards : c->global_samples / c->batch_samples,
                  equal = (units + ranks - 1) / ranks,
                  most = BALANCED_MOST * equal < units - ranks + 1 ? BALANCED_MOST * equal
                                                                   : units - ranks + 1;
    return c->global_samples / units * (c->balances ? most : equal);
}

static bool is_divided(const struct step_config *c, int ranks)
{
    return ranks > 1 && (has_shards(c) || c->store.shard != LAYOUT_SHARD_NONE);
}

bool step_mesh_divides_state(const struct step_config *c, int ranks)
{
    return is_divided(c, ranks) || (ranks > 1 && c->local.steps > 0);
}

bool step_mesh_divides_passes(const struct step_config *c, int ranks)
{
    return is_divided(c, ranks) || ranks_along(c, MESH_AXIS_CONTEXT) > 1;
}

/* pad_table — Pads a table for the ranks that share it. */
static void pad_table(const struct step_config *c, struct param_table *table, int ranks)
{
    if (c->shards > 0)
        layout_pad_blocks(table, ranks);
    else
        layout_pad(table, ranks);
}

/* vocab_multiple — Returns the multiple that products on a device of this kind need. */
static int64_t vocab_multiple(bool is_discrete)
{
    return is_discrete ? MODEL_VOCAB_MULTIPLE_GPU : 0;
}

/* Lists parameters of a model or of a shard of it: model_describe_trained, or
 * model_ops.describe. */
typedef enum status (*describe_fn)(const struct model_dims *dims, struct param_table *out);

/* The table of a shard is padded for the ranks that share it, and a replica's table for its own
 * ranks. A whole table of a divided model is for files only. */
static enum status describe_whole(const struct step_config *c, int ranks, bool is_discrete,
                                  describe_fn describe, struct param_table *out)
{
    struct model_dims dims = c->dims;
    dims.shard.vocab_multiple = vocab_multiple(is_discrete);
    TRY(describe(&dims, out));
    if (!has_shards(c))
        pad_table(c, out,
                  c->local.steps > 0 && c->local.replica_ranks > 0 ? c->local.replica_ranks
                                                                   : ranks);
    return ST_OK;
}

enum status step_mesh_whole_table(const struct step_config *c, int ranks, bool is_discrete,
                                  struct param_table *out)
{
    return describe_whole(c, ranks, is_discrete, model_describe_trained, out);
}

int step_mesh_context_ranks(const struct step_core *s)
{
    return s->mesh.mesh.size[MESH_AXIS_CONTEXT];
}
int step_mesh_data_rank(const struct step_core *s) { return s->mesh.at.at[MESH_AXIS_DATA]; }
int step_mesh_data_ranks(const struct step_core *s) { return s->mesh.mesh.size[MESH_AXIS_DATA]; }

/* ---- life ---- */

enum status step_mesh_open(struct step_core *s)
{
    const int ranks = s->config.comm ? comm_place(s->config.comm)->ranks : 1;
    struct mesh mesh;
    TRY(step_mesh(&s->config, ranks, &mesh));
    if (!s->config.comm || (ranks > 1 && mesh_group_n(&mesh, MESH_COMM_DATA_AXES) == 1)) {
        /* A comm of one rank. */
        int64_t bytes;
        char address[COMM_ADDRESS_MAX];
        struct comm_config alone = {.kind = COMM_KIND_SELF,
                                    .place = {.ranks = 1, .nodes = 1, .locals = 1},
                                    .timeout_ms = 60000,
                                    .shm_fd = -1};
        TRY(comm_begin_open(&alone, &s->comm_alone, address, &bytes));
        TRY(comm_end_open(s->comm_alone, 0, address, &bytes));
    }
    if (!s->config.comm)
        s->config.comm = s->comm_alone;
    return mesh_comm_open(s->config.comm, &mesh, &s->mesh);
}

struct comm *step_mesh_data(const struct step_core *s)
{
    if (s->mesh.data)
        return s->mesh.data;
    return mesh_ranks(&s->mesh.mesh) > 1 ? s->comm_alone : s->config.comm;
}

void step_mesh_close(struct step_core *s)
{
    part_map_free(&s->map);
    part_map_free(&s->frozen.map);
    tensor_axis_close(&s->tensor);
    tensor_axis_close(&s->context);
    mesh_comm_close(&s->mesh);
    comm_close(s->comm_alone);
    s->comm_alone = NULL;
}

/* ---- this rank's model shard ---- */

enum status step_mesh_place(struct step_core *s, int rank, int ranks)
{
    TRY(step_mesh(&s->config, ranks, &s->mesh.mesh));
    s->mesh.at = mesh_coord_of(&s->mesh.mesh, rank);
    return ST_OK;
}

int step_mesh_store_rank_at(const struct mesh *mesh, const struct mesh_coord *at)
{
    return at->at[MESH_AXIS_DATA] * mesh->size[MESH_AXIS_CONTEXT] + at->at[MESH_AXIS_CONTEXT];
}
int step_mesh_store_rank(const struct step_core *s)
{
    return step_mesh_store_rank_at(&s->mesh.mesh, &s->mesh.at);
}
int step_mesh_store_ranks(const struct step_core *s)
{
    return mesh_group_n(&s->mesh.mesh, MESH_COMM_DATA_AXES);
}

/* Describes the shard of the model that the ranks at a coordinate compute, and its parameters. The
 * caller frees the table. */
static enum status describe_shard(const struct step_core *s, struct mesh_coord at,
                                  describe_fn describe, struct model_shard *shard,
                                  struct model_dims *dims, struct param_table *table)
{
    *shard = (struct model_shard){0};
    TRY(step_pipe_shard(s, at.at[MESH_AXIS_PIPELINE], shard));
    shard->tensor_rank = at.at[MESH_AXIS_TENSOR];
    shard->tensor_ranks = s->mesh.mesh.size[MESH_AXIS_TENSOR];
    shard->context_ranks = step_mesh_context_ranks(s);
    TRY(model_shard_dims(&s->config.dims, shard, dims));
    TRY(describe(dims, table));
    pad_table(&s->config, table, step_mesh_store_ranks(s));
    return ST_OK;
}

enum status step_mesh_rank_table(const struct step_config *c, int ranks, int rank, bool is_discrete,
                                 struct param_table *out)
{
    struct step_core s = {.config = *c};
    struct model_shard shard;
    struct model_dims dims;
    s.config.dims.shard.vocab_multiple = vocab_multiple(is_discrete);
    TRY(step_mesh_place(&s, rank, ranks));
    s.samples = count_samples_most(c, step_mesh_data_ranks(&s));
    return describe_shard(&s, s.mesh.at, model_describe_trained, &shard, &dims, out);
}

struct store_exact_place step_mesh_exact(const struct step_core *s)
{
    return (struct store_exact_place){.shard = &s->all_stages,
                                      .tensor_rank = s->mesh.at.at[MESH_AXIS_TENSOR],
                                      .tensor_ranks = s->mesh.mesh.size[MESH_AXIS_TENSOR],
                                      .context_ranks = step_mesh_context_ranks(s)};
}

/* Describes the frozen parameters, if there is an adapter. */
static enum status describe_frozen(struct step_core *s, bool is_discrete)
{
    struct model_shard shard;
    struct model_dims dims;
    if (s->config.dims.adapter.r == 0)
        return ST_OK;
    TRY(describe_shard(s, s->mesh.at, s->model->describe, &shard, &dims, &s->frozen.table));
    return s->has_whole ? describe_whole(&s->config, mesh_ranks(&s->mesh.mesh), is_discrete,
                                         s->model->describe, &s->frozen.whole)
                        : ST_OK;
}

enum status step_mesh_describe(struct step_core *s, bool is_discrete)
{
    s->has_whole = has_shards(&s->config);
    s->config.dims.shard.vocab_multiple = vocab_multiple(is_discrete);
    TRY(check_shards(&s->config, &s->mesh.mesh));
    s->samples = count_samples_most(&s->config, step_mesh_data_ranks(s));
    /* Among ranks that have the same samples, one counts their targets: the first of its tensor and
     * its context group, in the last stage. The same rank counts losses, except a language model's
     * over a context group, where each rank has the losses of its own positions. */
    const struct mesh_comm *m = &s->mesh;
    bool is_first = m->at.at[MESH_AXIS_CONTEXT] == 0,
         is_one = m->at.at[MESH_AXIS_TENSOR] == 0 &&
                  m->at.at[MESH_AXIS_PIPELINE] == m->mesh.size[MESH_AXIS_PIPELINE] - 1;
    s->counts_targets = is_one && is_first;
    s->counts_losses = is_one && (is_first || s->config.dims.task == MODEL_TASK_LM);
    TRY(model_shard_tokens(s->config.seq_tokens, step_mesh_context_ranks(s), &s->own_tokens));
    struct model_shard shard;
    TRY(describe_shard(s, s->mesh.at, model_describe_trained, &shard, &s->dims, &s->table));
    s->model = model_ops(&s->dims);
    TRY(describe_frozen(s, is_discrete));
    TRY(step_pipe_describe(s, &shard));
    /* If a tensor has copies, the gradient norm counts one: the copy of the first of its tensor
     * ranks, and the token embedding of the first stage, not of the last. */
    for (int i = 0; i < s->table.params_n; i++) {
        struct param *row = &s->table.param[i];
        row->is_counted_elsewhere = s->mesh.at.at[MESH_AXIS_TENSOR] % row->tensor_copies != 0 ||
                                    (row->unit == 0 && s->dims.shard.lacks_embed);
    }
    if (s->config.shards > 0) {
        /* The tensors of the last tensor rank, which has no fewer rows of the vocabulary than any
         * other. */
        const int tensor_ranks = s->mesh.mesh.size[MESH_AXIS_TENSOR];
        const struct model_shard last = {
            .tensor_rank = tensor_ranks - 1, .tensor_ranks = tensor_ranks, .context_ranks = 1};
        struct model_dims last_dims;
        TRY(model_shard_dims(&s->config.dims, &last, &last_dims));
        TRY(model_describe_trained(&last_dims, &s->all_stages));
    }
    return s->has_whole ? step_mesh_whole_table(&s->config, mesh_ranks(&s->mesh.mesh), is_discrete,
                                                &s->whole)
                        : ST_OK;
}

void step_mesh_forget(struct step_core *s)
{
    param_table_free(&s->table);
    param_table_free(&s->whole);
    param_table_free(&s->all_stages);
    param_table_free(&s->frozen.table);
    param_table_free(&s->frozen.whole);
}

/* Makes the map from the model shards to the whole model. */
static enum status make_map(const struct step_core *s, describe_fn describe,
                            const struct param_table *whole, struct part_map *map)
{
    const struct mesh *mesh = &s->mesh.mesh;
    const int tensor = mesh->size[MESH_AXIS_TENSOR],
              shards = tensor * mesh->size[MESH_AXIS_PIPELINE];
    part_map_init(whole, shards, map);
    for (int i = 0; i < shards; i++) {
        const struct mesh_coord at = {
            .at = {[MESH_AXIS_TENSOR] = i % tensor, [MESH_AXIS_PIPELINE] = i / tensor}};
        struct model_shard shard;
        struct model_dims dims;
        struct param_table table = {0};
        enum status st = describe_shard(s, at, describe, &shard, &dims, &table);
        if (st == ST_OK)
            st = part_map_add(map, i, &table);
        param_table_free(&table);
        TRY(st);
    }
    return part_map_check(map);
}

enum status step_mesh_open_state(struct step_core *s)
{
    const struct mesh *mesh = &s->mesh.mesh;
    struct store *frozen = store_frozen(s->store);
    struct comm *world = s->local.world ? s->local.world : s->config.comm;
    s->state =
        s->local.is_on ? step_local_state(s) : state_of_model(s->config.comm, s->store, mesh, NULL);
    if (frozen)
        s->frozen.state = state_of_model(world, frozen, mesh, NULL);
    if (!s->has_whole)
        return ST_OK;
    TRY(make_map(s, model_describe_trained, &s->whole, &s->map));
    s->state = state_of_model(s->config.comm, s->store, mesh, &s->map);
    if (!frozen)
        return ST_OK;
    TRY(make_map(s, s->model->describe, &s->frozen.whole, &s->frozen.map));
    s->frozen.state = state_of_model(world, frozen, mesh, &s->frozen.map);
    return ST_OK;
}

/* check_axes — checks that sums over the tensor and the context axis have one order. On a GPU the
 * comm itself adds them: NCCL in an order of its own, which is no choice for two ranks. */
static enum status check_axes(const struct step_core *s)
{
    const int tensor = s->tensor.model.ranks, context = s->context.model.ranks;
    const bool has_tree = s->tensor.all.tree || s->tensor.keys.tree || s->context.all.tree,
               is_free = comm_stays_on_device(s->config.comm) && (tensor > 2 || context > 2);
    if (s->config.shards == 0 || !dev_is_discrete(s->config.dev) || (!has_tree && !is_free))
        return ST_OK;
    return FAIL(
        ST_BAD_SETTING,
        "EXACT=layout: sums of GPUs with TP=%d and CP=%d have no fixed order; set both to at "
        "most 2%s",
        tensor, context, is_free ? ", or BACKEND=tcp" : "");
}

enum status step_mesh_open_axes(struct step_core *s)
{
    TRY(tensor_axis_of_context(s->mesh.context, s->config.shards > 0, &s->context));
    TRY(tensor_axis_open(s->mesh.tensor, &s->dims, s->config.shards > 0, &s->tensor));
    s->context_axis = &s->context.model;
    s->tensor_axis = &s->tensor.model;
    return check_axes(s);
}

/* ---- samples ---- */

/* micros_before — Returns the micro-batches before data rank `rank`, of `micros`: runs as equal as
 * possible, or as dealt. A step of BATCH_WARMUP has fewer micro-batches than the deal: each rank
 * has one, and the others are divided in the same proportions. */
static int64_t micros_before(const struct step_core *s, int rank, int64_t micros)
{
    const int ranks = step_mesh_data_ranks(s);
    if (!s->deal)
        return micros * rank / ranks;
    return rank + (s->deal[rank] - rank) * (micros - ranks) / (s->deal[ranks] - ranks);
}

/* Returns the samples of a step before the samples of data rank `rank`: whole virtual shards, or
 * whole micro-batches. */
static int64_t samples_before(const struct step_core *s, int rank, int64_t all)
{
    const int64_t batch = s->config.batch_samples;
    return s->config.shards > 0 ? store_exact_deal(s->store)[rank] * step_shards_each(s)
                                : micros_before(s, rank, all / batch) * batch;
}

int64_t step_mesh_samples(const struct step_core *s, int rank, int64_t all)
{
    return samples_before(s, rank + 1, all) - samples_before(s, rank, all);
}

int64_t step_mesh_sample_first(const struct step_core *s, int64_t all)
{
    return s->local.replica * all + samples_before(s, step_mesh_data_rank(s), all);
}

int64_t step_mesh_samples_most(const struct step_core *s, int64_t all)
{
    int64_t most = 0;
    for (int rank = 0; rank < step_mesh_data_ranks(s); rank++) {
        const int64_t n = step_mesh_samples(s, rank, all);
        most = n > most ? n : most;
    }
    return most;
}

enum status step_mesh_idle_passes(struct step_core *s, int64_t all)
{
    const int blocks = (int)s->dims.layers;
    if (s->pipe)
        return ST_OK;
    const int64_t idle =
        step_mesh_samples_most(s, all) - step_mesh_samples(s, step_mesh_data_rank(s), all);
    for (int64_t first = 0; first < idle; first += s->config.batch_samples) {
        for (int unit = 0; unit <= blocks; unit++)
            TRY(store_unshard(s->store, unit, 1));
        TRY(step_unshard_head(s));
        for (int unit = blocks; unit >= 1; unit--)
            TRY(store_unshard(s->store, unit, -1));
    }
    return ST_OK;
}

/* ---- virtual shards ---- */

int64_t step_shards_each(const struct step_core *s)
{
    return s->config.global_samples / s->config.shards;
}

int step_shards_of(const struct step_core *s, int64_t first)
{
    return (int)(first / step_shards_each(s));
}

void step_shards_shorten(struct step_config *c, int64_t samples)
{
    c->global_samples = samples;
    c->shards = c->shards > 0 ? (int)(samples / c->batch_samples) : 0;
}

void step_shards_share(const struct step_config *c, int ranks, int rank, int64_t *first_out,
                       int64_t *samples_out)
{
    const int64_t shards = c->shards > 0 ? c->shards : c->global_samples / c->batch_samples,
                  each = c->global_samples / shards;
    *first_out = shards * rank / ranks * each;
    *samples_out = (shards * (rank + 1) / ranks - shards * rank / ranks) * each;
}

void step_shards_bind(const struct step_core *s, int64_t first, struct pass *p)
{
    if (s->config.shards == 0)
        return;
    store_exact_bind(s->store, step_shards_of(s, first), p);
    p->accumulate = first % step_shards_each(s) > 0;
}

/* ---- gradients that are partial on each rank of the tensor axis ---- */

static bool is_partial(const struct param *p, int unit)
{
    return p->unit == unit && p->grad_is_partial;
}

int64_t step_mesh_partial_elems(const struct step_core *s)
{
    int64_t most = 0;
    for (int unit = 0; unit < s->table.units_n; unit++) {
        int64_t elems = 0;
        for (int row = 0; row < s->table.params_n; row++)
            elems += is_partial(&s->table.param[row], unit) ? s->table.param[row].elems : 0;
        most = elems > most ? elems : most;
    }
    return most;
}

/* Copies a unit's partial gradients of tensors with `copies` copies to the buffer or back. Returns
 * the number of their elements in *elems_out. */
static enum status copy_partial(struct step_core *s, const struct pass *p, int unit, int copies,
                                bool is_back, int64_t *elems_out)
{
    int64_t elems = 0;
    for (int row = 0; row < s->table.params_n; row++) {
        const struct param *param = &s->table.param[row];
        if (!is_partial(param, unit) || param->tensor_copies != copies)
            continue;
        void *grad = tensor_at(p->grads, p->grad_table->param[row].offset).data,
             *at = tensor_at(s->partial, elems).data;
        TRY(dev_copy(s->stream, is_back ? grad : at, is_back ? at : grad,
                     (size_t)param->elems * sizeof(float)));
        elems += param->elems;
    }
    *elems_out = elems;
    return ST_OK;
}

enum status step_mesh_sum_partial(struct step_core *s, int64_t first, int unit)
{
    const struct model_axis *axis = s->tensor_axis;
    struct pass p = {0};
    if (axis->ranks == 1)
        return ST_OK;
    store_bind(s->store, &p);
    step_shards_bind(s, first, &p);
    for (int copies = 2; copies <= axis->ranks; copies++) {
        int64_t elems;
        TRY(copy_partial(s, &p, unit, copies, false, &elems));
        if (elems == 0)
            continue;
        TRY(axis->sum(axis->arg, s->stream, s->partial, elems, copies));
        TRY(copy_partial(s, &p, unit, copies, true, &elems));
    }
    return ST_OK;
}
