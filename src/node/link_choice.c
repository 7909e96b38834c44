/* link_choice — see link_choice.h. */
#include "node/link_choice.h"

#include "base/log.h"
#include "comm/core/comm.h"

static void on_step(void *arg, double step_ms, const struct step_result *r)
{
    struct link_choice *choice = arg;
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

/* why_not — NULL: the steps of this run show what its link is like. */
static const char *why_not(const struct trainer_config *config)
{
    const struct comm *comm = config->step.comm;
    if (!comm || comm_place(comm)->nodes == 1)
        return "there is one node, so no gradient crosses a network";
    if (comm_stays_on_device(comm))
        return "NCCL's calls run on the GPU, where their time is not measured: set BACKEND=tcp or "
               "ucx for a few steps";
    return NULL;
}

static enum status take_job(const struct trainer_config *config, struct plan_link_run *link)
{
    const struct comm_place *at = comm_place(config->step.comm);
    struct param_table table = {0};
    TRY(step_mesh_whole_table(&config->step, at->ranks, dev_is_discrete(config->step.dev), &table));
    *link = (struct plan_link_run){.params = table.parameters,
                                   .nodes = at->nodes,
                                   .locals = at->locals,
                                   .compress = config->step.store.compress,
                                   .takes_local = config->step.store.shard == LAYOUT_SHARD_NONE &&
                                                  config->step.optim.kind != OPTIM_KIND_MUON};
    param_table_free(&table);
    return ST_OK;
}

void link_choice_begin(const struct conf *conf, struct link_choice *choice,
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
    if (take_job(config, &choice->link) != ST_OK) {
        LOG_WARN("LINK=auto: nothing is proposed: %s", status_message());
        status_clear();
        return;
    }
    choice->next = config->on_step;
    choice->next_arg = config->on_step_arg;
    config->on_step = on_step;
    config->on_step_arg = choice;
}
