/* wire — see wire.h. Must not know sockets or time. */
#include "meet/wire.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "meet/base64.h"

#define WHOLE_MAX ((int64_t)1 << 53)

/* ---- writing ---- */

static void add_string(struct text *out, const char *key, const char *value)
{
    char quoted[WIRE_TEXT_MAX * 6 + 3];
    json_quote(quoted, sizeof(quoted), value);
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

static void add_instance(struct text *out, const char *key, struct wire_instance instance)
{
    text_add(out, ",\"%s\":\"%016llx%016llx\"", key, (unsigned long long)instance.hi,
             (unsigned long long)instance.lo);
}

static void add_counts(struct text *out, const struct wire_counts *counts)
{
    add_whole(out, "restarts", counts->restarts);
    add_whole(out, "barren", counts->barren);
    add_whole(out, "step_best", counts->step_best);
}

static void add_address(struct text *out, const struct meet_address *address, bool is_first)
{
    char encoded[BASE64_SIZE(MEET_ADDRESS_MAX)];
    base64_write(encoded, address->data, (size_t)address->bytes);
    text_add(out, "%s\"", is_first ? "" : ",");
    text_add_bytes(out, encoded, strlen(encoded));
    text_add(out, "\"");
}

static void add_rank(struct text *out, const struct meet_rank *rank, bool is_first)
{
    text_add(out, "%s{\"rank\":%d", is_first ? "" : ",", rank->rank);
    add_string(out, "state", rank->state);
    add_string(out, "device", rank->device);
    add_whole(out, "step", rank->step);
    add_number(out, "compute_ms", rank->compute_ms);
    add_number(out, "comm_ms", rank->comm_ms);
    add_number(out, "wait_ms", rank->wait_ms);
    add_whole(out, "memory_bytes", rank->memory_bytes);
    add_string(out, "call", rank->call);
    add_whole(out, "call_sequence", rank->call_sequence);
    add_whole(out, "call_age_ms", rank->call_age_ms);
    text_add(out, "}");
}

static void add_agree(struct text *out, const char *agree_json)
{
    char quoted[WIRE_AGREE_MAX * 2];
    json_quote(quoted, sizeof(quoted), agree_json);
    text_add(out, ",\"agree\":");
    text_add_bytes(out, quoted, strlen(quoted));
}

static void add_hello(struct text *out, const struct wire_hello *hello)
{
    text_add(out, ",\"hello\":{\"nodes_n\":%d,\"workers_n\":%d", hello->nodes_n, hello->workers_n);
    add_whole(out, "pid", hello->pid);
    add_agree(out, hello->agree_json);
    text_add(out, "}");
}

void wire_write_says(struct text *out, const struct wire_says *says, const struct wire_hello *hello,
                     int64_t hold_ms)
{
    text_add(out, "{\"protocol\":%lld,\"node_id\":%d",
             hello != NULL ? (long long)hello->protocol : WIRE_PROTOCOL, says->node_id);
    add_string(out, "host", hello != NULL ? hello->host : "");
    add_instance(out, "instance", says->instance);
    add_whole(out, "sequence", says->sequence);
    add_whole(out, "turn", says->turn);
    add_whole(out, "silence_ms", says->silence_ms);
    add_whole(out, "late_ms", says->late_ms);
    add_whole(out, "generation", says->generation);
    add_whole(out, "running", says->running);
    add_whole(out, "ready", says->ready);
    add_whole(out, "losses", says->losses);
    add_whole(out, "lost", says->lost);
    add_string(out, "lost_st", status_name(says->lost_st));
    text_add(out, ",\"leaving\":%s", says->is_leaving ? "true" : "false");
    add_string(out, "leave_st", status_name(says->leave_st));
    add_whole(out, "stop", says->stop);
    add_whole(out, "step", says->step);
    add_counts(out, &says->counts);
    add_string(out, "why", says->why);
    add_whole(out, "hold_ms", hold_ms);
    if (hello != NULL)
        add_hello(out, hello);
    text_add(out, ",\"ranks\":[");
    for (int i = 0; i < says->ranks_n; i++)
        add_rank(out, &says->ranks[i], i == 0);
    text_add(out, "],\"addresses\":[");
    for (int i = 0; i < says->addresses_n; i++)
        add_address(out, &says->addresses[i], i == 0);
    text_add(out, "]}");
}

void wire_write_told(struct text *out, const struct wire_told *told)
{
    text_add(out, "{\"answer\":%d", (int)told->answer);
    add_instance(out, "coordinator", told->coordinator);
    add_whole(out, "turn", told->turn);
    add_whole(out, "sequence", told->sequence);
    add_whole(out, "generation", told->generation);
    text_add(out, ",\"lease\":%s,\"running\":%s,\"left\":%s", told->is_lease ? "true" : "false",
             told->is_running ? "true" : "false", told->is_left ? "true" : "false");
    add_whole(out, "lease_ms", told->lease_ms);
    add_whole(out, "ready", told->ready);
    add_whole(out, "used", told->used);
    add_whole(out, "stop", told->stop);
    add_string(out, "st", status_name(told->st));
    add_counts(out, &told->counts);
    add_string(out, "text", told->text);
    add_string(out, "missing", told->missing);
    text_add(out, "}");
}

void wire_write_ask(struct text *out, int node_id, struct wire_instance instance,
                    int64_t generation)
{
    text_add(out, "{\"node_id\":%d", node_id);
    add_instance(out, "instance", instance);
    add_whole(out, "generation", generation);
    text_add(out, "}");
}

void wire_write_world(struct text *out, const struct meet_world *world)
{
    struct wire_instance secret;
    memcpy(&secret, world->secret, sizeof(secret));
    text_add(out, "{\"generation\":%lld", (long long)world->generation);
    add_instance(out, "secret", secret);
    text_add(out, ",\"addresses\":[");
    for (int i = 0; i < world->ranks_n; i++)
        add_address(out, &world->addresses[i], i == 0);
    text_add(out, "]}");
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

/* Text for people is cut to its place, never refused. */
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

static bool read_hex(const char *digits, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < 16; i++) {
        char c = digits[i];
        int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0)
            return false;
        *out = *out << 4 | (uint64_t)value;
    }
    return true;
}

