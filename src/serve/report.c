/* report — see report.h. */
#include "serve/report.h"

#include <math.h>

#include "base/json.h"

/* Adds a count. A negative number means "unknown", like an empty text. */
static void add_count(cJSON *object, const char *key, int64_t value)
{
    if (value >= 0)
        json_add_i64(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

/* Adds text, made valid UTF-8 first (a path may be any bytes): cJSON writes text unchanged. */
static void add_text(cJSON *object, const char *key, const char *value)
{
    char quoted[6 * 1024 + 3];
    if (value[0] != 0) {
        json_quote(quoted, sizeof(quoted), value);
        cJSON_AddRawToObject(object, key, quoted);
    } else {
        cJSON_AddNullToObject(object, key);
    }
}

static void add_seconds(cJSON *object, const char *key, int64_t ms)
{
    json_add_number(object, key, ms >= 0 ? (double)ms / 1000 : NAN);
}

static void add_model(cJSON *root, const struct board_worker *first_worker)
{
    static const struct board_model unknown = {"", "", "", -1, -1, -1, -1, -1, -1, -1, -1, -1};
    const struct board_model *model =
        first_worker != NULL && first_worker->model.name[0] != 0 ? &first_worker->model : &unknown;
    cJSON *object = cJSON_AddObjectToObject(root, "model");
    add_text(object, "name", model->name);
    add_count(object, "layers", model->layers);
    add_count(object, "heads", model->heads);
    add_count(object, "kv_heads", model->kv_heads);
    add_count(object, "head_dim", model->head_dim);
    add_count(object, "embed", model->embed);
    add_count(object, "ffn", model->ffn);
    add_count(object, "context", model->context);
    add_count(object, "vocab", model->vocab);
    add_count(object, "parameters", model->parameters);
    add_text(object, "task", model->task);
    add_text(object, "arch", model->arch);
}

static void add_mesh(cJSON *root, const struct view *view)
{
    const struct board_node *node = &view->node;
    cJSON *object = cJSON_AddObjectToObject(root, "mesh");
    add_count(object, "data", node->mesh_data);
    add_count(object, "shard", node->mesh_shard);
    add_count(object, "tensor", node->mesh_tensor);
    add_count(object, "context", node->mesh_context);
    add_count(object, "pipeline", node->mesh_pipeline);
    /* The transport of each axis. */
    const struct board_worker *worker = view->first_worker;
    cJSON *links = cJSON_AddObjectToObject(object, "links");
    add_text(links, "data", worker != NULL ? worker->links.data : "");
    add_text(links, "tensor", worker != NULL ? worker->links.tensor : "");
    add_text(links, "context", worker != NULL ? worker->links.context : "");
    add_text(links, "pipeline", worker != NULL ? worker->links.pipeline : "");
}

/* ADD_kind — adds a number under the name of its field in `from`. */
#define ADD_COUNT(object, from, field) add_count(object, #field, (from)->field);
#define ADD_NUMBER(object, from, field) json_add_number(object, #field, (from)->field);
#define ADD_MS ADD_NUMBER
#define ADD_REMAINING(object, from, field) \
    json_add_number(object, #field, rank_stats_remaining((from)->field));
#define ADD_TIMES(object, from, field) add_times(object, #field, from);

static void add_times(cJSON *root, const char *key, const struct board_worker *first_worker)
{
    cJSON *object = cJSON_AddObjectToObject(root, key);
    json_add_number(object, "last", view_step_ms(first_worker, 0));
    json_add_number(object, "p50", view_step_ms(first_worker, 0.50));
    json_add_number(object, "p95", view_step_ms(first_worker, 0.95));
}

static void add_checkpoint(cJSON *root, const struct view *view)
{
    const struct board_checkpoint *last = view_checkpoint(view);
    int64_t age_ms = last != NULL ? view->wall_ms - last->wall_ms : -1;
    cJSON *object = cJSON_AddObjectToObject(root, "checkpoint");
    add_count(object, "step", last != NULL ? last->step : -1);
    add_text(object, "path", last != NULL ? last->path : "");
    /* the wall clock may be set back */
    add_seconds(object, "age_seconds", last != NULL && age_ms < 0 ? 0 : age_ms);
    const struct board_checkpoint *now =
        view->first_worker != NULL ? &view->first_worker->checkpoint : NULL;
    json_add_number(object, "stall_seconds", now != NULL ? now->stall_ms / 1000 : NAN);
    json_add_number(object, "save_seconds", now != NULL ? now->save_ms / 1000 : NAN);
    add_count(object, "failures", now != NULL ? now->failures : -1);
    add_count(object, "skipped", now != NULL ? now->skipped : -1);
    add_text(object, "error", now != NULL ? now->error : "");
    add_count(object, "resume_step", view_resume_step(view));
}

static void add_ranks(cJSON *root, const struct view *view)
{
    cJSON *list = cJSON_AddArrayToObject(root, "ranks");
    for (int i = 0; i < view_ranks(view); i++) {
        struct view_peer peer;
        view_peer(view, i, &peer);
        cJSON *object = cJSON_CreateObject();
        cJSON_AddItemToArray(list, object);
        add_count(object, "rank", peer.rank);
        add_count(object, "node", peer.node);
        /* The rank's place in the mesh, from the innermost axis (mesh/mesh.h). */
        int left = peer.rank;
        const struct {
            const char *name;
            int size;
        } axes[] = {{"tensor", view->node.mesh_tensor},
                    {"context", view->node.mesh_context},
                    {"data", view->node.mesh_data},
                    {"pipeline", view->node.mesh_pipeline}};
        cJSON *place = cJSON_AddObjectToObject(object, "mesh");
        for (size_t axis = 0; axis < sizeof axes / sizeof *axes; axis++) {
            const int size = axes[axis].size > 0 ? axes[axis].size : 1;
            add_count(place, axes[axis].name, left % size);
            left /= size;
        }
        add_text(object, "device", peer.device);
        add_text(object, "state", peer.state);
#define RANK_STAT(NAME, field, kind, ...) ADD_##kind(object, &peer, field)
#include "base/rank_stats.def"
        if (peer.gpu != NULL) {
            cJSON *stats = cJSON_AddObjectToObject(object, "gpu");
#define ADD_GPU_COUNT(key, value) add_count(stats, key, value);
#define ADD_GPU_NUMBER(key, value) json_add_number(stats, key, value);
#define GPU_STAT(field, kind, key, ...) ADD_GPU_##kind(key, peer.gpu->field)
#include "base/rank_stats.def"
            add_seconds(stats, "age_seconds", view->now_ms - peer.gpu->published_ms);
        }
        if (view->node.n_nodes * view->node.workers_n > 1) {
            add_text(object, "call", peer.call);
            add_seconds(object, "call_age_seconds", peer.call_age_ms);
            add_seconds(object, "heard_age_seconds", peer.heard_age_ms);
        }
    }
}

static void add_machine(cJSON *node_object, const struct machine_stats *machine)
{
    cJSON *object = cJSON_AddObjectToObject(node_object, "machine");
#define ADD_MACHINE_COUNT(key, value) add_count(object, key, value);
#define ADD_MACHINE_NUMBER(key, value) json_add_number(object, key, value);
#define MACHINE_STAT(field, kind, key, ...) ADD_MACHINE_##kind(key, machine->field)
#include "base/rank_stats.def"
}

/* Adds the nodes of the cluster; without a cluster, only this node. */
static void add_nodes(cJSON *root, const struct view *view)
{
    cJSON *list = cJSON_AddArrayToObject(root, "nodes");
    for (int i = 0; i < view->nodes_n; i++) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddItemToArray(list, object);
        add_count(object, "node_id", view->nodes[i].node_id);
        add_text(object, "address", view->nodes[i].address);
        add_text(object, "state", view->nodes[i].state);
        json_add_number(object, "heartbeat_age_seconds", view->nodes[i].heartbeat_age_seconds);
        add_machine(object, &view->nodes[i].machine);
    }
    if (view->nodes_n > 0)
        return;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToArray(list, object);
    add_count(object, "node_id", view->node.node_id);
    add_text(object, "address", view->node.n_nodes <= 1 ? "127.0.0.1" : "");
    add_text(object, "state", board_phase_text(view->phase));
    add_count(object, "heartbeat_age_seconds", 0); /* this node is answering */
    add_machine(object, &view->machine);
}

static void add_error(cJSON *root, const struct board_error *error)
{
    if (error == NULL) {
        cJSON_AddNullToObject(root, "error");
        return;
    }
    cJSON *object = cJSON_AddObjectToObject(root, "error");
    json_add_i64(object, "code", error->code);
    add_text(object, "message", error->message);
    add_count(object, "node", error->node);
}

void report_write(const struct view *view, struct text *t)
{
    const struct board_node *node = &view->node;
    cJSON *root = cJSON_CreateObject();
    json_add_i64(root, "schema", REPORT_SCHEMA);
    add_text(root, "version", node->version);
    add_text(root, "run", node->run);
    add_text(root, "phase", board_phase_text(view->phase));
    add_count(root, "node_id", node->node_id);
    add_count(root, "n_nodes", node->n_nodes);
    add_text(root, "backend", view_backend(view));
    add_text(root, "device", view_device(view));
    add_text(root, "device_note", view->first_worker ? view->first_worker->device_note : "");
    add_model(root, view->first_worker);
    add_mesh(root, view);
    static const struct board_worker unknown = {
#define JOB_STAT(NAME, field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
    };
    const struct board_worker *from = view->first_worker != NULL ? view->first_worker : &unknown;
    add_count(root, "step", from->step);
#define JOB_STAT(NAME, field, kind, ...) ADD_##kind(root, from, field)
#include "base/rank_stats.def"
    add_seconds(root, "uptime_seconds",
                node->started_ms > 0 ? view->now_ms - node->started_ms : -1);
    add_seconds(root, "progress_age_seconds", view_progress_age_ms(view));
    add_count(root, "restarts", node->restarts);
    add_checkpoint(root, view);
    const struct board_peer_copy *copy = view_peer_copy(view);
    cJSON *object = cJSON_AddObjectToObject(root, "peer_copies");
    const bool is_known = copy->step >= 0 && copy->bytes > 0;
    add_count(object, "step", is_known ? copy->step : -1);
    add_count(object, "bytes", is_known ? copy->bytes : -1);
    json_add_number(object, "seconds", is_known ? copy->ms / 1000 : NAN);
    json_add_number(object, "bytes_per_second", is_known ? copy->bytes_per_second : NAN);
    add_ranks(root, view);
    add_nodes(root, view);
    if (view->door.is_there) {
        cJSON *member = cJSON_AddObjectToObject(root, "door");
        cJSON_AddBoolToObject(member, "full", view->door.is_full);
        json_add_i64(member, "strangers", view->door.strangers_n);
        json_add_i64(member, "turned_away", view->door.turned_away);
    }
    cJSON_AddRawToObject(root, "check", view->check_json != NULL ? view->check_json : "null");
    add_error(root, view_error(view));
    char *json = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    if (json == NULL)
        t->overflow = true;
    else
        text_add(t, "%s\n", json);
    cJSON_free(json);
}
