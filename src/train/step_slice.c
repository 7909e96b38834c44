/* step_slice — slices of a step's state (step.h). */
#include "base/assert.h"
#include "mesh/store_slice.h"
#include "train/step_inside.h"

const char *step_slice_why(const struct step_config *c)
{
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (axis != MESH_AXIS_DATA && c->axis_ranks[axis] > 1)
            return "with TP, PP or CP ranks hold different parts of the model, which are not "
                   "copied "
                   "yet";
    if (step_virtual_parts(c) > 1)
        return "with VIRTUAL_TP ranks hold the model in parts, which are not copied yet";
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

enum status step_slice_elems_shared(const struct step *s, int ranks, int64_t *out)
{
    return step_slice_elems_of(&s->config, ranks, out);
}

/* Elements of a slice that are written to a step of another number of ranks. */
struct resize {
    struct step *step;
    int part;
    int64_t first, end;  /* those of this part's run */
    const float *values; /* of `first` */
};

static enum status write_run(void *arg, const struct store_slice_run *run)
{
    const struct resize *to = arg;
    const int64_t run_end = run->slice_at + run->elems,
                  from = run->slice_at > to->first ? run->slice_at : to->first,
                  end = run_end < to->end ? run_end : to->end;
    const int64_t first =
        step_whole_table(to->step)->param[run->param].offset + run->param_at + from - run->slice_at;
    if (from >= end)
        return ST_OK;
    return store_set(to->step->store, to->part, first, end - from, to->values + from - to->first);
}

/* write_parts — each: of a part's run. */
static enum status write_parts(struct step *s, const struct param_table *table, int ranks, int rank,
                               int64_t each, int64_t first, int64_t n, const float *values)
{
    for (int part = (int)(first / each); part * each < first + n; part++) {
        const int64_t from = part * each > first ? part * each : first,
                      end = (part + 1) * each < first + n ? (part + 1) * each : first + n;
        struct resize to = {s, part, from - part * each, end - part * each, values + from - first};
        TRY(store_slice_runs(table, ranks, rank, s->config.store.bucket_elems_min, write_run, &to));
    }
    return ST_OK;
}

enum status step_slice_write(struct step *s, int ranks, int rank, int64_t first, int64_t n,
                             const float *values)
{
    const struct step_config *c = &s->config;
    struct param_table table = {0};
    int64_t elems;
    TRY(step_slice_elems_of(c, ranks, &elems));
    ASSERTF(first >= 0 && n > 0 && first + n <= elems, "elements %lld and %lld of %lld",
            (long long)first, (long long)n, (long long)elems);
    TRY(step_mesh_whole_table(c, ranks, &table));
    enum status st = write_parts(s, &table, ranks, rank, elems / (1 + optim_moments(&c->optim)),
                                 first, n, values);
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
