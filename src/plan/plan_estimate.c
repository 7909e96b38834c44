/* plan_estimate — see plan_estimate.h. */
#include "plan/plan_estimate.h"

#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/pipe/split.h"
#include "train/step/optim.h"
#include "train/feature/step_local.h"
#include "train/peer_copy/peer_copy.h"

/* The lists of all stages. Equal stages share one list. */
struct lists {
    struct plan_ops ops[PLAN_JOB_STAGES_MAX];
    int stages;
    int64_t layers[PLAN_JOB_STAGES_MAX]; /* layers of each stage */
    bool is_shared[PLAN_JOB_STAGES_MAX]; /* true: the list is an earlier stage's */
};

/* ---- stages ---- */

/* Returns a stage between the first and the last that does the same work; -1: none yet. */
static int like_stage(const struct plan_job *job, const struct lists *l, int stage)
{
    if (stage + 1 == l->stages || job->config.step.recompute.layers > 0)
        return -1;
    for (int other = 1; other < stage; other++)
        if (l->layers[other] == l->layers[stage])
            return other;
    return -1;
}

static enum status make_lists(const struct plan_job *job, struct lists *l)
{
    struct mesh mesh;
    struct memory_plan_place place;
    TRY(plan_job_mesh(job, &mesh));
    l->stages = mesh.size[MESH_AXIS_PIPELINE];
    if (l->stages > PLAN_JOB_STAGES_MAX)
        return FAIL(ST_BAD_SETTING, "PP=%d is over the limit of %d stages; lower it", l->stages,
                    PLAN_JOB_STAGES_MAX);
    if (l->stages > 1) {
        /* Count the layers of each stage. */
        const struct step_config *c = &job->config.step;
        const int chunks = c->pipe_chunks > 0 ? c->pipe_chunks : 1;
        int64_t first[PLAN_JOB_STAGES_MAX * 8 + 1];
        ASSERTF(chunks <= 8, "%d chunks", chunks);
        double *cost = memory_new((size_t)(c->dims.layers + 2), sizeof *cost);
        pipe_split_costs(&c->dims, c->seq_tokens, c->recompute, cost);
        enum status st = pipe_split(cost, c->dims.layers, l->stages, chunks, first);
        free(cost);
        for (int i = 0; st == ST_OK && i < l->stages * chunks; i++)
            l->layers[i % l->stages] += first[i + 1] - first[i];
        TRY(st);
    }
    for (int stage = 0; stage < l->stages; stage++) {
        int like = like_stage(job, l, stage);
        l->is_shared[stage] = like >= 0;
        if (like >= 0) {
            l->ops[stage] = l->ops[like];
            continue;
        }
        plan_job_place(job, &mesh, stage, &place);
        TRY(plan_ops_make(&job->config, &place, &l->ops[stage]));
    }
    return ST_OK;
}

/* ---- checkpoints ---- */

/* Returns the bytes of the largest checkpoint: parameters and moments in fp32, of all replicas. */
static double state_bytes(const struct plan_job *job)
{
    struct param_table table = {0};
    if (step_mesh_whole_table(&job->config.step, job->at.ranks, false, &table) != ST_OK) {
        status_clear();
        return 0;
    }
    double elems = (double)table.total_elems;
    param_table_free(&table);
    return elems * sizeof(float) * step_local_state_arrays_of(&job->config.step, job->at.ranks);
}

/* Returns the time for which checkpoints stop training, divided over the steps. */
static double checkpoint_ms(const struct plan_job *job)
{
    if (job->config.checkpoint_every <= 0 || !job->config.checkpoint_dir[0])
        return 0;
    const struct plan_cluster *c = job->cluster;
    double bytes = state_bytes(job), disk = c->disk_bytes_per_second,
           rate = PLAN_COPY_BYTES_PER_SECOND;
    bool is_copied = job->config.checkpoint_mode == CHECKPOINT_ASYNC_MODE_ON ||
                     (job->config.checkpoint_mode == CHECKPOINT_ASYNC_MODE_AUTO &&
                      bytes >= (double)CHECKPOINT_ASYNC_MIN_BYTES);
    if (job->at.nodes > 1 && step_mesh_divides_state(&job->config.step, job->at.ranks))
        rate = fmin(rate, c->across.bytes_per_second / c->locals); /* rank 0 fetches it */
    if (!is_copied && disk > 0)
        rate = fmin(rate, disk);
    return 1e3 * bytes / rate / (double)job->config.checkpoint_every;
}

