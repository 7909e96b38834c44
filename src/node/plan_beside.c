/* plan_beside — see plan_beside.h. */
#include "node/plan_beside.h"

#include "base/log.h"
#include "node/device.h"
#include "node/plan_setup.h"
#include "plan/plan_estimate.h"

/* on_step — the terms that a rank on a CPU measures: what it waited for, and its update. */
static void on_step(void *arg, double step_ms, const struct step_result *r)
{
    struct plan_beside *beside = arg;
    struct plan_compare_step step;
    plan_compare_terms(step_ms, r, &step);
    if (!plan_compare_add(&beside->compare, &step))
        return;
    struct text text = {.limit = 512};
    plan_compare_text(&beside->compare, &beside->planned, beside->has_terms, &text);
    LOG_INFO("plan: %s", text.data ? text.data : "");
    text_free(&text);
}

static enum status make_plan(const struct conf *conf, bool is_gpu, const struct comm_place *at,
                             const struct trainer_config *config, struct plan_time *out)
{
    struct plan_cluster cluster;
    struct plan_job job;
    struct plan_estimate estimate;
    TRY(plan_setup_cluster(conf, &cluster));
    if (cluster.is_gpu != is_gpu)
        return FAIL(ST_BAD_SETTING, "CLUSTER=%s computes on %ss, and this run does not",
                    cluster.name, cluster.is_gpu ? "GPU" : "CPU");
    /* A plan for other workers or threads than the run has. */
    int threads = cluster.is_gpu ? 0 : device_threads(conf);
    if (at->locals != cluster.locals)
        LOG_WARN("plan: CLUSTER=%s has %d workers on a node, and this run has %d", cluster.name,
                 cluster.locals, at->locals);
    if (threads > 0 && cluster.threads_n > 0 && threads != cluster.threads_n)
        LOG_WARN("plan: workers of CLUSTER=%s have %d threads, and those of this run %d",
                 cluster.name, cluster.threads_n, threads);
    TRY(plan_setup_run(conf, &cluster, config, at, &job));
    TRY(plan_estimate_make(&job, &estimate));
    *out = estimate.time;
    return ST_OK;
}

void plan_beside_begin(const struct conf *conf, bool is_gpu, const struct comm_place *at,
                       struct plan_beside *beside, struct trainer_config *config)
{
    char time[32];
    if (conf_text(conf, CONF_CLUSTER)[0] == 0 || beside->is_begun)
        return;
    beside->is_begun = true;
    beside->has_terms = !is_gpu;
    if (make_plan(conf, is_gpu, at, config, &beside->planned) != ST_OK) {
        LOG_WARN("no plan to compare with: %s", status_message());
        status_clear();
        return;
    }
    LOG_INFO("plan: CLUSTER=%s: %s a step", conf_text(conf, CONF_CLUSTER),
             text_format_ms(time, sizeof time, beside->planned.step_ms));
    config->on_step = on_step;
    config->on_step_arg = beside;
}
