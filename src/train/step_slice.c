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