/* ---- copies in peers' memory, and checks ---- */

/* Plans the interval and the delay of copies with the same rule as a run, which measures them: the
 * slices leave the device while the update waits, then travel to another node. without_ms: time of
 * a step without them. */
static void plan_copies(const struct plan_job *job, double without_ms, struct plan_protection *out)
{
    const struct plan_cluster *c = job->cluster;
    if (job->at.nodes < 2 || job->config.peer_copies == PEER_COPY_MODE_OFF ||
        c->across.bytes_per_second <= 0 || peer_copy_why(&job->config.step, job->at.nodes) != NULL)
        return;
    const double slice = state_bytes(job) / job->at.ranks;
    out->copy_ms = 1e3 * slice / PLAN_COPY_BYTES_PER_SECOND;
    const double travel_ms = 1e3 * slice * job->at.locals / c->across.bytes_per_second;
    out->copy_every =
        c->is_gpu ? peer_copy_interval_of(without_ms, without_ms + out->copy_ms, travel_ms) : 1;
}

static void add_protection(const struct plan_job *job, struct plan_estimate *out)
{
    struct plan_protection *p = &out->protection;
    plan_copies(job, out->time.step_ms, p);
    if (job->cluster->is_gpu && job->config.step.sentinel_every > 0)
        p->sentinel_ms = PLAN_SENTINEL_WAIT_MS;
    const double ms = p->sentinel_ms + (p->copy_every > 0 ? p->copy_ms / (double)p->copy_every : 0);
    out->time.ms[PLAN_TIME_PROTECTION] = ms;
    out->time.step_ms += ms;
}

/* ---- all ---- */

static enum status make_time(const struct plan_job *job, const struct lists *l,
                             struct plan_estimate *out)
{
    const struct plan_ops *first = &l->ops[0];
    *out = (struct plan_estimate){.tokens = 0};
    plan_time_make(l->ops, l->stages, job->precision, job->cluster, checkpoint_ms(job), &out->time);
    if (isinf(out->time.step_ms)) {
        const struct plan_cluster *c = job->cluster;
        if (c->peak[job->precision] <= 0)
            return FAIL(ST_BAD_SETTING, "CLUSTER=%s computes nothing in %s; use another PRECISION",
                        c->name, plan_cluster_precision(job->precision));
        bool is_across = job->at.nodes > 1 && c->across.bytes_per_second <= 0;
        return FAIL(ST_BAD_SETTING, "CLUSTER=%s has no link %s: use %s, or add \"%s\" to its file",
                    c->name, is_across ? "between nodes" : "inside a node",
                    is_across ? "one node" : "one worker on each node",
                    is_across ? "across" : "inside");
    }
    add_protection(job, out);
    double seconds = out->time.step_ms / 1e3,
           peak = job->cluster->peak[job->precision] * job->at.ranks;
    out->tokens = first->tokens;
    out->model_flops = first->model_flops;
    out->passes = first->passes;
    out->tokens_per_second = first->tokens / seconds;
    out->mfu = first->model_flops / seconds / peak;
    return ST_OK;
}

enum status plan_estimate_make(const struct plan_job *job, struct plan_estimate *out)
{
    struct lists *lists = memory_new(1, sizeof *lists);
    enum status st = make_lists(job, lists);
    if (st == ST_OK)
        st = make_time(job, lists, out);
    for (int stage = 0; stage < lists->stages; stage++)
        if (!lists->is_shared[stage])
            plan_ops_free(&lists->ops[stage]);
    free(lists);
    return st;
}
