/* plan_json — a plan as JSON: see plan_report.h. */
#include "plan/plan_report.h"

#include "base/json.h"

static cJSON *add_object(cJSON *to, const char *key)
{
    return to ? cJSON_AddObjectToObject(to, key) : NULL;
}

/* Adds the settings of a job that a plan may choose. */
static void add_way(const struct plan_job *job, cJSON *to)
{
    const struct step_config *s = &job->config.step;
    char word[32];
    json_add_i64(to, "tensor", s->axis_ranks[MESH_AXIS_TENSOR]);
    json_add_i64(to, "context", s->axis_ranks[MESH_AXIS_CONTEXT]);
    json_add_i64(to, "pipeline", s->axis_ranks[MESH_AXIS_PIPELINE]);
    json_add_i64(to, "chunks", s->pipe_chunks);
    cJSON_AddStringToObject(to, "shard", plan_report_shard(s->store.shard));
    cJSON_AddStringToObject(to, "recompute", model_recompute_text(s->recompute, word, sizeof word));
    json_add_i64(to, "batch", s->batch_samples);
    json_add_i64(to, "global_batch", s->global_samples);
}

static void add_memory(const struct plan_report *r, cJSON *root)
{
    cJSON *memory = add_object(root, "memory"), *stages;
    cJSON_AddBoolToObject(root, "fits", plan_job_memory_over(r->job, r->memory) <= 0);
    json_add_i64(memory, "need_bytes", r->memory->need_bytes);
    json_add_i64(memory, "have_bytes", r->memory->have_bytes);
    json_add_i64(memory, "host_bytes", r->memory->host_bytes);
    json_add_i64(memory, "fullest_stage", r->memory->fullest);
    stages = memory ? cJSON_AddArrayToObject(memory, "stages") : NULL;
    for (int stage = 0; stages && stage < r->memory->stages; stage++) {
        const struct memory_plan *plan = &r->memory->stage[stage];
        const int64_t *bytes = r->job->cluster->is_gpu ? plan->device : plan->host;
        cJSON *item = cJSON_CreateObject();
        for (int kind = 0; kind < MEMORY_PLAN_N; kind++)
            if (bytes[kind] > 0)
                json_add_i64(item, memory_plan_text((enum memory_plan_kind)kind), bytes[kind]);
        json_add_i64(item, "all", memory_plan_sum(bytes));
        cJSON_AddItemToArray(stages, item);
    }
}

static void add_total(const struct plan_report *r, cJSON *root)
{
    const struct plan_cluster *c = r->job->cluster;
    double seconds = r->tokens / r->estimate->tokens_per_second,
           hours = seconds / 3600 * r->job->at.ranks;
    cJSON *total = r->tokens > 0 ? add_object(root, "total") : NULL;
    if (!total)
        return;
    json_add_number(total, "tokens", r->tokens);
    json_add_number(total, "seconds", seconds);
    json_add_number(total, "device_hours", hours);
    if (c->price_per_hour > 0)
        json_add_number(total, "dollars", hours * c->price_per_hour);
    if (c->watts > 0)
        json_add_number(total, "kilowatt_hours", hours * c->watts / 1e3);
}

static void add_found(const struct plan_search *s, const char *key, cJSON *root)
{
    cJSON *list = cJSON_AddArrayToObject(root, key);
    for (int i = 0; list && i < s->found_n; i++) {
        cJSON *item = cJSON_CreateObject();
        add_way(&s->job[i], item);
        json_add_number(item, "step_ms", s->estimate[i].time.step_ms);
        json_add_number(item, "tokens_per_second", s->estimate[i].tokens_per_second);
        json_add_number(item, "mfu", s->estimate[i].mfu);
        cJSON_AddItemToArray(list, item);
    }
}

static void add_nodes(const struct plan_advice_nodes *nodes, cJSON *list)
{
    cJSON *item = nodes->is_known ? cJSON_CreateObject() : NULL;
    if (!item)
        return;
    json_add_i64(item, "nodes", nodes->nodes);
    json_add_number(item, "tokens_per_second", nodes->tokens_per_second);
    json_add_number(item, "speed_ratio", nodes->speed_ratio);
    cJSON_AddItemToArray(list, item);
}

