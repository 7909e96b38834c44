/* report — see report.h. */
#include "serve/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* An object of the answer. Each member that is added also gets a row of docs/status.md in `rows`;
 * rows NULL: only the answer is needed. */
struct object {
    cJSON *json;
    const char *path; /* path of its members: "checkpoint."; "": the answer itself */
    struct text *rows;
};

/* Adds the row of a member. help: its meaning, and a sentence that begins with "None" and names the
 * cases in which the member is null; without such a sentence it is never null. */
static void add_row(const struct object *object, const char *key, const char *type,
                    const char *help)
{
    const char *none = strstr(help, " None ");
    if (object->rows != NULL)
        text_add(object->rows, "| `%s%s` | %s | %.*s | %.*s |\n", object->path, key, type,
                 (int)(none != NULL ? none - help : (ptrdiff_t)strlen(help)), help,
                 none != NULL ? (int)strlen(none + 7) : 0, none != NULL ? none + 6 : "");
}

/* Adds a count. A negative number means "unknown", like an empty text. */
static void add_count(const struct object *object, const char *key, int64_t value, const char *help)
{
    add_row(object, key, "integer", help);
    if (value >= 0)
        json_add_i64(object->json, key, value);
    else
        cJSON_AddNullToObject(object->json, key);
}

/* Adds text, made valid UTF-8 first (a path may be any bytes): cJSON writes text unchanged. */
static void add_text(const struct object *object, const char *key, const char *value,
                     const char *help)
{
    char quoted[6 * 1024 + 3];
    add_row(object, key, "text", help);
    if (value[0] != 0) {
        json_quote(quoted, sizeof(quoted), value);
        cJSON_AddRawToObject(object->json, key, quoted);
    } else {
        cJSON_AddNullToObject(object->json, key);
    }
}

static void add_number(const struct object *object, const char *key, double value, const char *type,
                       const char *help)
{
    add_row(object, key, type, help);
    json_add_number(object->json, key, value);
}

static void add_seconds(const struct object *object, const char *key, int64_t ms, const char *help)
{
    add_number(object, key, ms >= 0 ? (double)ms / 1000 : NAN, "seconds", help);
}

/* Adds an object whose members have the path `path`; its key is the last name of the path. */
static struct object add_object(const struct object *parent, const char *path)
{
    char key[24];
    const size_t parent_n = strlen(parent->path);
    text_format(key, sizeof key, "%.*s", (int)(strlen(path) - parent_n - 1), path + parent_n);
    return (struct object){cJSON_AddObjectToObject(parent->json, key), path, parent->rows};
}

/* Adds a number that is also a metric. */
static void add_stat(const struct object *object, const double *stats, enum view_stat stat)
{
    const struct view_stat_text *text = &view_stat_texts[stat];
    add_number(object, text->key, stats[stat], text->kind, text->help);
}

static void add_stats(struct object object, const double *stats, int first, int last)
{
    for (int i = first; i <= last; i++)
        add_stat(&object, stats, (enum view_stat)i);
}

#define NO_COUNT " None before a worker has allocated them."
static void add_adapter(const struct object *model, const struct board_adapter *adapter)
{
    const struct object object = add_object(model, "model.adapter.");
    add_count(&object, "rank", adapter->rank,
              "Rank of the adapter (`LORA`). `adapter` is left out if all weights train.");
    add_number(&object, "alpha", adapter->alpha, "number", "Its `LORA_ALPHA`.");
    add_text(&object, "targets", adapter->targets,
             "Linear layers that have an adapter, as `LORA_TARGETS`.");
    add_count(&object, "trained", adapter->trained, "Parameters of the adapter." NO_COUNT);
    add_count(&object, "frozen", adapter->frozen, "Parameters of its model." NO_COUNT);
}

#define NO_MODEL " None before a worker has read the model."
static void add_model(const struct object *root, const struct view *view, const double *stats)
{
    const struct board_model *model = view_model(view);
    const struct object object = add_object(root, "model.");
    add_text(&object, "name", model->name, "Name of the model." NO_MODEL);
    add_count(&object, "layers", model->layers, "Transformer blocks." NO_MODEL);
    add_count(&object, "heads", model->heads, "Attention heads." NO_MODEL);
    add_count(&object, "kv_heads", model->kv_heads, "Key and value heads." NO_MODEL);
    add_count(&object, "head_dim", model->head_dim, "Width of a head, in elements." NO_MODEL);
    add_count(&object, "embed", model->embed, "Width of the model, in elements." NO_MODEL);
    add_count(&object, "ffn", model->ffn, "Width of the MLP, in elements." NO_MODEL);
    add_count(&object, "context", model->context, "Longest sequence, in tokens." NO_MODEL);
    add_count(&object, "vocab", model->vocab, "Size of the vocabulary, in tokens." NO_MODEL);
    add_stat(&object, stats, VIEW_PARAMETERS);
    add_text(&object, "task", model->task,
             "`lm` (language model, also with `TASK=chat`) or `qa` (question answering)." NO_MODEL);
    add_text(&object, "arch", model->arch,
             "Architecture, as `model_type` of transformers: `gpt2`, `llama` …." NO_MODEL);
    if (model->adapter.rank > 0)
        add_adapter(&object, &model->adapter);
}

