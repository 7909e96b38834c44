/* step_dry — what one rank does in a step, without doing it: the code of the model and the store
 * runs on a device that computes nothing (dev/dev_dry.h), and a listener is told of every operation
 * and every call to other ranks. It takes no memory of the model's size.
 *
 * The step is any but the first: what the one before it deferred to it is told, what it defers
 * itself is not. Blocks that do the same, and micro-batches, are run once and told with a number of
 * times.
 *
 * Where data decide, the most is taken: every token differs from the others. Operations of gradient
 * compression, which run on another device, are not told. Must not know how fast anything is. */
#ifndef CONVOY_TRAIN_STEP_DRY_H
#define CONVOY_TRAIN_STEP_DRY_H

#include "dev/op_cost.h"
#include "train/step/memory.h"

/* is_in_pass: in each micro-batch, or in some of them; else once a step. times: in the step. */
struct step_dry_op {
    enum op_kind op;
    const void *args; /* as op_cost's; of addresses only whether they are NULL counts */
    double times;
    bool is_in_pass, is_backward;
    bool is_again; /* computed again in the backward pass */
};

enum step_dry_call_kind {
    STEP_DRY_CALL_ALL_REDUCE,
    STEP_DRY_CALL_REDUCE_SCATTER,
    STEP_DRY_CALL_ALL_GATHER,
    STEP_DRY_CALL_ALL_TO_ALL,
    STEP_DRY_CALL_MESSAGE /* that this rank sends; ranks: it and the receiver */
};
/* Sums of numbers over all ranks of the job are told as of the data axis. */
struct step_dry_call {
    enum step_dry_call_kind kind;
    enum mesh_axis axis;
    const int *ranks; /* of the job, ascending; at least two */
    int ranks_n;
    int64_t bytes; /* of the whole buffer, as comm.h counts its elements */
    double times;
    bool is_in_pass;
    bool is_hidden; /* computation goes on beside it */
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

/* step_dry_run — of the rank at a place. Reads of the config what step_plan reads, and fails as it
 * does; ST_BAD_SETTING also: the global batch has no micro-batch for each rank. */
enum status step_dry_run(const struct step_config *config, const struct step_place *place,
                         const struct step_dry_listener *listener, struct step_dry_about *out);

#endif
