/* step_resident — a step's state in a rank's memory between two steps (step.h). */
#include "base/assert.h"
#include "mesh/store_resident.h"
#include "train/step_inside.h"

bool step_resident_take(struct step *s, struct store_resident *out)
{
    return step_slice_why(&s->config) == NULL &&
           step_mesh_store_ranks(s) == mesh_ranks(&s->mesh.mesh) &&
           store_resident_take(s->store, out);
}

struct tensor step_resident_whole(const struct step *s, int part, int64_t *elems_out)
{
    const struct tensor whole = store_replicated(s->store, part);
    ASSERTF(whole.data, "part %d", part);
    *elems_out = step_own_table(s)->total_elems;
    return whole;
}
