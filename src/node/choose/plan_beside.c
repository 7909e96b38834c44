/* plan_beside — see plan_beside.h. */
#include "node/choose/plan_beside.h"

#include "base/log.h"
#include "comm/core/comm.h"
#include "node/choose/device.h"
#include "node/choose/plan_setup.h"
#include "plan/plan_estimate.h"

/* ---- the plan of CLUSTER ---- */

/* on_step — adds the terms that a rank on a CPU measures: its waits and its update. */
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
    /* Warn if the plan is for other workers or threads than this run has. */
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

/* ---- LINK=auto ---- */

static void on_link_step(void *arg, double step_ms, const struct step_result *r)
{
    struct plan_beside_link *choice = arg;
    const struct plan_link_step step = {step_ms, r->comm_ms, r->wait_ms, r->sent_bytes};
    if (choice->next)
        choice->next(choice->next_arg, step_ms, r);
    if (!plan_link_add(&choice->link, &step))
        return;
    struct text text = {.limit = 2048};
    plan_link_text(&choice->link, &text);
    LOG_INFO("LINK=auto: %s", text.data ? text.data : "");
    text_free(&text);
}

/* why_not — returns the reason why the steps of this run do not show the speed of its link; NULL if
 * they do. */
static const char *why_not(const struct trainer_config *config)
{
    const struct comm *comm = config->step.comm;
    if (!comm || comm_place(comm)->nodes == 1)
        return "there is one node, so no gradient crosses a network";
    if (comm_stays_on_device(comm))
        return "collectives run on the GPU, where their time is not measured: set BACKEND=tcp or "
               "ucx for a few steps";
    return NULL;
}

void plan_beside_begin_link(const struct conf *conf, struct plan_beside_link *choice,
                            struct trainer_config *config)
{
    const char *why = why_not(config);
    if (conf_i64(conf, CONF_LINK) != CONF_LINK_AUTO || choice->is_begun)
        return;
    choice->is_begun = true;
    if (why) {
        LOG_INFO("LINK=auto: nothing is proposed: %s", why);
        return;
    }
    const struct step_config *step = &config->step;
    const struct comm_place *at = comm_place(step->comm);
    struct param_table table = {0};
    if (step_mesh_whole_table(step, at->ranks, dev_is_discrete(step->dev), &table) != ST_OK) {
        LOG_WARN("LINK=auto: nothing is proposed: %s", status_message());
        status_clear();
        return;
    }
    choice->link =
        (struct plan_link_run){.params = table.parameters,
                               .nodes = at->nodes,
                               .locals = at->locals,
                               .compress = step->store.compress,
                               .allows_local_steps = step->store.shard == LAYOUT_SHARD_NONE &&
                                                     step->optim.kind != OPTIM_KIND_MUON};
    param_table_free(&table);
    choice->next = config->on_step;
    choice->next_arg = config->on_step_arg;
    config->on_step = on_link_step;
    config->on_step_arg = choice;
}
