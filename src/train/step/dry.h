/* step_dry — the operations and calls of one rank in a step, without their execution. The code of
 * the model and the store runs on a device that computes nothing (dev/dev_dry.h), and a listener
 * gets every operation and every call to other ranks. No memory of the model's size is allocated.
 *
 * The step is any but the first: it includes the work that the step before deferred to it, and not
 * the work that it defers itself. Blocks that do the same, and micro-batches, are run once and
 * reported with a number of times.
 *
 * If the work depends on the data, the largest amount is reported: all tokens differ. Operations of
 * gradient compression, which run on another device, are not reported. Must not know how fast
 * anything is. */
#ifndef CONVOY_TRAIN_STEP_DRY_H
#define CONVOY_TRAIN_STEP_DRY_H

#include "dev/op_cost.h"
#include "train/step/memory.h"

/* is_in_pass: it runs in each micro-batch, or in some of them; else once in a step. times: its
 * number in the step. */
struct step_dry_op {
    enum op_kind op;
    const void *args; /* as op_cost's; an address only counts as NULL or not NULL */
    double times;
    bool is_in_pass, is_backward;
    bool is_again; /* computed again in the backward pass */
};

enum step_dry_call_kind {
    STEP_DRY_CALL_ALL_REDUCE,
    STEP_DRY_CALL_REDUCE_SCATTER,
    STEP_DRY_CALL_ALL_GATHER,
    STEP_DRY_CALL_ALL_TO_ALL,
    STEP_DRY_CALL_MESSAGE /* sent by this rank; ranks: it and the receiver */
};
/* Sums of numbers over all ranks of the job are reported with the data axis. */
struct step_dry_call {
    enum step_dry_call_kind kind;
    enum mesh_axis axis;
    const int *ranks; /* ranks of the job, ascending; at least two */
    int ranks_n;
    int64_t bytes; /* size of the whole buffer, as comm.h counts its elements */
    double times;
    bool is_in_pass;
    bool is_hidden; /* computation continues during the call */
};

struct step_dry_listener {
    void (*on_op)(void *arg, const struct step_dry_op *op);
    void (*on_call)(void *arg, const struct step_dry_call *call);
    void *arg;
};

/* stages 1: no pipeline. passes: micro-batches of a step, on each rank along the data axis. */
struct step_dry_about {
    int stages, stage, chunks;
    int64_t passes;
};

/* step_dry_run — reports the step of the rank at a place. Reads the same members of the config as
 * step_plan, and fails as it does. Also fails with ST_BAD_SETTING if the global batch has no
 * micro-batch for each rank. */
enum status step_dry_run(const struct step_config *config, const struct step_place *place,
                         const struct step_dry_listener *listener, struct step_dry_about *out);

#endif
