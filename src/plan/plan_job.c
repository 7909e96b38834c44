/* plan_job — see plan_job.h. */
#include "plan/plan_job.h"

#define MICROS_QUICK 4 /* micro-batches for each stage: more are never in flight */

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

/* ---- memory ---- */

enum status plan_job_memory(const struct plan_job *job, struct plan_memory *out)
{
    struct mesh mesh;
    TRY(plan_job_mesh(job, &mesh));
    out->stages = mesh.size[MESH_AXIS_PIPELINE];
    if (out->stages > PLAN_JOB_STAGES_MAX)
        return FAIL(ST_BAD_SETTING, "PP=%d is over the limit of %d stages; lower it", out->stages,
                    PLAN_JOB_STAGES_MAX);
    for (int stage = 0; stage < out->stages; stage++) {
        /* The memory of the stage's first worker, and the stage if it needs the most so far. */
        struct memory_plan_place place;
        plan_job_place(job, &mesh, stage, &place);
        TRY(memory_plan_train(&job->config, &place, &out->stage[stage]));
        const int64_t *bytes =
            job->cluster->is_gpu ? out->stage[stage].device : out->stage[stage].host;
        int64_t sum = memory_plan_sum(bytes);
        if (stage == 0 || sum > out->need_bytes) {
            out->need_bytes = sum;
            out->fullest = stage;
        }
    }
    out->have_bytes = (int64_t)job->cluster->memory_bytes;
    out->host_bytes = 0;
    for (int node = 0; node < job->at.nodes; node++) {
        /* Sums all workers of a node. Only rank 0 has a copy for checkpoints. */
        int64_t sum = MEMORY_PLAN_SUPERVISOR_BYTES;
        for (int local = 0; local < job->at.locals; local++) {
            int rank = node * job->at.locals + local;
            const int64_t *host =
                out->stage[mesh_coord_of(&mesh, rank).at[MESH_AXIS_PIPELINE]].host;
            sum += memory_plan_sum(host) - (rank > 0 ? host[MEMORY_PLAN_CHECKPOINT] : 0);
        }
        out->host_bytes = sum > out->host_bytes ? sum : out->host_bytes;
    }
    if (!job->cluster->is_gpu)
        out->need_bytes = out->host_bytes;
    return ST_OK;
}

int64_t plan_job_memory_over(const struct plan_job *job, const struct plan_memory *memory)
{
    int64_t over = memory->need_bytes - memory->have_bytes,
            host = memory->host_bytes - (int64_t)job->cluster->host_memory_bytes;
    bool has_host = job->cluster->is_gpu && job->cluster->host_memory_bytes > 0;
    return has_host && host > over ? host : over;
}

/* Sets *out to whether one stage fits, as if all workers of a node belonged to it. */
static enum status fits_stage(const struct plan_job *job, const struct mesh *mesh, int stage,
                              bool *out)
{
    const struct plan_cluster *c = job->cluster;
    struct memory_plan_place place;
    struct memory_plan plan;
    plan_job_place(job, mesh, stage, &place);
    TRY(memory_plan_train(&job->config, &place, &plan));
    double device = (double)memory_plan_sum(plan.device), host = (double)memory_plan_sum(plan.host),
           copy = (double)plan.host[MEMORY_PLAN_CHECKPOINT],
           node = (double)MEMORY_PLAN_SUPERVISOR_BYTES + copy + (host - copy) * job->at.locals,
           most = c->is_gpu ? c->host_memory_bytes : c->memory_bytes - c->memory_bytes / 8;
    *out = (!c->is_gpu || device <= c->memory_bytes - c->memory_bytes / 32) &&
           (most <= 0 || node <= most);
    return ST_OK;
}

/* Checks three stages: the first stage has the most micro-batches in flight, the second one has the
 * most of all stages without the embedding, the last one has the head. */
bool plan_job_fits(const struct plan_job *asked)
{
    struct mesh mesh;
    struct plan_job quick = *asked;
    const struct plan_job *job = &quick;
    bool fits = plan_job_mesh(job, &mesh) == ST_OK;
    if (fits) {
        /* Few micro-batches, so that the order of stages is planned quickly; the number in flight
         * stays the same. */
        struct step_config *s = &quick.config.step;
        const int stages = mesh.size[MESH_AXIS_PIPELINE];
        int64_t pass = s->batch_samples * mesh.size[MESH_AXIS_DATA],
                most = (int64_t)MICROS_QUICK * stages;
        if (stages > 1 && s->global_samples > most * pass)
            s->global_samples = most * pass;
    }
    const int stages = fits ? mesh.size[MESH_AXIS_PIPELINE] : 0, tried[] = {0, stages - 1, 1};
    for (int i = 0; fits && i < 3 && i < stages; i++)
        fits = fits_stage(job, &mesh, tried[i], &fits) == ST_OK && fits;
    status_clear();
    return fits;
}
