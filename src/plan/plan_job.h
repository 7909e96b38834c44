/* plan_job — a job on a described cluster, with every choice made, and the memory that it needs: of
 * each stage, by kind, as train/trainer/memory_plan.h has it. Pure arithmetic. */
#ifndef CONVOY_PLAN_PLAN_JOB_H
#define CONVOY_PLAN_PLAN_JOB_H

#include "plan/plan_cluster.h"
#include "train/trainer/memory_plan.h"

#define PLAN_JOB_STAGES_MAX 64

/* config: neither RECOMPUTE nor SHARD is auto. at: ranks, nodes and locals; of rank 0. */
struct plan_job {
    const struct plan_cluster *cluster;
    struct trainer_config config;
    struct comm_place at;
    enum plan_precision precision;
    bool stays_on_device; /* as memory_plan_place */
    bool follows_ranks;   /* the samples of a step grow with the ranks (GLOBAL_BATCH is not set) */
    int threads_n;        /* CPU: of a worker */
};

/* Sets *out to the mesh of the job's ranks. Errors: ST_BAD_SETTING: ranks or samples cannot be
 * divided so. */
enum status plan_job_mesh(const struct plan_job *job, struct mesh *out);
/* Makes the same job on `nodes` nodes. Returns false if the step cannot be divided among them. */
bool plan_job_nodes(const struct plan_job *job, int nodes, struct plan_job *out);
/* Sets *out to the place of the first rank of a stage. */
void plan_job_place(const struct plan_job *job, const struct mesh *mesh, int stage,
                    struct memory_plan_place *out);

/* A GPU's memory is that of one worker, a CPU's that of all workers of a node. */
struct plan_memory {
    struct memory_plan stage[PLAN_JOB_STAGES_MAX]; /* of its first worker */
    int stages, fullest;                           /* the stage that needs most */
    int64_t need_bytes, have_bytes; /* of the fullest GPU; CPU: of the fullest node */
    int64_t host_bytes;             /* GPU: of the fullest node's host, beside host_memory_bytes */
};

/* Plans the memory. Fails as memory_plan_train does: settings that contradict the model or the
 * mesh. */
enum status plan_job_memory(const struct plan_job *job, struct plan_memory *out);
/* Returns by how many bytes the memory does not fit; at most 0: it fits. */
int64_t plan_job_memory_over(const struct plan_job *job, const struct plan_memory *memory);
/* Returns true if the job fits with what RECOMPUTE=auto leaves free (1/32 of a GPU, 1/8 of a
 * machine); false also if settings contradict. Quick: a few stages stand for all. */
bool plan_job_fits(const struct plan_job *job);

#endif
