/* step_slice — see step/slice.h. */
#include "train/step/slice.h"

#include "base/assert.h"
#include "mesh/store/state.h"
#include "train/step/feature.h"

const char *step_slice_why(const struct step_config *c)
{
    if (c->local.steps > 0)
        return "with LOCAL_STEPS each node has a state of its own, which is not copied yet";
    if (c->store.shard == LAYOUT_SHARD_HYBRID)
        return "with SHARD=hybrid each node has all shards, which are not copied yet";
    if (c->optim.kind == OPTIM_KIND_MUON)
        return "the moments of Muon are not copied yet";
    return NULL;
}

enum status step_slice_elems_of(const struct step_config *c, int ranks, int rank, bool is_discrete,
                                int64_t *out)
{
    struct param_table table = {0};
    struct mesh mesh;
    TRY(step_mesh(c, ranks, &mesh));
    TRY(step_mesh_rank_table(c, ranks, rank, is_discrete, &table));
    *out = store_slice_elems_of(&table, mesh_group_n(&mesh, MESH_COMM_DATA_AXES),
                                1 + optim_moments(&c->optim), c->store.bucket_elems_min);
    param_table_free(&table);
    return ST_OK;
}

enum status step_slice_elems_most(const struct step_config *c, int ranks, bool is_discrete,
                                  int64_t *out)
{
    struct mesh mesh;
    int64_t most = 0, elems;
    TRY(step_mesh(c, ranks, &mesh));
    for (int stage = 0; stage < mesh.size[MESH_AXIS_PIPELINE]; stage++)
        for (int tensor = 0; tensor < mesh.size[MESH_AXIS_TENSOR]; tensor++) {
            const struct mesh_coord at = {
                .at = {[MESH_AXIS_PIPELINE] = stage, [MESH_AXIS_TENSOR] = tensor}};
            TRY(step_slice_elems_of(c, ranks, mesh_rank_of(&mesh, &at), is_discrete, &elems));
            most = elems > most ? elems : most;
        }
    *out = most;
    return ST_OK;
}

/* ---- among another number of ranks ---- */

/* Elements of a slice that are written to a step of another number of ranks. */
struct resize {
    struct step_core *step;
    int array;
    int64_t first, end;  /* elements of this array that the range holds */
    const float *values; /* values from element `first` on */
};

static enum status write_run(void *arg, const struct store_slice_run *run)
{
    const struct resize *to = arg;
    const int64_t run_end = run->slice_at + run->elems,
                  from = run->slice_at > to->first ? run->slice_at : to->first,
                  end = run_end < to->end ? run_end : to->end;
    const int64_t first =
        to->step->table.param[run->param].offset + run->param_at + from - run->slice_at;
    if (from >= end)
        return ST_OK;
    return state_write(store_state(to->step->store), to->array, first, end - from,
                       to->values + from - to->first);
}

/* is_own_shard — Returns true if the ranks at a coordinate have this rank's shard of the model.
 * Their job has the same tensor ranks and stages. */
static bool is_own_shard(const struct step_core *s, const struct mesh_coord *at)
{
    return at->at[MESH_AXIS_TENSOR] == s->mesh.at.at[MESH_AXIS_TENSOR] &&
           at->at[MESH_AXIS_PIPELINE] == s->mesh.at.at[MESH_AXIS_PIPELINE];
}

static int other_count(const struct state *state, bool is_apart)
{
    (void)is_apart;
    return step_arrays(((const struct step_core *)state->arg)->step);
}

static void other_describe(const struct state *state, int array, int64_t first,
                           struct state_array *out)
{
    const struct step_core *s = state->arg;
    int64_t elems = 0;
    (void)first;
    /* A step of this number of ranks was planned before their slices were copied. */
    const enum status st = step_slice_elems_of(&s->config, state->ranks, state->rank,
                                               dev_is_discrete(s->config.dev), &elems);
    ASSERTF(st == ST_OK, "%s", status_message());
    *out = (struct state_array){
        .kind = STATE_REPLICA, .moment = array, .elems = elems / step_arrays(s->step)};
}

static enum status other_write(const struct state *state, const struct state_range *r)
{
    struct step_core *s = state->arg;
    const struct step_config *c = &s->config;
    struct param_table table = {0};
    struct mesh mesh;
    TRY(step_mesh(c, state->ranks, &mesh));
    const struct mesh_coord at = mesh_coord_of(&mesh, state->rank);
    if (!is_own_shard(s, &at))
        return ST_OK;
    /* The slice belongs to one of the ranks that share its shard of the model. */
    const int of_rank = step_mesh_store_rank_at(&mesh, &at),
              of_ranks = mesh_group_n(&mesh, MESH_COMM_DATA_AXES);
    struct resize to = {s, r->array, r->first, r->first + r->n, r->values};
    TRY(step_mesh_rank_table(c, state->ranks, state->rank, dev_is_discrete(c->dev), &table));
    enum status st =
        store_slice_runs(&table, of_ranks, of_rank, c->store.bucket_elems_min, write_run, &to);
    param_table_free(&table);
    return st;
}

static const struct state_ops other = {other_count, other_describe, NULL, other_write};

struct state step_slice_other(struct step *step, int ranks, int rank)
{
    struct step_core *s = step_core(step);
    return (struct state){.ops = &other, .store = s->store, .arg = s, .rank = rank, .ranks = ranks};
}

/* ---- among the step's ranks ---- */

bool step_slice_has_all(const struct step *step)
{
    const struct state *own = store_state(step_core(step)->store);
    for (int array = 0; array < step_arrays(step); array++)
        if (!state_describe(own, array, 0).here)
            return false;
    return true;
}

struct state step_slice(const struct step *step, int rank)
{
    const struct step_core *s = step_core(step);
    const struct mesh_coord at = mesh_coord_of(&s->mesh.mesh, rank);
    ASSERTF(is_own_shard(s, &at), "rank %d", rank);
    return store_slice(s->store, step_mesh_store_rank_at(&s->mesh.mesh, &at));
}