static void add_mesh(const struct object *root, const struct view *view)
{
    const struct board_node *node = &view->node;
    const struct board_worker *worker = view_numbers(view);
    const struct object object = add_object(root, "mesh.");
    add_count(&object, "data", node->mesh_data, "Ranks along the data axis.");
    add_count(&object, "shard", node->mesh_shard,
              "Ranks over which the state is sharded. None with `SHARD=auto` on 4 GPUs or more.");
    add_count(&object, "tensor", node->mesh_tensor, "Ranks along the tensor axis (`TP`).");
    add_count(&object, "context", node->mesh_context, "Ranks along the context axis (`CP`).");
    add_count(&object, "pipeline", node->mesh_pipeline, "Ranks along the pipeline axis (`PP`).");
    const struct object links = add_object(&object, "mesh.links.");
    const char *const axes[][2] = {{"data", worker->links.data},
                                   {"tensor", worker->links.tensor},
                                   {"context", worker->links.context},
                                   {"pipeline", worker->links.pipeline}};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        add_text(&links, axes[i][0], axes[i][1],
                 "Transport along this axis. None if the axis has one rank, or is not connected.");
}

/* ADD_kind — adds a number of that kind. */
#define ADD_COUNT(object, key, value, help) add_count(object, key, value, help);
#define ADD_NUMBER(object, key, value, help) add_number(object, key, value, "number", help);
#define ADD_MS(object, key, value, help) add_number(object, key, value, "milliseconds", help);
#define ADD_REMAINING(object, key, value, help) \
    add_number(object, key, rank_stats_remaining(value), "seconds", help);
#define ADD_TIMES(object, ...) \
    add_stats(add_object(object, "step_ms."), stats, VIEW_STEP_LAST, VIEW_STEP_P95);

static void add_checkpoint(const struct object *root, const struct view *view, const double *stats)
{
    const struct board_checkpoint *last = view_checkpoint(view);
    const struct object object = add_object(root, "checkpoint.");
    add_stat(&object, stats, VIEW_CHECKPOINT_STEP);
    add_text(&object, "path", last != NULL ? last->path : "",
             "Folder of that checkpoint. None before the first one, and on nodes without rank 0.");
    add_stat(&object, stats, VIEW_CHECKPOINT_AGE);
    add_stat(&object, stats, VIEW_CHECKPOINT_STALL);
    add_stat(&object, stats, VIEW_CHECKPOINT_SAVE);
    add_stat(&object, stats, VIEW_CHECKPOINT_FAILURES);
    add_stat(&object, stats, VIEW_CHECKPOINT_SKIPPED);
    add_text(&object, "error", view_numbers(view)->checkpoint.error,
             "Reason why the last save failed. None if it did not fail.");
    add_count(&object, "resume_step", view_resume_step(view),
              "Step from which a recovering job resumes. None in other phases, or if unknown.");
}

#define NO_BUCKET " None without a bucket, and on nodes other than node 0."
static void add_upload(const struct object *root, const struct view *view, const double *stats)
{
    const struct board_upload *upload = &view->node.upload;
    const struct object object = add_object(root, "upload.");
    add_text(&object, "bucket", upload->bucket,
             "Prefix to which checkpoints are uploaded, `s3://bucket/prefix`." NO_BUCKET);
    add_stats(object, stats, VIEW_UPLOAD_STEP, VIEW_UPLOAD_DROPPED);
    add_text(
        &object, "error", upload->error,
        "Reason why the last request of an upload failed. None if it did not fail, or if bytes "
        "have moved since.");
}

/* Adds the cost of a lost node. */
static void add_lost_node(const struct object *root, const struct view *view, const double *stats)
{
    char text[LOSS_COST_TEXT];
    struct loss_cost cost;
    const struct object object = add_object(root, "lost_node.");
    view_loss_cost(view, &cost);
    add_stats(object, stats, VIEW_LOSS_STEPS, VIEW_LOSS_RECOVERY);
    add_text(
        &object, "text", loss_cost_text(&cost, text, sizeof text),
        "The cost of a lost node in a sentence, by the settings and by what this run measured. "
        "None for stored runs.");
}

