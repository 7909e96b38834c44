/* checkpoint_names — see checkpoint_names.h. */
#include "train/checkpoint_names.h"

#include "base/text.h"

const char *const checkpoint_names[STEP_PARTS_MAX] = {"model", "optim_m", "optim_v"};

void checkpoint_names_replica(int replica, int part, char out[CHECKPOINT_NAMES_BYTES])
{
    if (part == 0)
        text_format(out, CHECKPOINT_NAMES_BYTES, "inner_%d", replica);
    else if (replica == 0)
        text_copy(out, CHECKPOINT_NAMES_BYTES, checkpoint_names[part]);
    else
        text_format(out, CHECKPOINT_NAMES_BYTES, "%s_%d", checkpoint_names[part], replica);
}

void checkpoint_names_part(const struct step *step, int part, char out[CHECKPOINT_NAMES_BYTES])
{
    const struct step_local_part what = step_local_state_part(step, part);
    if (part == 0) /* the outer parameters of replicas are the model to others */
        text_copy(out, CHECKPOINT_NAMES_BYTES, checkpoint_names[0]);
    else if (what.kind == STEP_LOCAL_MOMENTUM)
        text_copy(out, CHECKPOINT_NAMES_BYTES, "outer_m");
    else if (what.kind == STEP_LOCAL_RESIDUAL_SUM)
        text_copy(out, CHECKPOINT_NAMES_BYTES, "outer_e");
    else if (what.kind == STEP_LOCAL_RESIDUAL)
        text_format(out, CHECKPOINT_NAMES_BYTES, "outer_e_%d", what.replica);
    else
        checkpoint_names_replica(what.replica, what.part, out);
}
