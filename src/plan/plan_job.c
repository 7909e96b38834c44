/* plan_job — see plan_job.h. */
#include "plan/plan_job.h"

enum status plan_job_mesh(const struct plan_job *job, struct mesh *out)
{
    const struct step_config *s = &job->config.step;
    TRY(step_mesh(s, job->at.ranks, out));
    int64_t pass = s->batch_samples * out->size[MESH_AXIS_DATA];
    if (s->global_samples >= pass && s->global_samples % pass == 0)
        return ST_OK;
    return FAIL(
        ST_BAD_SETTING,
        "GLOBAL_BATCH=%lld is not a multiple of BATCH_SIZE=%lld times %d groups of workers; "
        "change one of them",
        (long long)s->global_samples, (long long)s->batch_samples, out->size[MESH_AXIS_DATA]);
}

bool plan_job_nodes(const struct plan_job *job, int nodes, struct plan_job *out)
{
    struct mesh mesh;
    struct step_config *s = &out->config.step;
    *out = *job;
    out->at.nodes = nodes;
    out->at.ranks = nodes * job->at.locals;
    if (job->follows_ranks)
        s->global_samples = job->config.step.global_samples / job->at.nodes * nodes;
    bool is_divided = plan_job_mesh(out, &mesh) == ST_OK;
    status_clear();
    return is_divided;
}

void plan_job_place(const struct plan_job *job, const struct mesh *mesh, int stage,
                    struct memory_plan_place *out)
{
    const struct mesh_coord at = {.at = {[MESH_AXIS_PIPELINE] = stage}};
    *out = (struct memory_plan_place){.at = job->at,
                                      .is_discrete = job->cluster->is_gpu,
                                      .stays_on_device = job->stays_on_device,
                                      .threads_n = job->threads_n};
    out->at.rank = mesh_rank_of(mesh, &at);
    out->at.node = out->at.rank / job->at.locals;
    out->at.local = out->at.rank % job->at.locals;
}
