/* plan_job — a job on a described cluster, with every choice made: what is planned. */
#ifndef CONVOY_PLAN_PLAN_JOB_H
#define CONVOY_PLAN_PLAN_JOB_H

#include "plan/plan_cluster.h"
#include "train/memory_plan.h"

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

/* plan_job_mesh — the mesh of its ranks. ST_BAD_SETTING: ranks or samples cannot be divided so.
 * plan_job_nodes — the same job on so many nodes; false: the step cannot be divided among them.
 * plan_job_place — the first rank of a stage. */
enum status plan_job_mesh(const struct plan_job *job, struct mesh *out);
bool plan_job_nodes(const struct plan_job *job, int nodes, struct plan_job *out);
void plan_job_place(const struct plan_job *job, const struct mesh *mesh, int stage,
                    struct memory_plan_place *out);

#endif
