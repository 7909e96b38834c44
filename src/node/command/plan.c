/* plan — `convoy plan`: computes memory, time and cost of a job on a described cluster, before it
 * is rented. Opens no device and no connection. Must not depend on plan algorithms (plan/). */
#include <stdlib.h>

#include "base/memory.h"
#include "node/command.h"
#include "node/choose/memory_advice.h"
#include "node/choose/plan_setup.h"
#include "node/process/print.h"
#include "plan/plan_report.h"

/* The plan and its results. */
struct planned {
    struct plan_cluster cluster;
    struct plan_job job;
    struct plan_memory memory;
    struct plan_estimate estimate;
    struct plan_search search;
    struct plan_advice advice;
    struct plan_whole whole;
    double tokens;
};

/* tokens_of — returns TOKENS, else the tokens of STEPS; 0: neither is set. */
static double tokens_of(const struct conf *conf, const struct plan_job *job)
{
    const struct step_config *s = &job->config.step;
    if (conf_is_set(conf, CONF_TOKENS))
        return (double)conf_i64(conf, CONF_TOKENS);
    return (double)conf_i64(conf, CONF_STEPS) * (double)s->global_samples * (double)s->seq_tokens;
}

static enum status print_report(const struct conf *conf, const struct plan_report *report)
{
    struct text out = {.data = NULL};
    if (conf_i64(conf, CONF_JSON) != 0)
        TRY(plan_json_write(report, &out));
    else
        plan_report_text(report, &out);
    return print_text(&out);
}

/* plan_whole — plans the same job without its adapter. open: the job before open settings are
 * decided. Returns NULL if it has no adapter, or if the whole model cannot be planned. */
static const struct plan_whole *plan_whole(const struct plan_job *open, struct plan_whole *out)
{
    struct plan_job job = *open;
    struct plan_estimate estimate;
    if (job.config.step.dims.adapter.r == 0)
        return NULL;
    job.config.step.dims.adapter = (struct model_adapter){0};
    enum status st = plan_setup_decide(&job);
    if (st == ST_OK)
        st = plan_job_memory(&job, &out->memory);
    out->fits = st == ST_OK && plan_job_memory_over(&job, &out->memory) <= 0;
    if (out->fits)
        st = plan_estimate_make(&job, &estimate);
    out->step_ms = out->fits && st == ST_OK ? estimate.time.step_ms : 0;
    if (st != ST_OK)
        status_clear();
    return st == ST_OK ? out : NULL;
}

/* ---- MESH=set ---- */

static enum status plan_set(const struct conf *conf, struct planned *p)
{
    const struct plan_search_fixed nothing = {.chunks = false};
    struct plan_report report = {.job = &p->job, .memory = &p->memory};
    report.whole = plan_whole(&p->job, &p->whole);
    TRY(plan_setup_decide(&p->job));
    TRY(plan_job_memory(&p->job, &p->memory));
    if (plan_job_memory_over(&p->job, &p->memory) > 0) {
        TRY(print_report(conf, &report));
        struct text would = {.limit = 600};
        char over[32], stage[32] = "";
        int64_t bytes = plan_job_memory_over(&p->job, &p->memory);
        bool is_device = p->cluster.is_gpu && p->memory.need_bytes > p->memory.have_bytes;
        if (is_device && p->memory.stages > 1)
            text_format(stage, sizeof stage, " on stage %d", p->memory.fullest);
        /* List the settings that would fit, as train does. */
        const struct plan_cluster *c = &p->cluster;
        struct mesh mesh;
        bool is_host = c->is_gpu && p->memory.need_bytes <= p->memory.have_bytes;
        struct memory_check f = {
            .conf = conf,
            .is_device = c->is_gpu && !is_host,
            .free_bytes = -1,
            .most_bytes = is_host ? (int64_t)c->host_memory_bytes : p->memory.have_bytes,
            .each_bytes = -1,
            .owner = c->name,
        };
        if (plan_job_mesh(&p->job, &mesh) == ST_OK) {
            plan_job_place(&p->job, &mesh, f.is_device ? p->memory.fullest : 0, &f.place);
            memory_advice_add(&f, &p->job.config, &would);
        }
        enum status st = FAIL(
            ST_BAD_SETTING, "does not fit: %s short%s of a %s%s; %s%s",
            text_format_bytes(over, sizeof over, (double)bytes), is_device ? " in the memory" : "",
            is_device ? "GPU" : "node", stage, would.len > 0 ? "settings that fit:" : "",
            would.len > 0
                ? would.data + 1
                : "no BATCH_SIZE, SEQ_LEN, RECOMPUTE, TP, CP, PP or SHARD makes it fit on "
                  "these machines: use more machines, or machines with more memory");
        text_free(&would);
        return st;
    }
    TRY(plan_estimate_make(&p->job, &p->estimate));
    plan_search_advice(&p->job, &nothing, NULL, &p->advice);
    report.estimate = &p->estimate;
    report.advice = &p->advice;
    report.tokens = tokens_of(conf, &p->job);
    return print_report(conf, &report);
}