static enum status get_instance(const cJSON *object, const char *key, struct wire_instance *out)
{
    const char *digits;
    TRY(json_get_string(object, key, &digits));
    if (strlen(digits) != 32 || !read_hex(digits, &out->hi) || !read_hex(digits + 16, &out->lo) ||
        (out->hi == 0 && out->lo == 0))
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" is not 32 hexadecimal digits", key);
    return ST_OK;
}

static enum status get_counts(const cJSON *object, struct wire_counts *out)
{
    TRY(json_get_i64(object, "restarts", 0, INT32_MAX, &out->restarts));
    TRY(json_get_i64(object, "barren", 0, INT32_MAX, &out->barren));
    return json_get_i64(object, "step_best", -1, WHOLE_MAX, &out->step_best);
}

static enum status get_number(const cJSON *object, const char *key, double *out)
{
    *out = NAN;
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(object, key)))
        return ST_OK;
    return json_get_f64(object, key, out);
}

static enum status read_rank(const cJSON *item, struct meet_rank *out)
{
    TRY(get_int(item, "rank", 0, MEET_NODES_MAX * MEET_WORKERS_MAX - 1, &out->rank));
    TRY(get_text(item, "state", out->state, sizeof(out->state)));
    TRY(get_text(item, "device", out->device, sizeof(out->device)));
    TRY(json_get_i64(item, "step", -1, WHOLE_MAX, &out->step));
    TRY(get_number(item, "compute_ms", &out->compute_ms));
    TRY(get_number(item, "comm_ms", &out->comm_ms));
    TRY(get_number(item, "wait_ms", &out->wait_ms));
    TRY(json_get_i64(item, "memory_bytes", -1, WHOLE_MAX, &out->memory_bytes));
    TRY(get_text(item, "call", out->call, sizeof(out->call)));
    TRY(json_get_i64(item, "call_sequence", 0, WHOLE_MAX, &out->call_sequence));
    return json_get_i64(item, "call_age_ms", 0, WHOLE_MAX, &out->call_age_ms);
}

static enum status read_ranks(const cJSON *root, struct wire_body *out)
{
    const cJSON *list, *item;
    TRY(json_get_array(root, "ranks", &list));
    cJSON_ArrayForEach(item, list)
    {
        if (out->says.ranks_n == MEET_WORKERS_MAX)
            return FAIL(ST_BAD_DATA, "more than %d ranks of one node", MEET_WORKERS_MAX);
        TRY(read_rank(item, &out->ranks[out->says.ranks_n++]));
    }
    out->says.ranks = out->ranks;
    return ST_OK;
}

