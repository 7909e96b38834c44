/* message — see message.h. Must not know sockets or time. */
#include "cluster/message.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "cluster/succession.h"
#include "net/base64.h"

#define WHOLE_MAX ((int64_t)1 << 53)

/* ---- writing ---- */

static void add_string(struct text *out, const char *key, const char *value)
{
    char quoted[MESSAGE_TEXT_MAX * 6 + 3];
    json_quote(quoted, sizeof quoted, value);
    text_add(out, ",\"%s\":%s", key, quoted);
}

static void add_whole(struct text *out, const char *key, int64_t value)
{
    text_add(out, ",\"%s\":%lld", key, (long long)value);
}

static void add_number(struct text *out, const char *key, double value)
{
    if (isfinite(value))
        text_add(out, ",\"%s\":%.9g", key, value);
    else
        text_add(out, ",\"%s\":null", key);
}

static void add_incarnation(struct text *out, const char *key,
                            struct message_incarnation incarnation)
{
    text_add(out, ",\"%s\":\"%016llx%016llx\"", key, (unsigned long long)incarnation.hi,
             (unsigned long long)incarnation.lo);
}

static void add_counts(struct text *out, const struct restart_counts *counts)
{
    add_whole(out, "restarts", counts->restarts);
    add_whole(out, "barren", counts->losses);
    add_whole(out, "step_best", counts->first.step);
    add_whole(out, "repeats", counts->first.n);
    add_whole(out, "refilled", counts->refilled);
}

static void add_address(struct text *out, const struct cluster_address *address, bool is_first)
{
    char encoded[BASE64_SIZE(CLUSTER_ADDRESS_MAX)];
    base64_write(encoded, address->data, (size_t)address->bytes);
    text_add(out, "%s\"", is_first ? "" : ",");
    text_add_bytes(out, encoded, strlen(encoded));
    text_add(out, "\"");
}

static void add_rank(struct text *out, const struct cluster_rank *rank, bool is_first)
{
    text_add(out, "%s{\"rank\":%d", is_first ? "" : ",", rank->rank);
    add_string(out, "state", rank->state);
    add_string(out, "device", rank->device);
#define ADD_COUNT(field) add_whole(out, #field, rank->field);
#define ADD_MS(field) add_number(out, #field, rank->field);
#define RANK_STAT(NAME, field, kind, ...) ADD_##kind(field)
#include "base/rank_stats.def"
    add_string(out, "call", rank->call);
    add_whole(out, "call_sequence", rank->call_sequence);
    add_whole(out, "call_age_ms", rank->call_age_ms);
    text_add(out, "}");
}

static void add_machine(struct text *out, const struct machine_stats *machine)
{
#define ADD_MACHINE_COUNT(field) add_whole(out, "machine_" #field, machine->field);
#define ADD_MACHINE_NUMBER(field) add_number(out, "machine_" #field, machine->field);
#define MACHINE_STAT(field, kind, ...) ADD_MACHINE_##kind(field)
#include "base/rank_stats.def"
}

static void add_incarnations(struct text *out, const struct succession_world *world)
{
    text_add(out, ",\"instances\":[");
    for (int i = 0; i < world->n; i++) {
        const struct message_incarnation *one = &world->processes[i].incarnation;
        text_add(out, "%s\"%016llx%016llx\"", i > 0 ? "," : "", (unsigned long long)one->hi,
                 (unsigned long long)one->lo);
    }
    text_add(out, "]");
}

static void add_past(struct text *out, const struct succession *past)
{
    text_add(out, ",\"past\":[");
    for (int i = 0; i < past->n; i++) {
        const struct succession_world *world = &past->worlds[i];
        text_add(out, "%s{\"stepped\":%s", i > 0 ? "," : "", world->has_stepped ? "true" : "false");
        add_whole(out, "generation", world->generation);
        add_incarnation(out, "coordinator", world->coordinator);
        text_add(out, ",\"nodes\":[");
        for (int k = 0; k < world->n; k++)
            text_add(out, "%s%d", k > 0 ? "," : "", world->processes[k].node_id);
        text_add(out, "]");
        add_incarnations(out, world);
        text_add(out, "}");
    }
    text_add(out, "]");
}

