/* loss_cost — the cost of a lost node for a job, as one line for people: of a plan, with planned
 * numbers, and of a run, with measured ones. Pure. */
#ifndef CONVOY_BASE_LOSS_COST_H
#define CONVOY_BASE_LOSS_COST_H

#include "base/text.h"

struct loss_cost {
    int nodes;
    /* steps from one copy in peers' memory to the next; 0: there are no copies; -1: not known yet
     * (a GPU's worker measures it) */
    int64_t copy_every;
    int64_t copy_bytes;       /* host memory of a node for them */
    int64_t checkpoint_every; /* 0: no checkpoint before the end; -1: unknown */
    double step_ms;           /* NAN: unknown */
    double recovery_ms;       /* duration of the last recovery of this run; NAN: there was none */
};

/* loss_cost_steps — returns the most finished steps that a loss repeats; -1: all of the run, or not
 * known yet. */
int64_t loss_cost_steps(const struct loss_cost *cost);
/* loss_cost_text — writes the line, such as "a lost node costs at most 1 step (2.1 s); copies use
 * 6.2 GiB of host memory on each node"; "": unknown. Returns out. */
#define LOSS_COST_TEXT 320 /* room for it */
const char *loss_cost_text(const struct loss_cost *cost, char *out, size_t cap);

#endif
