/* plan_memory — the memory of a job beside that of a cluster: of each stage, by kind, as
 * train/memory_plan.h has it. Pure arithmetic. */
#ifndef CONVOY_PLAN_PLAN_MEMORY_H
#define CONVOY_PLAN_PLAN_MEMORY_H

#include "plan/plan_job.h"

/* A GPU's memory is that of one worker, a CPU's that of all workers of a node. */
struct plan_memory {
    struct memory_plan stage[PLAN_JOB_STAGES_MAX]; /* of its first worker */
    int stages, fullest;                           /* the stage that needs most */
    int64_t need_bytes, have_bytes; /* of the fullest GPU; CPU: of the fullest node */
    int64_t host_bytes;             /* GPU: of the fullest node's host, beside host_memory_bytes */
};

/* plan_memory_make — fails as memory_plan_train does: settings that contradict the model or the
 * mesh.
 * plan_memory_over — by how many bytes it does not fit; at most 0: it fits. */
enum status plan_memory_make(const struct plan_job *job, struct plan_memory *out);
int64_t plan_memory_over(const struct plan_job *job, const struct plan_memory *memory);
/* plan_memory_fits — with what RECOMPUTE=auto leaves free (1/32 of a GPU, 1/8 of a machine). Quick:
 * a few stages stand for all. false also where settings contradict. */
bool plan_memory_fits(const struct plan_job *job);

#endif