static enum status read_addresses(const cJSON *root, int max_n, struct meet_address *out,
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
            !base64_read(item->valuestring, out[n].data, MEET_ADDRESS_MAX, &bytes))
            return FAIL(ST_BAD_DATA, "address %d is not base64 of at most %d bytes", n,
                        MEET_ADDRESS_MAX);
        out[n++].bytes = (int64_t)bytes;
    }
    *n_out = n;
    return ST_OK;
}

static enum status read_hello(const cJSON *root, struct wire_body *out)
{
    const cJSON *hello;
    const char *agree;
    TRY(json_get_object(root, "hello", &hello));
    TRY(get_int(hello, "nodes_n", 1, INT32_MAX, &out->hello.nodes_n));
    TRY(get_int(hello, "workers_n", 1, INT32_MAX, &out->hello.workers_n));
    TRY(json_get_i64(hello, "pid", 0, WHOLE_MAX, &out->hello.pid));
    TRY(json_get_string(hello, "agree", &agree));
    if (!text_copy(out->agree, sizeof(out->agree), agree))
        return FAIL(ST_BAD_DATA, "the list of what must agree is longer than %zu bytes",
                    sizeof(out->agree));
    out->hello.agree_json = out->agree;
    return ST_OK;
}

static enum status read_state(const cJSON *root, struct wire_says *says)
{
    TRY(json_get_i64(root, "sequence", 1, WHOLE_MAX, &says->sequence));
    TRY(json_get_i64(root, "turn", -1, WHOLE_MAX, &says->turn));
    TRY(json_get_i64(root, "silence_ms", 0, WHOLE_MAX, &says->silence_ms));
    TRY(json_get_i64(root, "late_ms", 0, WHOLE_MAX, &says->late_ms));
    TRY(json_get_i64(root, "generation", 0, WHOLE_MAX, &says->generation));
    TRY(json_get_i64(root, "running", 0, WHOLE_MAX, &says->running));
    TRY(json_get_i64(root, "ready", 0, WHOLE_MAX, &says->ready));
    TRY(json_get_i64(root, "losses", 0, WHOLE_MAX, &says->losses));
    TRY(json_get_i64(root, "lost", 0, WHOLE_MAX, &says->lost));
    TRY(get_status(root, "lost_st", &says->lost_st));
    TRY(get_bool(root, "leaving", &says->is_leaving));
    TRY(get_status(root, "leave_st", &says->leave_st));
    TRY(get_int(root, "stop", 0, INT32_MAX, &says->stop));
    TRY(json_get_i64(root, "step", -1, WHOLE_MAX, &says->step));
    TRY(get_counts(root, &says->counts));
    return get_text(root, "why", says->why, sizeof(says->why));
}

static enum status read_says(const cJSON *root, struct wire_body *out)
{
    TRY(json_get_i64(root, "protocol", 0, INT32_MAX, &out->hello.protocol));
    TRY(get_int(root, "node_id", 0, INT32_MAX, &out->says.node_id));
    TRY(get_text(root, "host", out->hello.host, sizeof(out->hello.host)));
    out->hello.agree_json = "";
    out->has_hello = out->hello.protocol != WIRE_PROTOCOL;
    if (out->has_hello)
        return ST_OK;
    TRY(get_instance(root, "instance", &out->says.instance));
    TRY(read_state(root, &out->says));
    TRY(json_get_i64(root, "hold_ms", 0, 10000, &out->hold_ms));
    out->has_hello = cJSON_HasObjectItem(root, "hello");
    if (out->has_hello)
        TRY(read_hello(root, out));
    TRY(read_ranks(root, out));
    out->says.addresses = out->addresses;
    return read_addresses(root, MEET_WORKERS_MAX, out->addresses, &out->says.addresses_n);
}

enum status wire_read_says(const char *bytes, size_t n, struct wire_body *out)
{
    cJSON *root = NULL;
    out->says = (struct wire_says){0};
    out->hello = (struct wire_hello){0};
    out->hold_ms = 0;
    TRY(json_parse(bytes, n, "a node's message", &root));
    enum status st = read_says(root, out);
    cJSON_Delete(root);
    return st;
}