/* ---- MESH=auto ---- */

/* nodes_that_have — returns a number of nodes of the cluster on which a mesh fits, and the job on
 * them; 0: none. */
static int nodes_that_have(const struct planned *p, const struct plan_search_fixed *fixed,
                           struct plan_job *job)
{
    struct plan_search *more = memory_new(1, sizeof *more);
    int found = 0, nodes = 2 * p->job.at.nodes, has = p->cluster.nodes,
        most = has > 0 ? has : COMM_RANKS_MAX / p->job.at.locals;
    for (; !found && nodes <= most; nodes *= 2) {
        plan_job_nodes(&p->job, nodes, job);
        plan_search_make(job, fixed, more);
        if (more->found_n > 0)
            found = nodes;
    }
    status_clear();
    free(more);
    return found;
}

/* fail_search — fails because no mesh fits. The message contains the number of nodes on which a
 * mesh does. */
static enum status fail_search(const struct planned *p, const struct plan_search_fixed *fixed)
{
    struct plan_job job;
    const struct step_config *s = &p->job.config.step;
    char batch[64] = "";
    if (p->search.meshes_n == 0)
        return FAIL(
            ST_BAD_SETTING,
            "no mesh divides %d devices, GLOBAL_BATCH=%lld samples and the %lld layers of %s; "
            "change GLOBAL_BATCH, or leave TP, PP, CP or PP_CHUNKS out",
            p->job.at.ranks, (long long)s->global_samples, (long long)s->dims.layers, s->dims.name);
    if (p->search.failure != ST_OK) {
        status_restore(&p->search.why);
        return p->search.failure;
    }
    int found = nodes_that_have(p, fixed, &job);
    if (found && p->job.follows_ranks)
        text_format(batch, sizeof batch, " GLOBAL_BATCH=%lld",
                    (long long)job.config.step.global_samples);
    if (found)
        return FAIL(ST_BAD_SETTING,
                    "no mesh of %d devices has room for %s with GLOBAL_BATCH=%lld; it fits with "
                    "N_NODES=%d%s",
                    p->job.at.ranks, s->dims.name, (long long)s->global_samples, found, batch);
    return FAIL(ST_BAD_SETTING,
                "no mesh of %d devices has room for %s with GLOBAL_BATCH=%lld, nor a mesh of more "
                "devices%s; "
                "lower SEQ_LEN, change GLOBAL_BATCH, or use devices with more memory",
                p->job.at.ranks, s->dims.name, (long long)s->global_samples,
                p->cluster.nodes > 0 ? " of the cluster" : "");
}

static enum status plan_auto(const struct conf *conf, struct planned *p)
{
    struct plan_search_fixed fixed = {
        .chunks = conf_is_set(conf, CONF_PP_CHUNKS),
        .shard = conf_is_set(conf, CONF_SHARD) && conf_i64(conf, CONF_SHARD) != CONF_SHARD_AUTO,
        .recompute = conf_is_set(conf, CONF_RECOMPUTE) &&
                     conf_i64(conf, CONF_RECOMPUTE) != CONF_RECOMPUTE_AUTO,
        .batch = conf_is_set(conf, CONF_BATCH_SIZE) && conf_is_set(conf, CONF_GLOBAL_BATCH)};
    fixed.axis[MESH_AXIS_TENSOR] = conf_is_set(conf, CONF_TP);
    fixed.axis[MESH_AXIS_CONTEXT] = conf_is_set(conf, CONF_CP);
    fixed.axis[MESH_AXIS_PIPELINE] = conf_is_set(conf, CONF_PP);
    plan_search_make(&p->job, &fixed, &p->search);
    if (p->search.found_n == 0)
        return fail_search(p, &fixed);
    p->job = p->search.job[0];
    const struct plan_whole *whole = plan_whole(&p->job, &p->whole);
    TRY(plan_job_memory(&p->job, &p->memory));
    plan_search_advice(&p->job, &fixed, &p->search, &p->advice);
    return print_report(conf, &(struct plan_report){.job = &p->job,
                                                    .memory = &p->memory,
                                                    .estimate = &p->search.estimate[0],
                                                    .search = &p->search,
                                                    .advice = &p->advice,
                                                    .whole = whole,
                                                    .tokens = tokens_of(conf, &p->job)});
}

enum status plan_main(struct conf *conf, char **environment)
{
    struct planned *p = memory_new(1, sizeof *p);
    enum status st;
    TRY_OR(plan_setup_cluster(conf, &p->cluster), out_free);
    if (!conf_is_set(conf, CONF_N_GPU_EACH_NODE))
        TRY_OR(conf_set_workers(conf, p->cluster.locals, environment), out_free);
    TRY_OR(plan_setup_locals(conf, &p->cluster), out_free);
    TRY_OR(plan_setup_job(conf, &p->cluster, &p->job), out_free);
    st = conf_i64(conf, CONF_MESH) == CONF_MESH_AUTO ? plan_auto(conf, p) : plan_set(conf, p);
out_free:
    free(p);
    return st;
}