static void add_join(struct text *out, const struct message_join *join)
{
    text_add(out, ",\"hello\":{\"nodes_n\":%d,\"workers_n\":%d", join->nodes_n, join->workers_n);
    add_whole(out, "pid", join->pid);
    text_add(out, ",\"agree\":");
    json_quote_text(out, join->agree_json);
    add_whole(out, "control_port", join->control_port);
    if (join->past) {
        add_whole(out, "left_out", join->past->left_out);
        add_past(out, join->past);
    }
    if (join->ended.hi != 0 || join->ended.lo != 0)
        add_incarnation(out, "ended", join->ended);
    text_add(out, "}");
}

void message_write_heartbeat(struct text *out, const struct message_heartbeat *heartbeat,
                             const struct message_join *join, int64_t hold_ms)
{
    text_add(out, "{\"protocol\":%lld,\"node_id\":%d",
             join ? (long long)join->protocol : MESSAGE_PROTOCOL, heartbeat->node_id);
    add_string(out, "host", join ? join->host : "");
    add_incarnation(out, "instance", heartbeat->incarnation);
    add_whole(out, "sequence", heartbeat->sequence);
    add_whole(out, "turn", heartbeat->revision);
    add_whole(out, "silence_ms", heartbeat->silence_ms);
    add_whole(out, "late_ms", heartbeat->lag_ms);
    add_whole(out, "generation", heartbeat->generation);
    add_whole(out, "running", heartbeat->running);
    add_whole(out, "ready", heartbeat->ready);
    add_whole(out, "losses", heartbeat->losses);
    add_whole(out, "lost", heartbeat->lost);
    add_string(out, "lost_st", status_name(heartbeat->lost_st));
    add_whole(out, "lost_worker", heartbeat->lost_worker);
    add_whole(out, "lost_step", heartbeat->lost_step);
    add_whole(out, "closed", heartbeat->closed);
    add_whole(out, "closed_rank", heartbeat->closed_rank);
    add_whole(out, "stepped", heartbeat->stepped);
    text_add(out, ",\"leaving\":%s", heartbeat->is_leaving ? "true" : "false");
    add_string(out, "leave_st", status_name(heartbeat->leave_st));
    add_whole(out, "stop", heartbeat->stop);
    add_whole(out, "step", heartbeat->step);
    add_counts(out, &heartbeat->counts);
    add_string(out, "why", heartbeat->why);
    add_whole(out, "hold_ms", hold_ms);
    add_machine(out, &heartbeat->machine);
    if (join)
        add_join(out, join);
    text_add(out, ",\"ranks\":[");
    for (int i = 0; i < heartbeat->ranks_n; i++)
        add_rank(out, &heartbeat->ranks[i], i == 0);
    text_add(out, "],\"addresses\":[");
    for (int i = 0; i < heartbeat->addresses_n; i++)
        add_address(out, &heartbeat->addresses[i], i == 0);
    text_add(out, "]}");
}

void message_write_reply(struct text *out, const struct message_reply *reply)
{
    text_add(out, "{\"answer\":%d", (int)reply->answer);
    add_incarnation(out, "coordinator", reply->coordinator);
    add_whole(out, "turn", reply->revision);
    add_whole(out, "sequence", reply->sequence);
    add_whole(out, "generation", reply->generation);
    text_add(out, ",\"lease\":%s,\"running\":%s,\"left\":%s", reply->is_lease ? "true" : "false",
             reply->is_running ? "true" : "false", reply->is_leave_confirmed ? "true" : "false");
    add_whole(out, "lease_ms", reply->lease_ms);
    add_whole(out, "stepped", reply->stepped);
    add_whole(out, "leader", reply->leader_id);
    add_string(out, "control", reply->control);
    add_whole(out, "ready", reply->ready);
    add_whole(out, "used", reply->used);
    add_whole(out, "stop", reply->stop);
    add_string(out, "st", status_name(reply->st));
    add_counts(out, &reply->counts);
    add_string(out, "text", reply->text);
    add_string(out, "missing", reply->missing);
    text_add(out, "}");
}

