/* plan_ops — the work of one rank in one step of training, as a list: operations with their FLOPs
 * and bytes, and messages between ranks. It depends only on the settings and the place in the mesh.
 *
 * The list is not written by hand: the model and the store are run without memory and without
 * computing (train/step/dry.h). A test compares it with the operations that a step really executes,
 * for each architecture and mesh.
 *
 * Must not know any speed. */
#ifndef CONVOY_PLAN_PLAN_OPS_H
#define CONVOY_PLAN_PLAN_OPS_H

#include "dev/op_cost.h"
#include "train/trainer/memory_plan.h"

/* Operations of the same kind and size are one row. */
struct plan_op {
    enum op_kind op;
    struct op_cost cost;   /* cost of one operation */
    int64_t rows, in, out; /* shape of a product; else 0 */
    int64_t width;         /* attention: width of a head; else 0 */
    /* runs in one micro-batch, forward and backward together; a mean over the micro-batches of a
     * step, since the first one does not read the gradients that the others add to */
    double per_pass;
    double per_step; /* additional runs, once a step */
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
    PLAN_CALL_MESSAGE /* from this rank to another stage: rows, or their gradient */
};

/* Calls of the same kind and size along one axis are one row. */
struct plan_call {
    enum plan_call_kind kind;
    enum mesh_axis axis;
    int ranks;        /* ranks of the group */
    int ranks_inside; /* ranks of the group on the rank's own node */
    /* groups of that node that make such a call with the same other nodes at the same time, and so
     * share the link to them; for messages, the ranks that send. 0: as many groups as the node's
     * ranks can form */
    int sharers;
    double bytes; /* bytes of the whole buffer of one call, as for comm.h */
    double per_pass, per_step;
    bool is_hidden;  /* computation continues during the call */
    bool is_to_next; /* a message to the next stage, with rows; else to the stage before */
};

struct plan_ops {
    struct plan_op *op;
    int ops_n, ops_cap;
    struct plan_call *call;
    int calls_n, calls_cap;
    int64_t passes;            /* micro-batches of a step */
    int stages, stage, chunks; /* place in the pipeline; chunks of a stage */
    int nodes, locals;         /* nodes of the job; ranks of a node */
    double tokens;             /* tokens of a step, on all ranks */
    double model_flops;        /* FLOPs of a step, on all ranks: model_flops_per_token */
};

/* plan_ops_make — makes the list of the rank at place->at. Reads the same fields of the config as
 * memory_plan_train, and fails like it. */
enum status plan_ops_make(const struct trainer_config *config,
                          const struct memory_plan_place *place, struct plan_ops *out);
/* plan_ops_free — frees the list; may be called twice. */
void plan_ops_free(struct plan_ops *ops);

#endif