enum status plan_json_write(const struct plan_report *r, struct text *out)
{
    cJSON *root = cJSON_CreateObject();
    const struct plan_job *job = r->job;
    cJSON_AddStringToObject(root, "model", job->config.step.dims.name);
    cJSON_AddStringToObject(root, "cluster", job->cluster->name);
    cJSON_AddStringToObject(root, "precision", plan_cluster_precision(job->precision));
    json_add_i64(root, "nodes", job->at.nodes);
    json_add_i64(root, "devices", job->at.ranks);
    json_add_i64(root, "seq_len", job->config.step.seq_tokens);
    json_add_i64(root, "global_batch", job->config.step.global_samples);
    add_way(job, add_object(root, "settings"));
    add_memory(r, root);
    const struct plan_control control = plan_report_control(r->job->at.nodes, r->job->at.locals);
    cJSON *node = r->job->at.nodes > 1 ? add_object(root, "node_0") : NULL;
    if (node) {
        json_add_i64(node, "control_bytes", control.bytes);
        json_add_number(node, "control_cores", control.cores);
    }
    if (r->estimate) {
        const struct plan_estimate *e = r->estimate;
        cJSON *step = add_object(root, "step_ms"), *axes = add_object(root, "communication_ms");
        json_add_number(step, "all", e->time.step_ms);
        for (int kind = 0; kind < PLAN_TIME_N; kind++)
            json_add_number(step, plan_time_text((enum plan_time_kind)kind), e->time.ms[kind]);
        json_add_number(axes, "hidden", e->time.comm_hidden_ms);
        for (int axis = 0; axis < MESH_AXES; axis++)
            json_add_number(axes, mesh_axis_name((enum mesh_axis)axis), e->time.axis_ms[axis]);
        cJSON *lacks = add_object(root, "lacks_own_attention");
        cJSON_AddBoolToObject(lacks, "forward", e->time.lacks_own_forward);
        cJSON_AddBoolToObject(lacks, "backward", e->time.lacks_own_backward);
        json_add_i64(root, "micro_batches", e->passes);
        json_add_number(root, "tokens_per_second", e->tokens_per_second);
        json_add_number(root, "mfu", e->mfu);
        add_total(r, root);
        struct loss_cost loss;
        char line[LOSS_COST_TEXT];
        plan_report_loss(r, &loss);
        cJSON *lost = add_object(root, "lost_node");
        json_add_number(lost, "steps",
                        loss_cost_steps(&loss) > 0 ? (double)loss_cost_steps(&loss) : NAN);
        json_add_i64(lost, "copy_every", loss.copy_every);
        json_add_i64(lost, "copy_bytes", loss.copy_bytes);
        json_add_number(lost, "copy_ms", e->protection.copy_ms);
        json_add_number(lost, "sentinel_ms", e->protection.sentinel_ms);
        cJSON_AddStringToObject(lost, "text", loss_cost_text(&loss, line, sizeof line));
    }
    if (r->whole) {
        cJSON *whole = add_object(root, "all_weights");
        cJSON_AddBoolToObject(whole, "fits", r->whole->fits);
        json_add_i64(whole, "need_bytes", r->whole->memory.need_bytes);
        if (r->whole->fits)
            json_add_number(whole, "step_ms", r->whole->step_ms);
    }
    if (r->search || r->advice)
        add_found(r->search ? r->search : &r->advice->search, "fastest", root);
    if (r->advice) {
        cJSON *list = cJSON_AddArrayToObject(root, "other_nodes");
        add_nodes(&r->advice->less, list);
        add_nodes(&r->advice->more, list);
    }
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text)
        return FAIL(ST_RETRY, "out of memory: a plan as JSON");
    text_add(out, "%s\n", text);
    cJSON_free(text);
    return ST_OK;
}
