/* plan_time — the time of a step on a cluster: each operation at the share of the peak that its
 * size reaches, or at the memory's bandwidth; messages by latency and bandwidth, hidden if
 * computation continues during them; the bubble of the pipeline.
 *
 * A pure function. Must not know settings or files. */
#ifndef CONVOY_PLAN_PLAN_TIME_H
#define CONVOY_PLAN_PLAN_TIME_H

#include "plan/plan_cluster.h"
#include "plan/plan_ops.h"

/* Milliseconds of one step, on the slowest rank. OVERLAP is computation: the additional time that
 * it needs because of concurrent calls. X(NAME, text) */
#define PLAN_TIME_LIST(X)                     \
    X(PRODUCTS, "products")                   \
    X(ATTENTION, "attention")                 \
    X(MEMORY, "memory-bound operations")      \
    X(LAUNCH, "launches and the host")        \
    X(OVERLAP, "slowed by communication")     \
    X(OPTIMIZER, "optimiser")                 \
    X(COMM_EXPOSED, "communication, exposed") \
    X(BUBBLE, "pipeline bubble")              \
    X(CHECKPOINT, "checkpoint stall")         \
    X(PROTECTION, "copies and checks")
enum plan_time_kind {
#define PLAN_TIME_ENUM(name, text) PLAN_TIME_##name,
    PLAN_TIME_LIST(PLAN_TIME_ENUM)
#undef PLAN_TIME_ENUM
        PLAN_TIME_N
};
/* plan_time_text — returns the text of PLAN_TIME_LIST. */
const char *plan_time_text(enum plan_time_kind kind);

struct plan_time {
    double ms[PLAN_TIME_N];
    double comm_hidden_ms;     /* not in the sum */
    double axis_ms[MESH_AXES]; /* all communication along each axis, hidden or not */
    double step_ms;            /* the sum of ms */
    /* own kernels compute attention, and the cluster has no rate of them: the time is computed from
     * the cluster's `attention` */
    bool lacks_own_forward, lacks_own_backward;
};

/* plan_time_make — computes the time. ops: one list for each stage of the pipeline (stages 1: one).
 * precision: precision of products. checkpoint_ms: the stall of checkpoints, divided over the
 * steps. If the cluster lacks a peak or a link that is needed, step_ms is infinite. */
void plan_time_make(const struct plan_ops *ops, int stages, enum plan_precision precision,
                    const struct plan_cluster *cluster, double checkpoint_ms,
                    struct plan_time *out);
/* plan_time_call_ms — returns the time of one call: on GPUs by a ring, or for sums by a tree if
 * that is faster; between hosts by two levels. 0: one rank. */
double plan_time_call_ms(const struct plan_cluster *cluster, const struct plan_call *call);

/* plan_time_shares_cores — returns true if `locals` workers of a node have more threads than it has
 * cores. */
bool plan_time_shares_cores(const struct plan_cluster *cluster, int locals);

#endif
