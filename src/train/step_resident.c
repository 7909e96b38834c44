/* step_resident — a step's state in a rank's memory between two steps (step.h). */
#include "base/assert.h"
#include "mesh/store_resident.h"
#include "train/step_inside.h"

bool step_resident_take(struct step *s, struct store_resident *out)
{
    return step_slice_why(&s->config) == NULL && store_resident_take(s->store, out);
}

static enum status write_part(struct step *s, int part, const struct param_table *from_table,
                              const float *from)
{
    const struct param_table *to = step_whole_table(s);
    for (int i = 0; i < to->params_n; i++)
        TRY(store_set(s->store, part, to->param[i].offset, to->param[i].elems,
                      from + from_table->param[i].offset));
    return ST_OK;
}

enum status step_resident_write(struct step *s, int ranks, const struct store_resident *from)
{
    struct param_table table = {0};
    TRY(step_mesh_whole_table(&s->config, ranks, &table));
    ASSERTF(from->parts_n == step_parts(s) &&
                from->bytes == table.total_elems * (int64_t)sizeof(float),
            "%d parts of %lld bytes, %lld elements", from->parts_n, (long long)from->bytes,
            (long long)table.total_elems);
    enum status st = ST_OK;
    for (int part = 0; part < from->parts_n && st == ST_OK; part++)
        st = write_part(s, part, &table, from->part[part].data);
    param_table_free(&table);
    return st;
}

struct tensor step_resident_whole(const struct step *s, int part, int64_t *elems_out)
{
    const struct tensor whole = store_replicated(s->store, part);
    ASSERTF(whole.data, "part %d", part);
    *elems_out = step_own_table(s)->total_elems;
    return whole;
}