void message_write_world_request(struct text *out, int node_id,
                                 struct message_incarnation incarnation, int64_t generation)
{
    text_add(out, "{\"node_id\":%d", node_id);
    add_incarnation(out, "instance", incarnation);
    add_whole(out, "generation", generation);
    text_add(out, "}");
}

void message_write_world(struct text *out, const struct cluster_world *world)
{
    struct message_incarnation secret;
    memcpy(&secret, world->secret, sizeof secret);
    text_add(out, "{\"generation\":%lld", (long long)world->generation);
    add_incarnation(out, "secret", secret);
    text_add(out, ",\"nodes\":[");
    for (int i = 0; i < world->nodes_n; i++)
        text_add(out, "%s%d", i > 0 ? "," : "", world->node_ids[i]);
    text_add(out, "]");
    if (world->past) {
        add_incarnation(out, "coordinator", world->past->coordinator);
        add_incarnations(out, world->past);
        text_add(out, ",\"controls\":[");
        for (int i = 0; i < world->nodes_n; i++) {
            text_add(out, "%s", i > 0 ? "," : "");
            json_quote_text(out, world->controls[i]);
        }
        text_add(out, "]");
    }
    text_add(out, ",\"addresses\":[");
    for (int i = 0; i < world->ranks_n; i++)
        add_address(out, &world->addresses[i], i == 0);
    text_add(out, "]}");
}

void message_write_view(struct text *out, const struct message_view *view)
{
    text_add(out, "{\"node_id\":%d,\"is_coordinator\":%s,\"running\":%s,\"has_past\":%s",
             view->node_id, view->is_coordinator ? "true" : "false",
             view->is_running ? "true" : "false", view->has_past ? "true" : "false");
    add_incarnation(out, "instance", view->incarnation);
    if (view->is_coordinator)
        add_incarnation(out, "coordinator", view->coordinator);
    add_whole(out, "generation", view->generation);
    add_whole(out, "leader", view->leader_id);
    add_string(out, "control", view->control);
    text_add(out, "}");
}

/* ---- reading ---- */

static enum status get_int(const cJSON *object, const char *key, int min, int max, int *out)
{
    int64_t value;
    TRY(json_get_i64(object, key, min, max, &value));
    *out = (int)value;
    return ST_OK;
}

static enum status get_bool(const cJSON *object, const char *key, bool *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsBool(item))
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" is not true or false", key);
    *out = cJSON_IsTrue(item);
    return ST_OK;
}

/* Reads text for the log, which is cut to its field, never refused. */
static enum status get_text(const cJSON *object, const char *key, char *out, size_t cap)
{
    const char *value;
    TRY(json_get_string(object, key, &value));
    text_copy(out, cap, value);
    return ST_OK;
}

static enum status get_status(const cJSON *object, const char *key, enum status *out)
{
    const char *name;
    TRY(json_get_string(object, key, &name));
    for (int st = 0; st < STATUS_N; st++) {
        if (strcmp(status_name((enum status)st), name) == 0) {
            *out = (enum status)st;
            return ST_OK;
        }
    }
    return FAIL(ST_BAD_DATA, "JSON key \"%s\" is no status: %.32s", key, name);
}

static enum status get_incarnation(const cJSON *object, const char *key,
                                   struct message_incarnation *out)
{
    const char *digits;
    TRY(json_get_string(object, key, &digits));
    if (strlen(digits) != 32 || !text_parse_hex(digits, 16, &out->hi) ||
        !text_parse_hex(digits + 16, 16, &out->lo) || (out->hi == 0 && out->lo == 0))
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" is not 32 hexadecimal digits", key);
    return ST_OK;
}

/* Reads the counts. A node of an earlier version does not send the last two; see
 * read_later_keys. */
static enum status get_counts(const cJSON *object, struct restart_counts *out)
{
    TRY(json_get_i64(object, "restarts", 0, INT32_MAX, &out->restarts));
    TRY(json_get_i64(object, "barren", 0, INT32_MAX, &out->losses));
    TRY(json_get_i64(object, "step_best", -1, WHOLE_MAX, &out->first.step));
    if (!cJSON_HasObjectItem(object, "repeats"))
        return ST_OK;
    TRY(json_get_i64(object, "repeats", 0, INT32_MAX, &out->first.n));
    return json_get_i64(object, "refilled", 0, out->restarts, &out->refilled);
}