static void add_ranks(const struct object *root, const struct view *view)
{
    cJSON *list = cJSON_AddArrayToObject(root->json, "ranks");
    for (int i = 0; i < view_ranks(view); i++) {
        struct view_peer peer;
        view_peer(view, i, &peer);
        const struct object object = {cJSON_CreateObject(), "ranks[].", root->rows};
        cJSON_AddItemToArray(list, object.json);
        add_count(&object, "rank", peer.rank, "Number of the rank, from 0.");
        add_count(&object, "node", peer.node, "Number of the rank's node.");
        /* The rank's place in the mesh, from the innermost axis (mesh/mesh.h). */
        int left = peer.rank;
        static const char *const axes[] = {"tensor", "context", "data", "pipeline"};
        const int sizes[] = {view->node.mesh_tensor, view->node.mesh_context, view->node.mesh_data,
                             view->node.mesh_pipeline};
        const struct object place = add_object(&object, "ranks[].mesh.");
        for (size_t axis = 0; axis < sizeof axes / sizeof *axes; axis++) {
            const int size = sizes[axis] > 0 ? sizes[axis] : 1;
            add_count(&place, axes[axis], left % size,
                      "Place of the rank along this axis, from 0.");
            left /= size;
        }
        add_text(&object, "device", peer.device, "Device of the rank. None before it is opened.");
        add_text(&object, "state", peer.state,
                 "Phase of the rank, or `hung`, `lost`, `left` or `unknown`; after the end also "
                 "`stopped`.");
#define RANK_STAT(NAME, field, kind, curve, metric, help) \
    ADD_##kind(&object, #field, peer.field, help)
#include "base/rank_stats.def"
        if (peer.gpu != NULL) {
            const struct object stats = add_object(&object, "ranks[].gpu.");
#define GPU_STAT(field, kind, key, metric, help) ADD_##kind(&stats, key, peer.gpu->field, help)
#include "base/rank_stats.def"
            add_seconds(&stats, "age_seconds", view->now_ms - peer.gpu->published_ms,
                        "Age of these numbers.");
        }
        if (view->node.n_nodes * view->node.workers_n > 1) {
            add_text(&object, "call", peer.call,
                     "Collective, send or receive in progress. None if there is none.");
            add_seconds(&object, "call_age_seconds", peer.call_age_ms,
                        "Time since `call` began. None if there is none.");
            add_seconds(&object, "heard_age_seconds", peer.heard_age_ms,
                        "Age of the node's last message. None while the node is connected.");
        }
    }
}

/* Adds the nodes of the cluster; without a cluster, only this node. */
static void add_nodes(const struct object *root, const struct view *view)
{
    struct view_node own = {view->node.node_id, "", board_phase_text(view->phase), 0,
                            view->machine};
    text_copy(own.address, sizeof own.address, view->node.n_nodes <= 1 ? "127.0.0.1" : "");
    const int nodes_n = view->nodes_n > 0 ? view->nodes_n : 1;
    cJSON *list = cJSON_AddArrayToObject(root->json, "nodes");
    for (int i = 0; i < nodes_n; i++) {
        const struct view_node *node = view->nodes_n > 0 ? &view->nodes[i] : &own;
        const struct object object = {cJSON_CreateObject(), "nodes[].", root->rows};
        cJSON_AddItemToArray(list, object.json);
        add_count(&object, "node_id", node->node_id, "Number of the node (`NODE_ID`).");
        add_text(&object, "address", node->address,
                 "Address of the node. None before it has joined.");
        add_text(&object, "state", node->state,
                 "`awaited`, `joined`, `suspect`, `lost` or `left`; of a single node its phase.");
        add_number(&object, "heartbeat_age_seconds", node->heartbeat_age_seconds, "seconds",
                   "Time since the node's last heartbeat. None before the first one.");
        const struct object machine = add_object(&object, "nodes[].machine.");
#define MACHINE_STAT(field, kind, key, metric, help) \
    ADD_##kind(&machine, key, node->machine.field, help)
#include "base/rank_stats.def"
    }
}

