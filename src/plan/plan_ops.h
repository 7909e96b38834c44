/* plan_ops — the work of one rank in one step of training, as a list: operations with their FLOPs
 * and bytes, and messages between ranks. It follows the settings and the place in the mesh alone.
 *
 * The list is not written by hand: the model and the store are run without memory and without
 * computing (train/step/dry.h). A test compares it with what a step really executes, for each
 * architecture and mesh.
 *
 * Must not know how fast anything is. */
#ifndef CONVOY_PLAN_PLAN_OPS_H
#define CONVOY_PLAN_PLAN_OPS_H

#include "dev/op_cost.h"
#include "train/trainer/memory_plan.h"

/* Operations of the same kind and size are one row. */
struct plan_op {
    enum op_kind op;
    struct op_cost cost;   /* of one */
    int64_t rows, in, out; /* of a product: its shape; else 0 */
    int64_t width;         /* of attention: of a head; else 0 */
    /* how often in one micro-batch, forward and backward together, as the mean of a step's: the
     * first one does not read the gradients that the others add to */
    double per_pass;
    double per_step; /* and how often besides, once a step */
    bool is_own;     /* attention of a GPU, computed by the program's own kernels */
    bool is_backward;
    bool is_again; /* computed again in the backward pass (RECOMPUTE) */
};

enum plan_call_kind {
    PLAN_CALL_ALL_REDUCE,
    PLAN_CALL_REDUCE_SCATTER,
    PLAN_CALL_ALL_GATHER,
    PLAN_CALL_ALL_TO_ALL,
    PLAN_CALL_BROADCAST,
    PLAN_CALL_MESSAGE /* that this rank sends to another stage: rows, or their gradient */
};

/* Calls of the same kind and size along one axis are one row. */
struct plan_call {
    enum plan_call_kind kind;
    enum mesh_axis axis;
    int ranks;        /* of the group */
    int ranks_inside; /* of them, on the rank's own node */
    /* groups of that node that make such a call with the same other nodes at once, and so share the
     * link to them; of messages, ranks that send. 0: as many as its ranks suffice for */
    int sharers;
    double bytes; /* of the whole buffer of one call, as for comm.h */
    double per_pass, per_step;
    bool is_hidden;  /* computation goes on beside it */
    bool is_to_next; /* a message to the stage behind, with rows; else to the one before */
};

struct plan_ops {
    struct plan_op *op;
    int ops_n, ops_cap;
    struct plan_call *call;
    int calls_n, calls_cap;
    int64_t passes;            /* micro-batches of a step */
    int stages, stage, chunks; /* of the pipeline; chunks of a stage */
    int nodes, locals;         /* of the job; locals: ranks of a node */
    double tokens;             /* of a step, on all ranks */
    double model_flops;        /* of a step, on all ranks: model_flops_per_token */
};

/* plan_ops_make — of the rank at place->at. Reads of the config what memory_plan_train reads.
 * Fails as memory_plan_train does. plan_ops_free — may be called twice. */
enum status plan_ops_make(const struct trainer_config *config,
                          const struct memory_plan_place *place, struct plan_ops *out);
void plan_ops_free(struct plan_ops *ops);

#endif
