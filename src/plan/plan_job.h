/* plan_job — a job on a described cluster, with every choice made, and the memory that it needs:
 * for each stage, by kind, as in train/trainer/memory_plan.h. Pure arithmetic. */
#ifndef CONVOY_PLAN_PLAN_JOB_H
#define CONVOY_PLAN_PLAN_JOB_H

#include "plan/plan_cluster.h"
#include "train/trainer/memory_plan.h"

#define PLAN_JOB_STAGES_MAX 64

/* config: neither RECOMPUTE nor SHARD is auto. at: ranks, nodes and locals; place of rank 0. */
struct plan_job {
    const struct plan_cluster *cluster;
    struct trainer_config config;
    struct comm_place at;
    enum plan_precision precision;
    bool stays_on_device; /* as in memory_plan_place */
    bool follows_ranks;   /* the samples of a step grow with the ranks (GLOBAL_BATCH is not set) */
    int threads_n;        /* CPU: threads of a worker */
};

/* plan_job_mesh — sets *out to the mesh of the job's ranks. Errors: ST_BAD_SETTING: the ranks or
 * samples cannot be divided among the axes. */
enum status plan_job_mesh(const struct plan_job *job, struct mesh *out);
/* plan_job_nodes — makes the same job on `nodes` nodes. Returns false if the step cannot be divided
 * among them. */
bool plan_job_nodes(const struct plan_job *job, int nodes, struct plan_job *out);
/* plan_job_place — sets *out to the place of the first rank of a stage. */
void plan_job_place(const struct plan_job *job, const struct mesh *mesh, int stage,
                    struct memory_plan_place *out);

/* Memory of a job: on GPUs the memory of one worker, on CPUs the memory of all workers of a
 * node. */
struct plan_memory {
    struct memory_plan stage[PLAN_JOB_STAGES_MAX]; /* plan of each stage's first worker */
    int stages, fullest;                           /* fullest: the stage that needs the most */
    int64_t need_bytes, have_bytes; /* bytes of the fullest GPU; CPU: bytes of the fullest node */
    /* GPU: bytes of the fullest node's host, compared with host_memory_bytes */
    int64_t host_bytes;
};

/* plan_job_memory — plans the memory. Fails like memory_plan_train: settings that contradict the
 * model or the mesh. */
enum status plan_job_memory(const struct plan_job *job, struct plan_memory *out);
/* plan_job_memory_over — returns the bytes by which the memory does not fit; at most 0: it fits. */
int64_t plan_job_memory_over(const struct plan_job *job, const struct plan_memory *memory);
/* plan_job_fits — returns true if the job fits and leaves free the same memory as RECOMPUTE=auto
 * (1/32 of a GPU, 1/8 of a machine); false also if settings contradict. Quick: a few stages stand
 * for all. */
bool plan_job_fits(const struct plan_job *job);

#endif
