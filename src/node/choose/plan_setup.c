/* plan_setup — see plan_setup.h. */
#include "node/choose/plan_setup.h"

#include <stdlib.h>

#include "base/memory.h"
#include "node/choose/config_map.h"
#include "node/choose/device.h"
#include "node/choose/plan_choice.h"
#include "plan/plan_job.h"

/* ---- the cluster ---- */

enum status plan_setup_cluster(const struct conf *conf, struct plan_cluster *out)
{
    const long long nodes = (long long)conf_i64(conf, CONF_N_NODES);
    if (conf_text(conf, CONF_CLUSTER)[0] == 0) {
        struct text names = {.limit = 1024};
        struct plan_cluster cluster;
        for (int i = 0; plan_cluster_nth(i, &cluster); i++)
            text_add(&names, "%s%s", i > 0 ? ", " : "", cluster.name);
        enum status st =
            FAIL(ST_BAD_SETTING,
                 "CLUSTER is not set: name the machines to plan for (%s), or the path of "
                 "a cluster file (docs/plan.md)",
                 names.data ? names.data : "");
        text_free(&names);
        return st;
    }
    TRY(plan_cluster_open(conf_text(conf, CONF_CLUSTER), out));
    if (conf_f64(conf, CONF_PRICE) > 0)
        out->price_per_hour = conf_f64(conf, CONF_PRICE);
    if (out->nodes > 0 && nodes > out->nodes)
        return FAIL(ST_BAD_SETTING, "N_NODES=%lld (%s), but CLUSTER=%s has %d", nodes,
                    conf_source(conf, CONF_N_NODES), out->name, out->nodes);
    return ST_OK;
}

enum status plan_setup_locals(const struct conf *conf, const struct plan_cluster *cluster)
{
    const long long locals = (long long)conf_i64(conf, CONF_N_GPU_EACH_NODE);
    if (locals <= cluster->locals)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "N_GPU_EACH_NODE=%lld (%s), but a node of CLUSTER=%s has %d; leave it out, or use "
                "N_NODES",
                locals, conf_source(conf, CONF_N_GPU_EACH_NODE), cluster->name, cluster->locals);
}

/* ---- the job ---- */

static enum status precision_of(const struct conf *conf, const struct plan_cluster *cluster,
                                enum plan_precision *out)
{
    int64_t precision = conf_i64(conf, CONF_PRECISION);
    bool is_auto = precision == CONF_PRECISION_AUTO;
    *out = precision == CONF_PRECISION_TF32 ? PLAN_PRECISION_TF32
           : precision == CONF_PRECISION_BF16 || precision == CONF_PRECISION_FP16 ||
                   (is_auto && cluster->is_gpu)
               ? PLAN_PRECISION_BF16
               : PLAN_PRECISION_F32;
    if (cluster->is_gpu || *out == PLAN_PRECISION_F32)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "PRECISION=%s (%s): times on CPUs, as in CLUSTER=%s, are planned for fp32 only; "
                "use fp32, or leave CLUSTER out",
                conf_text(conf, CONF_PRECISION), conf_source(conf, CONF_PRECISION), cluster->name);
}

enum status plan_setup_run(const struct conf *conf, const struct plan_cluster *cluster,
                           const struct trainer_config *config, const struct comm_place *at,
                           struct plan_job *out)
{
    *out = (struct plan_job){.cluster = cluster, .config = *config, .at = *at};
    out->at.node = out->at.rank = out->at.local = 0;
    out->stays_on_device = cluster->is_gpu && device_may_use_nccl(conf);
    out->threads_n = cluster->threads_n > 0 ? cluster->threads_n : 1;
    return precision_of(conf, cluster, &out->precision);
}

enum status plan_setup_job(const struct conf *conf, const struct plan_cluster *cluster,
                           struct plan_job *out)
{
    struct model_dims dims;
    struct trainer_config config;
    bool has_weights;
    const struct comm_place at = config_map_place(conf, 0);
    TRY(config_map_dims(conf, &dims, &has_weights));
    TRY(config_map_trainer(conf, &dims, has_weights, &config));
    config.step.store.dtype = device_dtype(conf, cluster->is_gpu);
    TRY(plan_setup_run(conf, cluster, &config, &at, out));
    /* MESH=auto keeps the samples of a step that plain data parallelism would have. */
    out->follows_ranks = conf_i64(conf, CONF_GLOBAL_BATCH) == 0;
    if (out->follows_ranks && conf_i64(conf, CONF_MESH) == CONF_MESH_AUTO)
        out->config.step.global_samples = conf_i64(conf, CONF_BATCH_SIZE) * out->at.ranks;
    return ST_OK;
}

/* ---- the open settings ---- */

/* A job, and the ways that it leaves open. */
struct open_job {
    struct plan_job *job;
    struct plan_ways ways;
    struct plan_memory memory;
};

/* fits_way — returns true if a way fits. The last way needs no margin, because no way is
 * smaller. */
static enum status fits_way(void *arg, int way, bool *out)
{
    struct open_job *open = arg;
    plan_choice_set(&open->job->config.step, plan_choice_way(&open->ways, way));
    if (way + 1 < open->ways.n) {
        *out = plan_job_fits(open->job);
        return ST_OK;
    }
    TRY(plan_job_memory(open->job, &open->memory));
    *out = plan_job_memory_over(open->job, &open->memory) <= 0;
    return ST_OK;
}

enum status plan_setup_decide(struct plan_job *job)
{
    const struct memory_plan_place place = {.at = job->at, .is_discrete = job->cluster->is_gpu};
    struct open_job *open = memory_new(1, sizeof *open);
    open->job = job;
    plan_choice_ways(&job->config.step, &place, &open->ways);
    float *votes = memory_new((size_t)open->ways.n, sizeof *votes);
    enum status st = plan_choice_vote(&open->ways, fits_way, open, votes);
    if (st == ST_OK) {
        int way = plan_choice_first(votes, open->ways.n, 1);
        plan_choice_set(&job->config.step, plan_choice_way(&open->ways, way));
    }
    free(votes);
    free(open);
    return st;
}