/* Adds the results of the check, which come as JSON from check_result.h. */
static void add_check(const struct object *root, const char *json)
{
    const struct object check = {NULL, "check.", root->rows};
    add_row(&check, "verdict", "text", "The worst verdict: `pass`, `warn` or `fail`.");
    add_row(&check, "whole", "boolean",
            "true: the check is complete. false: it is not, and these are its findings so far.");
    add_row(&check, "depth", "text", "`quick`, `standard` or `full`.");
    add_row(&check, "started", "integer", "When the check began, in seconds since 1970.");
    add_row(&check, "seconds", "seconds", "Duration of the check.");
    add_row(&check, "passed", "integer", "Rows that passed.");
    add_row(&check, "warned", "integer", "Rows that warn.");
    add_row(&check, "failed", "integer", "Rows that fail.");
    add_row(&check, "skipped", "integer", "Rows that were skipped.");
    add_row(&check, "rows[].stage", "text", "Stage of the check, such as `node` or `pairs`.");
    add_row(&check, "rows[].name", "text", "Name of the quantity, such as `link latency`.");
    add_row(&check, "rows[].subject", "text", "Device or link, such as `GPU 3`; empty: the node.");
    add_row(&check, "rows[].node", "integer", "Number of the node. None for all nodes.");
    add_row(&check, "rows[].peer", "integer", "Other end of a link. None for other rows.");
    add_row(&check, "rows[].verdict", "text", "`warn` or `fail`; at most 64 rows are shown.");
    add_row(&check, "rows[].value", "number", "Measured value. None if nothing was measured.");
    add_row(&check, "rows[].unit", "text", "Unit of `value`; empty: none.");
    add_row(&check, "rows[].why", "text", "The finding, in a sentence.");
    add_row(&check, "rows[].remedy", "text", "Command or setting that repairs it; empty: none.");
    cJSON_AddRawToObject(root->json, "check", json != NULL ? json : "null");
}

static void add_error(const struct object *root, const struct board_error *error)
{
    if (error == NULL) {
        cJSON_AddNullToObject(root->json, "error");
        return;
    }
    const struct object object = add_object(root, "error.");
    add_count(&object, "code", error->code, "Exit code ([exit codes](exit-codes.md)).");
    add_text(&object, "message", error->message, "The failure in a sentence.");
    add_count(&object, "node", error->node, "Number of the node that failed.");
}

/* Makes the answer; the caller deletes it. */
static cJSON *make_report(const struct view *view, struct text *rows)
{
    const struct board_node *node = &view->node;
    const struct board_worker *from = view_numbers(view);
    const struct object object = {cJSON_CreateObject(), "", rows}, *root = &object;
    double stats[VIEW_STATS_N];
    view_stats(view, stats);
    add_count(root, "schema", REPORT_SCHEMA, "Version of this format; members may be added.");
    add_text(root, "version", node->version, "Version of the program.");
    add_text(root, "run", node->run, "Name of the run. None without `RUN_NAME`.");
    add_text(root, "phase", board_phase_text(view->phase),
             "Phase of this node: `starting`, `joining`, `checking`, `loading`, `training`, "
             "`evaluating`, `checkpointing`, `recovering`, `done` or `failed`.");
    add_count(root, "node_id", node->node_id, "Number of this node (`NODE_ID`).");
    add_stat(root, stats, VIEW_NODES);
    add_text(root, "backend", view_backend(view),
             "Transport between the ranks, such as `shm + tcp`. None before they are connected.");
    add_text(root, "device", view_device(view), "`cpu`, `cuda` or `hip`.");
    add_text(
        root, "device_note", from->device_note,
        "Why `DEVICE=auto` uses the CPU despite a GPU's driver, and the remedy. None otherwise.");
    add_model(root, view, stats);
    add_mesh(root, view);
    add_stat(root, stats, VIEW_STEP);
#define JOB_STAT(NAME, field, kind, curve, metric, help) ADD_##kind(root, #field, from->field, help)
#include "base/rank_stats.def"
    add_stat(root, stats, VIEW_UPTIME);
    add_stat(root, stats, VIEW_PROGRESS_AGE);
    add_stat(root, stats, VIEW_RESTARTS);
    add_checkpoint(root, view, stats);
    add_upload(root, view, stats);
    add_stats(add_object(root, "peer_copies."), stats, VIEW_PEER_COPY_STEP, VIEW_PEER_COPY_MEMORY);
    add_lost_node(root, view, stats);
    add_ranks(root, view);
    add_nodes(root, view);
    if (view->door.is_there) {
        const struct object door = add_object(root, "door.");
        add_row(&door, "full", "boolean", view_stat_texts[VIEW_DOOR_FULL].help);
        cJSON_AddBoolToObject(door.json, "full", view->door.is_full);
        add_stat(&door, stats, VIEW_DOOR_STRANGERS);
        add_stat(&door, stats, VIEW_DOOR_TURNED_AWAY);
    }
    add_check(root, view->check_json);
    add_error(root, view_error(view));
    return root->json;
}

void report_write(const struct view *view, struct text *t)
{
    cJSON *root = make_report(view, NULL);
    char *json = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    if (json == NULL)
        t->overflow = true;
    else
        text_add(t, "%s\n", json);
    cJSON_free(json);
}

void report_write_markdown(struct text *t)
{
    struct view *view = view_new_complete();
    text_add(t, "| member | type | meaning | null |\n|---|---|---|---|\n");
    cJSON_Delete(make_report(view, t));
    free(view);
}