static enum status read_told(const cJSON *root, struct wire_told *out)
{
    int answer = 0;
    TRY(get_int(root, "answer", WIRE_ANSWER_IN, WIRE_ANSWER_END, &answer));
    out->answer = (enum wire_answer)answer;
    TRY(get_instance(root, "coordinator", &out->coordinator));
    TRY(json_get_i64(root, "turn", 0, WHOLE_MAX, &out->turn));
    TRY(json_get_i64(root, "sequence", 0, WHOLE_MAX, &out->sequence));
    TRY(json_get_i64(root, "generation", 0, WHOLE_MAX, &out->generation));
    TRY(get_bool(root, "running", &out->is_running));
    TRY(get_bool(root, "lease", &out->is_lease));
    TRY(json_get_i64(root, "lease_ms", 0, WHOLE_MAX, &out->lease_ms));
    TRY(get_bool(root, "left", &out->is_left));
    TRY(json_get_i64(root, "ready", 0, WHOLE_MAX, &out->ready));
    TRY(json_get_i64(root, "used", 0, WHOLE_MAX, &out->used));
    TRY(get_int(root, "stop", 0, INT32_MAX, &out->stop));
    TRY(get_status(root, "st", &out->st));
    TRY(get_counts(root, &out->counts));
    TRY(get_text(root, "text", out->text, sizeof(out->text)));
    return get_text(root, "missing", out->missing, sizeof(out->missing));
}

enum status wire_read_told(const char *bytes, size_t n, struct wire_told *out)
{
    cJSON *root = NULL;
    *out = (struct wire_told){0};
    TRY(json_parse(bytes, n, "node 0's answer", &root));
    enum status st = read_told(root, out);
    cJSON_Delete(root);
    return st;
}

static enum status read_ask(const cJSON *root, int *node_id_out, struct wire_instance *instance_out,
                            int64_t *generation_out)
{
    TRY(get_int(root, "node_id", 0, MEET_NODES_MAX - 1, node_id_out));
    TRY(get_instance(root, "instance", instance_out));
    return json_get_i64(root, "generation", 1, WHOLE_MAX, generation_out);
}

enum status wire_read_ask(const char *bytes, size_t n, int *node_id_out,
                          struct wire_instance *instance_out, int64_t *generation_out)
{
    cJSON *root = NULL;
    TRY(json_parse(bytes, n, "a node's question", &root));
    enum status st = read_ask(root, node_id_out, instance_out, generation_out);
    cJSON_Delete(root);
    return st;
}

enum status wire_read_world(const char *bytes, size_t n, int ranks_n,
                            struct meet_address *addresses, int64_t *generation_out,
                            uint8_t secret[MEET_SECRET_BYTES])
{
    cJSON *root = NULL;
    struct wire_instance read = {0};
    int found_n = 0;
    TRY(json_parse(bytes, n, "node 0's list of addresses", &root));
    enum status st = json_get_i64(root, "generation", 1, WHOLE_MAX, generation_out);
    if (st == ST_OK)
        st = get_instance(root, "secret", &read);
    if (st == ST_OK)
        st = read_addresses(root, ranks_n, addresses, &found_n);
    cJSON_Delete(root);
    memcpy(secret, &read, sizeof(read));
    if (st == ST_OK && found_n != ranks_n)
        return FAIL(ST_BAD_DATA, "node 0 sent %d addresses of %d", found_n, ranks_n);
    return st;
}

#ifdef FUZZ
#include <stdlib.h>

#include "base/must.h"

/* What is read and written is read the same. */
static void check_says(const struct wire_body *body)
{
    static struct wire_body again;
    struct text out = {.limit = (size_t)4 << 20};
    wire_write_says(&out, &body->says, body->has_hello ? &body->hello : NULL, body->hold_ms);
    ASSERT(!out.overflow && wire_read_says(out.data, out.len, &again) == ST_OK);
    ASSERT(again.says.sequence == body->says.sequence &&
           again.says.addresses_n == body->says.addresses_n &&
           again.says.ranks_n == body->says.ranks_n && again.has_hello == body->has_hello);
    text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct wire_body body;
    static struct meet_address addresses[64];
    struct wire_told told;
    struct wire_instance instance;
    int node_id;
    int64_t generation;
    uint8_t secret[MEET_SECRET_BYTES];
    const char *text = (const char *)bytes;
    if (wire_read_says(text, n, &body) == ST_OK && body.hello.protocol == WIRE_PROTOCOL)
        check_says(&body);
    if (wire_read_told(text, n, &told) == ST_OK) {
        struct text out = {.limit = (size_t)1 << 20};
        wire_write_told(&out, &told);
        ASSERT(!out.overflow && wire_read_told(out.data, out.len, &told) == ST_OK);
        text_free(&out);
    }
    wire_read_ask(text, n, &node_id, &instance, &generation);
    wire_read_world(text, n, 2, addresses, &generation, secret);
    return 0;
}
#endif