static enum status read_incarnation(const cJSON *item, struct message_incarnation *out)
{
    const char *digits = cJSON_IsString(item) ? item->valuestring : "";
    if (strlen(digits) != 32 || !text_parse_hex(digits, 16, &out->hi) ||
        !text_parse_hex(digits + 16, 16, &out->lo) || (out->hi == 0 && out->lo == 0))
        return FAIL(ST_BAD_DATA, "a process is not 32 hexadecimal digits");
    return ST_OK;
}

/* Reads the coordinator and the processes of a world; nodes: its NODE_IDs, which ascend. */
static enum status read_processes(const cJSON *object, struct succession_world *out)
{
    const cJSON *list, *item;
    int n = 0, last = -1;
    TRY(get_incarnation(object, "coordinator", &out->coordinator));
    TRY(json_get_array(object, "nodes", &list));
    cJSON_ArrayForEach(item, list)
    {
        const double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (n == SUCCESSION_NODES_MAX || id <= last || id >= CLUSTER_NODES_MAX || id != (int)id)
            return FAIL(ST_BAD_DATA, "the nodes of a world do not ascend");
        out->processes[n++] = (struct succession_process){.node_id = last = (int)id};
    }
    out->n = n;
    TRY(json_get_array(object, "instances", &list));
    n = 0;
    cJSON_ArrayForEach(item, list)
    {
        TRY(n < out->n ? ST_OK : FAIL(ST_BAD_DATA, "a world has more processes than nodes"));
        TRY(read_incarnation(item, &out->processes[n++].incarnation));
    }
    if (n != out->n || n == 0)
        return FAIL(ST_BAD_DATA, "a world has %d processes on %d nodes", n, out->n);
    return ST_OK;
}

static enum status read_past(const cJSON *join, struct succession *out)
{
    const cJSON *list, *item;
    out->n = 0;
    TRY(json_get_i64(join, "left_out", 0, WHOLE_MAX, &out->left_out));
    TRY(json_get_array(join, "past", &list));
    cJSON_ArrayForEach(item, list)
    {
        TRY(out->n < SUCCESSION_WORLDS_MAX ? ST_OK : FAIL(ST_BAD_DATA, "too many worlds"));
        struct succession_world *world = &out->worlds[out->n++];
        TRY(get_bool(item, "stepped", &world->has_stepped));
        TRY(json_get_i64(item, "generation", 1, WHOLE_MAX, &world->generation));
        TRY(read_processes(item, world));
    }
    return ST_OK;
}

static enum status get_number(const cJSON *object, const char *key, double *out)
{
    *out = NAN;
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(object, key)))
        return ST_OK;
    return json_get_f64(object, key, out);
}

static enum status read_rank(const cJSON *item, struct cluster_rank *out)
{
    TRY(get_int(item, "rank", 0, CLUSTER_NODES_MAX * CLUSTER_WORKERS_MAX - 1, &out->rank));
    TRY(get_text(item, "state", out->state, sizeof out->state));
    TRY(get_text(item, "device", out->device, sizeof out->device));
#define GET_COUNT(field) TRY(json_get_i64(item, #field, -1, WHOLE_MAX, &out->field));
#define GET_MS(field) TRY(get_number(item, #field, &out->field));
#define RANK_STAT(NAME, field, kind, ...) GET_##kind(field)
#include "base/rank_stats.def"
    TRY(get_text(item, "call", out->call, sizeof out->call));
    TRY(json_get_i64(item, "call_sequence", 0, WHOLE_MAX, &out->call_sequence));
    return json_get_i64(item, "call_age_ms", 0, WHOLE_MAX, &out->call_age_ms);
}

