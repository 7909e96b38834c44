/* step_slice — slices of a step's state (step.h). */
#include "mesh/store_slice.h"
#include "train/step_inside.h"

const char *step_slice_why(const struct step_config *c)
{
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (axis != MESH_AXIS_DATA && c->axis_ranks[axis] > 1)
            return "with TP, PP or CP ranks hold different parts of the model, which are not "
                   "copied "
                   "yet";
    if (c->local.steps > 0)
        return "with LOCAL_STEPS each node has a state of its own, which is not copied yet";
    if (c->store.shard == LAYOUT_SHARD_HYBRID)
        return "with SHARD=hybrid each node has all shards, which are not copied yet";
    if (optim_is_muon(c->optim.kind))
        return "the moments of Muon are not copied yet";
    if (c->dev && dev_is_discrete(c->dev))
        return "the memory of GPUs is not copied yet";
    return NULL;
}

enum status step_slice_elems_of(const struct step_config *c, int ranks, int64_t *out)
{
    struct param_table table = {0};
    TRY(step_mesh_whole_table(c, ranks, &table));
    enum status st = store_slice_elems_of(&table, ranks, 1 + optim_moments(&c->optim),
                                          c->store.bucket_elems_min, out);
    param_table_free(&table);
    return st;
}

/* A slice that is written to a step of another number of ranks. */
struct resize {
    struct step *step;
    const float *slice; /* its run of this part */
    int part;
};

static enum status write_run(void *arg, const struct store_slice_run *run)
{
    const struct resize *to = arg;
    const int64_t first = step_whole_table(to->step)->param[run->param].offset + run->param_at;
    return step_write(to->step, to->part, first, run->elems, to->slice + run->slice_at);
}

enum status step_slice_write(struct step *s, int ranks, int rank, const float *slice)
{
    const struct step_config *c = &s->config;
    const int parts = 1 + optim_moments(&c->optim);
    struct param_table table = {0};
    int64_t elems;
    TRY(step_slice_elems_of(c, ranks, &elems));
    TRY(step_mesh_whole_table(c, ranks, &table));
    enum status st = ST_OK;
    for (int part = 0; part < parts && st == ST_OK; part++) {
        struct resize to = {s, slice + part * (elems / parts), part};
        st = store_slice_runs(&table, ranks, rank, c->store.bucket_elems_min, write_run, &to);
    }
    param_table_free(&table);
    return st;
}

int64_t step_slice_elems(const struct step *s) { return store_slice_elems(s->store); }
bool step_slice_has_all(const struct step *s) { return store_slice_has_all(s->store); }

void step_slice_each(const struct step *s, int rank,
                     void (*take)(void *arg, const float *run, int64_t elems), void *arg)
{
    store_slice_each(s->store, rank, take, arg);
}

enum status step_slice_set(struct step *s, const float *src)
{
    return store_slice_set(s->store, src);
}