static enum status read_addresses(const cJSON *root, int max_n, struct cluster_address *out,
                                  int *n_out)
{
    const cJSON *list, *item;
    int n = 0;
    size_t bytes;
    TRY(json_get_array(root, "addresses", &list));
    cJSON_ArrayForEach(item, list)
    {
        if (n == max_n)
            return FAIL(ST_BAD_DATA, "more than %d addresses", max_n);
        if (!cJSON_IsString(item) ||
            !base64_read(item->valuestring, out[n].data, CLUSTER_ADDRESS_MAX, &bytes))
            return FAIL(ST_BAD_DATA, "address %d is not base64 of at most %d bytes", n,
                        CLUSTER_ADDRESS_MAX);
        out[n++].bytes = (int64_t)bytes;
    }
    *n_out = n;
    return ST_OK;
}

static enum status read_machine(const cJSON *root, struct machine_stats *out)
{
    *out = machine_stats_unknown();
    if (!cJSON_HasObjectItem(root, "machine_cpu_busy")) /* a node of an earlier version */
        return ST_OK;
#define GET_MACHINE_COUNT(field) \
    TRY(json_get_i64(root, "machine_" #field, -1, WHOLE_MAX, &out->field));
#define GET_MACHINE_NUMBER(field) TRY(get_number(root, "machine_" #field, &out->field));
#define MACHINE_STAT(field, kind, ...) GET_MACHINE_##kind(field)
#include "base/rank_stats.def"
    return ST_OK;
}

/* Reads keys that a node of an earlier version does not send. Its message is read nevertheless, so
 * that the coordinator reports the difference of the versions. */
static enum status read_later_keys(const cJSON *root, struct message_heartbeat *heartbeat)
{
    if (!cJSON_HasObjectItem(root, "closed"))
        return ST_OK;
    TRY(json_get_i64(root, "closed", 0, WHOLE_MAX, &heartbeat->closed));
    TRY(get_int(root, "closed_rank", 0, CLUSTER_NODES_MAX * CLUSTER_WORKERS_MAX - 1,
                &heartbeat->closed_rank));
    TRY(json_get_i64(root, "stepped", 0, WHOLE_MAX, &heartbeat->stepped));
    if (!cJSON_HasObjectItem(root, "lost_worker"))
        return ST_OK;
    TRY(get_int(root, "lost_worker", -1, CLUSTER_WORKERS_MAX - 1, &heartbeat->lost_worker));
    return json_get_i64(root, "lost_step", -1, WHOLE_MAX, &heartbeat->lost_step);
}

static enum status read_state(const cJSON *root, struct message_heartbeat *heartbeat)
{
    TRY(json_get_i64(root, "sequence", 1, WHOLE_MAX, &heartbeat->sequence));
    TRY(json_get_i64(root, "turn", -1, WHOLE_MAX, &heartbeat->revision));
    TRY(json_get_i64(root, "silence_ms", 0, WHOLE_MAX, &heartbeat->silence_ms));
    TRY(json_get_i64(root, "late_ms", 0, WHOLE_MAX, &heartbeat->lag_ms));
    TRY(json_get_i64(root, "generation", 0, WHOLE_MAX, &heartbeat->generation));
    TRY(json_get_i64(root, "running", 0, WHOLE_MAX, &heartbeat->running));
    TRY(json_get_i64(root, "ready", 0, WHOLE_MAX, &heartbeat->ready));
    TRY(json_get_i64(root, "losses", 0, WHOLE_MAX, &heartbeat->losses));
    TRY(json_get_i64(root, "lost", 0, WHOLE_MAX, &heartbeat->lost));
    TRY(get_status(root, "lost_st", &heartbeat->lost_st));
    TRY(read_later_keys(root, heartbeat));
    TRY(get_bool(root, "leaving", &heartbeat->is_leaving));
    TRY(get_status(root, "leave_st", &heartbeat->leave_st));
    TRY(get_int(root, "stop", 0, CLUSTER_STOP_MAX, &heartbeat->stop));
    TRY(json_get_i64(root, "step", -1, WHOLE_MAX, &heartbeat->step));
    TRY(get_counts(root, &heartbeat->counts));
    return get_text(root, "why", heartbeat->why, sizeof heartbeat->why);
}

static enum status read_heartbeat(const cJSON *root, struct message_body *out)
{
    TRY(json_get_i64(root, "protocol", 0, INT32_MAX, &out->join.protocol));
    TRY(get_int(root, "node_id", 0, INT32_MAX, &out->heartbeat.node_id));
    TRY(get_text(root, "host", out->join.host, sizeof out->join.host));
    out->join.agree_json = "";
    out->has_join = out->join.protocol != MESSAGE_PROTOCOL;
    if (out->has_join)
        return ST_OK;
    TRY(get_incarnation(root, "instance", &out->heartbeat.incarnation));
    TRY(read_state(root, &out->heartbeat));
    TRY(json_get_i64(root, "hold_ms", 0, 10000, &out->hold_ms));
    out->has_join = cJSON_HasObjectItem(root, "hello");
    if (out->has_join) {
        const cJSON *join;
        const char *agree;
        TRY(json_get_object(root, "hello", &join));
        TRY(get_int(join, "nodes_n", 1, INT32_MAX, &out->join.nodes_n));
        TRY(get_int(join, "workers_n", 1, INT32_MAX, &out->join.workers_n));
        TRY(json_get_i64(join, "pid", 0, WHOLE_MAX, &out->join.pid));
        TRY(json_get_string(join, "agree", &agree));
        if (!text_copy(out->agree, sizeof out->agree, agree))
            return FAIL(ST_BAD_DATA,
                        "the list of settings that must agree is longer than %zu bytes",
                        sizeof out->agree);
        out->join.agree_json = out->agree;
        if (cJSON_HasObjectItem(join, "control_port"))
            TRY(get_int(join, "control_port", 0, 65535, &out->join.control_port));
        if (out->past && cJSON_HasObjectItem(join, "past")) {
            TRY(read_past(join, out->past));
            out->join.past = out->past;
        }
        if (cJSON_HasObjectItem(join, "ended"))
            TRY(get_incarnation(join, "ended", &out->join.ended));
    }
    TRY(read_machine(root, &out->heartbeat.machine));
    const cJSON *list, *item;
    TRY(json_get_array(root, "ranks", &list));
    cJSON_ArrayForEach(item, list)
    {
        if (out->heartbeat.ranks_n == CLUSTER_WORKERS_MAX)
            return FAIL(ST_BAD_DATA, "more than %d ranks of one node", CLUSTER_WORKERS_MAX);
        TRY(read_rank(item, &out->ranks[out->heartbeat.ranks_n++]));
    }
    out->heartbeat.ranks = out->ranks;
    out->heartbeat.addresses = out->addresses;
    return read_addresses(root, CLUSTER_WORKERS_MAX, out->addresses, &out->heartbeat.addresses_n);
}

enum status message_read_heartbeat(const char *bytes, size_t n, struct message_body *out)
{
    cJSON *root = NULL;
    out->heartbeat = (struct message_heartbeat){0};
    out->join = (struct message_join){0};
    out->hold_ms = 0;
    TRY(json_parse(bytes, n, "a node's message", &root));
    enum status st = read_heartbeat(root, out);
    cJSON_Delete(root);
    return st;
}

static enum status read_reply(const cJSON *root, struct message_reply *out)
{
    int answer = 0;
    TRY(get_int(root, "answer", MESSAGE_ANSWER_MEMBER, MESSAGE_ANSWER_ELSEWHERE, &answer));
    out->answer = (enum message_answer)answer;
    TRY(get_incarnation(root, "coordinator", &out->coordinator));
    TRY(json_get_i64(root, "turn", 0, WHOLE_MAX, &out->revision));
    TRY(json_get_i64(root, "sequence", 0, WHOLE_MAX, &out->sequence));
    TRY(json_get_i64(root, "generation", 0, WHOLE_MAX, &out->generation));
    TRY(get_bool(root, "running", &out->is_running));
    TRY(get_bool(root, "lease", &out->is_lease));
    TRY(json_get_i64(root, "lease_ms", 0, WHOLE_MAX, &out->lease_ms));
    TRY(get_bool(root, "left", &out->is_leave_confirmed));
    if (cJSON_HasObjectItem(root, "leader")) {
        TRY(json_get_i64(root, "stepped", 0, WHOLE_MAX, &out->stepped));
        TRY(get_int(root, "leader", -1, CLUSTER_NODES_MAX - 1, &out->leader_id));
        TRY(get_text(root, "control", out->control, sizeof out->control));
    }
    TRY(json_get_i64(root, "ready", 0, WHOLE_MAX, &out->ready));
    TRY(json_get_i64(root, "used", 0, WHOLE_MAX, &out->used));
    TRY(get_int(root, "stop", 0, CLUSTER_STOP_MAX, &out->stop));
    TRY(get_status(root, "st", &out->st));
    TRY(get_counts(root, &out->counts));
    TRY(get_text(root, "text", out->text, sizeof out->text));
    return get_text(root, "missing", out->missing, sizeof out->missing);
}

enum status message_read_reply(const char *bytes, size_t n, struct message_reply *out)
{
    cJSON *root = NULL;
    *out = (struct message_reply){0};
    TRY(json_parse(bytes, n, "node 0's answer", &root));
    enum status st = read_reply(root, out);
    cJSON_Delete(root);
    return st;
}

static enum status read_world_request(const cJSON *root, int *node_id_out,
                                      struct message_incarnation *incarnation_out,
                                      int64_t *generation_out)
{
    TRY(get_int(root, "node_id", 0, CLUSTER_NODES_MAX - 1, node_id_out));
    TRY(get_incarnation(root, "instance", incarnation_out));
    return json_get_i64(root, "generation", 1, WHOLE_MAX, generation_out);
}

enum status message_read_world_request(const char *bytes, size_t n, int *node_id_out,
                                       struct message_incarnation *incarnation_out,
                                       int64_t *generation_out)
{
    cJSON *root = NULL;
    TRY(json_parse(bytes, n, "a node's question", &root));
    enum status st = read_world_request(root, node_id_out, incarnation_out, generation_out);
    cJSON_Delete(root);
    return st;
}

static enum status read_controls(const cJSON *root, int nodes_n,
                                 char (*controls)[MESSAGE_CONTROL_MAX])
{
    const cJSON *list, *item;
    int n = 0;
    TRY(json_get_array(root, "controls", &list));
    cJSON_ArrayForEach(item, list)
    {
        if (n == nodes_n || !cJSON_IsString(item))
            return FAIL(ST_BAD_DATA, "the control addresses of %d nodes cannot be read", nodes_n);
        text_copy(controls[n++], MESSAGE_CONTROL_MAX, item->valuestring);
    }
    return n == nodes_n ? ST_OK : FAIL(ST_BAD_DATA, "%d control addresses of %d nodes", n, nodes_n);
}

static enum status read_world(const cJSON *root, int nodes_n, int workers_n,
                              struct cluster_address *addresses, int *node_ids,
                              struct succession_world *past, char (*controls)[MESSAGE_CONTROL_MAX],
                              struct cluster_world *out)
{
    struct message_incarnation secret = {0};
    TRY(json_get_i64(root, "generation", 1, WHOLE_MAX, &out->generation));
    TRY(get_incarnation(root, "secret", &secret));
    memcpy(out->secret, &secret, sizeof secret);
    const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(root, "nodes");
    int n = 0;
    cJSON_ArrayForEach(item, list)
    {
        const double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (n == nodes_n || id < (n > 0 ? node_ids[n - 1] + 1 : 0) || id >= nodes_n ||
            id != (int)id)
            return FAIL(ST_BAD_DATA, "the nodes of a generation do not ascend up to %d",
                        nodes_n - 1);
        node_ids[n++] = (int)id;
    }
    out->nodes_n = n;
    TRY(n > 0 ? ST_OK : FAIL(ST_BAD_DATA, "a generation has no nodes"));
    if (cJSON_HasObjectItem(root, "instances")) {
        *past = (struct succession_world){.generation = out->generation};
        TRY(read_processes(root, past));
        TRY(read_controls(root, n, controls));
        out->past = past;
        out->controls = (const char(*)[MESSAGE_CONTROL_MAX])controls;
    }
    TRY(read_addresses(root, nodes_n * workers_n, addresses, &out->ranks_n));
    if (out->ranks_n != out->nodes_n * workers_n)
        return FAIL(ST_BAD_DATA, "the coordinator sent %d addresses of %d", out->ranks_n,
                    out->nodes_n * workers_n);
    return ST_OK;
}

enum status message_read_world(const char *bytes, size_t n, int nodes_n, int workers_n,
                               struct cluster_address *addresses, int *node_ids,
                               struct succession_world *past, char (*controls)[MESSAGE_CONTROL_MAX],
                               struct cluster_world *out)
{
    cJSON *root = NULL;
    *out = (struct cluster_world){.addresses = addresses, .node_ids = node_ids};
    TRY(json_parse(bytes, n, "the coordinator's list of addresses", &root));
    enum status st = read_world(root, nodes_n, workers_n, addresses, node_ids, past, controls, out);
    cJSON_Delete(root);
    return st;
}

static enum status read_view(const cJSON *root, struct message_view *out)
{
    TRY(get_int(root, "node_id", 0, CLUSTER_NODES_MAX - 1, &out->node_id));
    TRY(get_incarnation(root, "instance", &out->incarnation));
    TRY(get_bool(root, "is_coordinator", &out->is_coordinator));
    if (out->is_coordinator)
        TRY(get_incarnation(root, "coordinator", &out->coordinator));
    TRY(json_get_i64(root, "generation", 0, WHOLE_MAX, &out->generation));
    TRY(get_bool(root, "running", &out->is_running));
    TRY(get_bool(root, "has_past", &out->has_past));
    TRY(get_int(root, "leader", -1, CLUSTER_NODES_MAX - 1, &out->leader_id));
    return get_text(root, "control", out->control, sizeof out->control);
}

enum status message_read_view(const char *bytes, size_t n, struct message_view *out)
{
    cJSON *root = NULL;
    *out = (struct message_view){0};
    TRY(json_parse(bytes, n, "the view of a node", &root));
    enum status st = read_view(root, out);
    cJSON_Delete(root);
    return st;
}

#ifdef FUZZ
#include <stdlib.h>

#include "base/assert.h"

/* Checks that a message that is read, written and read again stays the same. */
static void check_heartbeat(const struct message_body *body)
{
    static struct message_body again;
    static struct succession past;
    again.past = &past;
    struct text out = {.limit = (size_t)4 << 20};
    message_write_heartbeat(&out, &body->heartbeat, body->has_join ? &body->join : NULL,
                            body->hold_ms);
    ASSERT(!out.overflow && message_read_heartbeat(out.data, out.len, &again) == ST_OK);
    ASSERT(again.heartbeat.sequence == body->heartbeat.sequence &&
           again.heartbeat.addresses_n == body->heartbeat.addresses_n &&
           again.heartbeat.ranks_n == body->heartbeat.ranks_n && again.has_join == body->has_join);
    text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct message_body body;
    static struct cluster_address addresses[64];
    struct message_reply reply;
    struct message_incarnation incarnation;
    int node_id;
    int64_t generation;
    struct cluster_world world;
    static struct succession past;
    static struct succession_world world_past;
    static char controls[4][MESSAGE_CONTROL_MAX];
    struct message_view view;
    int node_ids[4];
    body.past = &past;
    const char *text = (const char *)bytes;
    if (message_read_heartbeat(text, n, &body) == ST_OK && body.join.protocol == MESSAGE_PROTOCOL)
        check_heartbeat(&body);
    if (message_read_reply(text, n, &reply) == ST_OK) {
        struct text out = {.limit = (size_t)1 << 20};
        message_write_reply(&out, &reply);
        ASSERT(!out.overflow && message_read_reply(out.data, out.len, &reply) == ST_OK);
        text_free(&out);
    }
    message_read_world_request(text, n, &node_id, &incarnation, &generation);
    message_read_view(text, n, &view);
    if (message_read_world(text, n, 4, 2, addresses, node_ids, &world_past, controls, &world) ==
        ST_OK)
        ASSERT(world.ranks_n == 2 * world.nodes_n && node_ids[world.nodes_n - 1] < 4);
    return 0;
}
#endif
