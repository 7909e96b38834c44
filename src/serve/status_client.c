/* status_client — see status_client.h. It fetches, checks the health, and prints. The answer is
 * untrusted: bounded, parsed, and never sent raw to a terminal. */
#include "serve/status_client.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "base/json.h"
#include "base/text.h"
#include "net/curl_client.h"
#include "serve/chart.h"

#define STATUS_CLIENT_BYTES_MAX ((size_t)4 << 20)
#define STATUS_CLIENT_TIMEOUT_MS 5000
#define STATUS_CLIENT_HISTORY_MS 2000 /* ms; the curves are optional, so the wait is short */

/* ---- fetching ---- */

/* Turns "", "node1:8080", "http://node1:8080/", "https://x/y/status" into the URL to fetch, to be
 * freed with curl_free; NULL: not a URL. */
static char *full_url(const char *url, int port)
{
    char local[64], *path = NULL, *scheme = NULL, *full = NULL;
    text_format(local, sizeof(local), "http://127.0.0.1:%d", port);
    CURLU *handle = curl_url();
    if (handle != NULL &&
        curl_url_set(handle, CURLUPART_URL, url[0] != 0 ? url : local, CURLU_GUESS_SCHEME) ==
            CURLUE_OK &&
        curl_url_get(handle, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
        curl_url_get(handle, CURLUPART_PATH, &path, 0) == CURLUE_OK) {
        if (strcmp(path, "/") == 0)
            curl_url_set(handle, CURLUPART_PATH, "/status", 0);
        curl_url_get(handle, CURLUPART_URL, &full, 0);
    }
    curl_free(scheme);
    curl_free(path);
    curl_url_cleanup(handle);
    return full;
}

/* Fetches without redirects, and without a proxy: the request is for that node. */
static enum status fetch_url(const char *url, const char *token, int64_t limit_ms,
                             struct text *body)
{
    char error[CURL_ERROR_SIZE];
    const struct curl_client_config config = {
        .server = url, .url = url, .total_ms = limit_ms, .body = body, .error = error};
    CURL *curl;
    TRY(curl_client_open(&config, &curl));
    if (token[0] != 0) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, token);
    }
    const CURLcode result = curl_easy_perform(curl);
    const long code = curl_client_http_code(curl);
    curl_easy_cleanup(curl);
    if (body->overflow)
        return FAIL(ST_UNHEALTHY, "%s answered more than %zu bytes; is it a convoy node?", url,
                    STATUS_CLIENT_BYTES_MAX);
    if (result != CURLE_OK)
        return FAIL(ST_UNHEALTHY,
                    "no answer from %s: %s; is the node running, and are the address and "
                    "STATUS_PORT right?",
                    url, curl_client_error(error, result));
    if (code == 401)
        return FAIL(ST_UNHEALTHY,
                    "%s answered HTTP 401: it requires %s; set STATUS_TOKEN_FILE to a file with "
                    "the token of that node",
                    url, token[0] != 0 ? "another token than STATUS_TOKEN_FILE has" : "a token");
    if (code != 200)
        return FAIL(ST_UNHEALTHY,
                    "%s answered HTTP %ld instead of 200; is it a convoy node's /status?", url,
                    code);
    return ST_OK;
}

/* Adds the curves of the node whose /status this is; nothing if it has no /history, like an older
 * node. Call it before check_health: it overwrites status_message. */
static void chart_history(const char *url, const char *token, struct text *out)
{
    char *full = NULL;
    struct text body = {.limit = STATUS_CLIENT_BYTES_MAX};
    CURLU *handle = curl_url();
    if (text_ends(url, "/status") && handle != NULL &&
        curl_url_set(handle, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_set(handle, CURLUPART_PATH, "/history", 0) == CURLUE_OK &&
        curl_url_get(handle, CURLUPART_URL, &full, 0) == CURLUE_OK &&
        fetch_url(full, token, STATUS_CLIENT_HISTORY_MS, &body) == ST_OK && body.len > 0)
        chart_write(body.data, body.len, out);
    text_free(&body);
    curl_free(full);
    curl_url_cleanup(handle);
}

/* ---- places ---- */

/* Writes the place of a rank in the mesh, "stage 1, tensor 0", along axes of several ranks; "" if
 * data is the only such axis. Returns out. */
static const char *place_of(const cJSON *root, const cJSON *rank, char *out, size_t cap)
{
    static const struct {
        const char *key, *name;
    } axes[] = {
        {"pipeline", "stage"}, {"data", "data"}, {"context", "context"}, {"tensor", "tensor"}};
    const cJSON *mesh = cJSON_GetObjectItemCaseSensitive(root, "mesh"),
                *at = cJSON_GetObjectItemCaseSensitive(rank, "mesh");
    bool is_mesh = false;
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        if (!(json_number(mesh, axes[i].key) > 1) || !(json_number(at, axes[i].key) >= 0))
            continue;
        text_format(out + n, cap - n, "%s%s %.0f", n > 0 ? ", " : "", axes[i].name,
                    json_number(at, axes[i].key));
        n += strlen(out + n);
        is_mesh = is_mesh || strcmp(axes[i].key, "data") != 0;
    }
    return is_mesh ? out : "";
}

/* ---- health ---- */

static enum status check_health(const cJSON *root, const char *url)
{
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(root, "error"), *rank;
    char text[96];
    if (cJSON_IsObject(error))
        return FAIL(ST_UNHEALTHY, "%s: error %.0f: %s", url, json_number(error, "code"),
                    json_text(error, "message"));
    if (strcmp(json_text(root, "phase"), "failed") == 0)
        return FAIL(ST_UNHEALTHY, "%s: the run has failed; see the node's log", url);
    cJSON_ArrayForEach(rank, cJSON_GetObjectItemCaseSensitive(root, "ranks"))
    {
        const char *place = place_of(root, rank, text, sizeof text);
        if (strcmp(json_text(rank, "state"), "hung") == 0)
            return FAIL(ST_UNHEALTHY, "%s: rank %.0f%s%s%s is hung; no progress for %.0f s", url,
                        json_number(rank, "rank"), place[0] ? " (" : "", place, place[0] ? ")" : "",
                        json_number(root, "progress_age_seconds"));
    }
    return ST_OK;
}

/* ---- printing ---- */

#define STATUS_CLIENT_CELL 32
struct cell {
    char text[STATUS_CLIENT_CELL];
};

static struct cell format_number(double value, int decimals)
{
    struct cell out;
    if (isnan(value))
        text_copy(out.text, sizeof(out.text), "-");
    else
        text_format(out.text, sizeof(out.text), "%.*f", decimals, value);
    return out;
}

static struct cell format_scientific(double value)
{
    struct cell out;
    if (isnan(value))
        text_copy(out.text, sizeof(out.text), "-");
    else
        text_format(out.text, sizeof(out.text), "%.1e", value);
    return out;
}

static struct cell format_count(double value)
{
    struct cell out;
    text_format_count(out.text, sizeof(out.text), value);
    return out;
}

static struct cell format_ms(double ms)
{
    struct cell out;
    text_format_ms(out.text, sizeof(out.text), ms);
    return out;
}

static struct cell format_span(double seconds)
{
    struct cell out;
    bool is_known = seconds >= 0 && seconds < 1e12;
    text_format_span(out.text, sizeof(out.text), is_known ? (int64_t)(seconds * 1000) : -1);
    return out;
}

static struct cell format_bytes(double bytes)
{
    struct cell out;
    text_format_bytes(out.text, sizeof(out.text), bytes);
    return out;
}

/* Returns true if the last speed is shown. While nodes wait, load or recover, it is not the current
 * one; after the end it is shown. */
static bool is_working(const char *phase)
{
    static const char *const phases[] = {"training", "evaluating", "checkpointing", "done",
                                         "failed"};
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
        if (strcmp(phase, phases[i]) == 0)
            return true;
    return false;
}

static void show_model(struct text *t, const cJSON *model)
{
    const cJSON *adapter = cJSON_GetObjectItemCaseSensitive(model, "adapter");
    if (json_text(model, "name")[0] == 0)
        return;
    text_add(t, "model       %s (%s)  %s layers, %s heads, %s wide, context %s, %s parameters\n",
             json_text(model, "name"), json_text(model, "task"),
             format_number(json_number(model, "layers"), 0).text,
             format_number(json_number(model, "heads"), 0).text,
             format_number(json_number(model, "embed"), 0).text,
             format_number(json_number(model, "context"), 0).text,
             format_count(json_number(model, "parameters")).text);
    if (cJSON_IsObject(adapter))
        text_add(t, "adapter     LoRA rank %s, alpha %s, targets %s  %s train, %s frozen\n",
                 format_number(json_number(adapter, "rank"), 0).text,
                 text_f64(json_number(adapter, "alpha")).text, json_text(adapter, "targets"),
                 format_count(json_number(adapter, "trained")).text,
                 format_count(json_number(adapter, "frozen")).text);
}

static void show_numbers(struct text *t, const cJSON *root)
{
    static const cJSON none = {.type = cJSON_Object};
    const bool is_at_work = is_working(json_text(root, "phase"));
    const cJSON *step_ms = cJSON_GetObjectItemCaseSensitive(root, "step_ms"),
                *speed = is_at_work ? root : &none;
    double step = json_number(root, "step"), steps = json_number(root, "steps");
    text_add(t, "step        %s / %s", format_number(step, 0).text, format_number(steps, 0).text);
    if (step >= 0 && steps > 0)
        text_add(t, "  (%.1f%%)", 100 * step / steps);
    text_add(t, "  epoch %s  %s tokens\n", format_number(json_number(root, "epoch"), 0).text,
             format_count(json_number(root, "tokens")).text);
    text_add(t, "loss        %s  validation %s  lr %s  gradient norm %s\n",
             format_number(json_number(root, "loss"), 4).text,
             format_number(json_number(root, "val_loss"), 4).text,
             format_scientific(json_number(root, "lr")).text,
             format_number(json_number(root, "grad_norm"), 2).text);
    text_add(t, "speed       %s tok/s  %s a step (p50 %s, p95 %s)",
             format_count(json_number(speed, "tokens_per_second")).text,
             format_ms(is_at_work ? json_number(step_ms, "last") : NAN).text,
             format_ms(json_number(step_ms, "p50")).text,
             format_ms(json_number(step_ms, "p95")).text);
    if (!isnan(json_number(speed, "mfu")))
        text_add(t, "  mfu %.1f%%", 100 * json_number(speed, "mfu"));
    text_add(t, "\ntime        up %s  eta %s  last progress %s ago  restarts %s\n",
             format_span(json_number(root, "uptime_seconds")).text,
             format_span(json_number(root, "eta_seconds")).text,
             format_span(json_number(root, "progress_age_seconds")).text,
             format_number(json_number(root, "restarts"), 0).text);
}

static void show_checkpoint(struct text *t, const cJSON *root)
{
    const cJSON *checkpoint = cJSON_GetObjectItemCaseSensitive(root, "checkpoint");
    if (!isnan(json_number(checkpoint, "step")))
        text_add(t, "checkpoint  step %.0f, %s ago  %s\n", json_number(checkpoint, "step"),
                 format_span(json_number(checkpoint, "age_seconds")).text,
                 json_text(checkpoint, "path"));
    if (json_number(checkpoint, "resume_step") > 0)
        text_add(t, "resume      from the checkpoint of step %.0f\n",
                 json_number(checkpoint, "resume_step"));
    else if (json_number(checkpoint, "resume_step") == 0)
        text_add(t, "resume      from the beginning (step 0)\n");
    if (!isnan(json_number(checkpoint, "save_seconds")))
        text_add(t, "            written in %s s, training waited %s s\n",
                 format_number(json_number(checkpoint, "save_seconds"), 2).text,
                 format_number(json_number(checkpoint, "stall_seconds"), 2).text);
    if (json_number(checkpoint, "failures") > 0 || json_number(checkpoint, "skipped") > 0)
        text_add(t, "            %s failed, %s skipped  %s\n",
                 format_number(json_number(checkpoint, "failures"), 0).text,
                 format_number(json_number(checkpoint, "skipped"), 0).text,
                 json_text(checkpoint, "error"));
}

/* show_upload — shows the uploads to the bucket of CHECKPOINT_DIR. */
static void show_upload(struct text *t, const cJSON *root)
{
    const cJSON *upload = cJSON_GetObjectItemCaseSensitive(root, "upload");
    const double waiting = json_number(upload, "bytes_waiting");
    char bytes[32];
    if (json_text(upload, "bucket")[0] == 0)
        return;
    text_add(t, "uploaded    step %s to %s", format_number(json_number(upload, "step"), 0).text,
             json_text(upload, "bucket"));
    if (waiting > 0)
        text_add(t, "; %s wait", text_format_bytes(bytes, sizeof bytes, waiting));
    text_add(t, "\n");
    if (json_text(upload, "error")[0] != 0)
        text_add(t, "            %s failed attempts  %s\n",
                 format_number(json_number(upload, "failures"), 0).text,
                 json_text(upload, "error"));
}

static void show_lists(struct text *t, const cJSON *root)
{
    const cJSON *rank;
    char text[96];
    /* While recovering, the job continues from the copies. */
    const cJSON *copies = cJSON_GetObjectItemCaseSensitive(root, "peer_copies");
    char bytes[32], speed[32];
    if (!isnan(json_number(copies, "step"))) {
        text_add(t, "copies      step %.0f in peers' memory, %s in %s ms, %s/s\n",
                 json_number(copies, "step"),
                 text_format_bytes(bytes, sizeof bytes, json_number(copies, "bytes")),
                 format_number(1000 * json_number(copies, "seconds"), 1).text,
                 text_format_bytes(speed, sizeof speed, json_number(copies, "bytes_per_second")));
    }
    const cJSON *lost = cJSON_GetObjectItemCaseSensitive(root, "lost_node");
    if (json_text(lost, "text")[0] != 0)
        text_add(t, "losses      %s\n", json_text(lost, "text"));
    show_checkpoint(t, root);
    show_upload(t, root);
    /* All nodes with their state, when there are several. */
    const cJSON *nodes = cJSON_GetObjectItemCaseSensitive(root, "nodes"), *node;
    if (cJSON_GetArraySize(nodes) >= 2) {
        cJSON_ArrayForEach(node, nodes)
            text_add(t, "node %-5s  %s  %s  last heartbeat %s ago\n",
                     format_number(json_number(node, "node_id"), 0).text, json_text(node, "state"),
                     json_text(node, "address"),
                     format_span(json_number(node, "heartbeat_age_seconds")).text);
    }
    const cJSON *door = cJSON_GetObjectItemCaseSensitive(root, "door");
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(door, "full")))
        text_add(t, "connections %s to MASTER_PORT without the job's key, %s closed\n",
                 format_number(json_number(door, "strangers"), 0).text,
                 format_count(json_number(door, "turned_away")).text);
    cJSON_ArrayForEach(rank, cJSON_GetObjectItemCaseSensitive(root, "ranks"))
    {
        text_add(t, "rank %-5s  %s", format_number(json_number(rank, "rank"), 0).text,
                 json_text(rank, "state"));
        const char *place = place_of(root, rank, text, sizeof text);
        text_add(t, place[0] ? " (%s)" : "%s", place);
        if (!isnan(json_number(rank, "heard_age_seconds")))
            text_add(t, ", last seen %s ago",
                     format_span(json_number(rank, "heard_age_seconds")).text);
        text_add(t, "  step %s  %s  %s", format_number(json_number(rank, "step"), 0).text,
                 format_bytes(json_number(rank, "memory_bytes")).text, json_text(rank, "device"));
        /* Times of the rank's last step, which show a straggler, and the call it waits in now. */
        if (json_number(rank, "comm_ms") > 0 || json_number(rank, "wait_ms") > 0)
            text_add(t, "  compute %s ms, wait %s ms, communication %s ms",
                     format_number(json_number(rank, "compute_ms"), 1).text,
                     format_number(json_number(rank, "wait_ms"), 1).text,
                     format_number(json_number(rank, "comm_ms"), 1).text);
        if (json_text(rank, "call")[0] != 0 && json_number(rank, "call_age_seconds") >= 1)
            text_add(t, "  in %s for %s s", json_text(rank, "call"),
                     format_number(json_number(rank, "call_age_seconds"), 1).text);
        text_add(t, "\n");
    }
}

/* Appends the text to print. Fails ST_UNHEALTHY like status_client_main. */
static enum status show_answer(const char *bytes, size_t n, const char *url, bool as_json,
                               bool has_colour, struct text *out)
{
    cJSON *root = NULL;
    if (json_parse(bytes, n, "the answer", &root) != ST_OK)
        return FAIL(ST_UNHEALTHY, "%s did not answer with JSON; is it a convoy node? (%s)", url,
                    status_message());
    enum status st = ST_OK;
    if (isnan(json_number(root, "schema")) || json_text(root, "phase")[0] == 0) {
        st = FAIL(ST_UNHEALTHY,
                  "%s answered JSON that is not a convoy node's status; is it a convoy node?", url);
    } else {
        /* the only escape sequences on the terminal are our own colours */
        chart_strip_controls(root);
        st = check_health(root, url);
        if (as_json)
            text_add_bytes(out, bytes, n);
        else {
            bool is_healthy = st == ST_OK;
            if (json_text(root, "run")[0] != 0)
                text_add(out, "run         %s\n", json_text(root, "run"));
            text_add(out, "%s%s%s  node %s of %s  %s  convoy %s\n",
                     (!has_colour  ? ""
                      : is_healthy ? "\033[32m"
                                   : "\033[31m"),
                     json_text(root, "phase"), (has_colour ? "\033[0m" : ""),
                     format_number(json_number(root, "node_id"), 0).text,
                     format_number(json_number(root, "n_nodes"), 0).text, json_text(root, "device"),
                     json_text(root, "version"));
            if (json_text(root, "device_note")[0] != 0)
                text_add(out, "warning     %s\n", json_text(root, "device_note"));
            show_model(out, cJSON_GetObjectItemCaseSensitive(root, "model"));
            show_numbers(out, root);
            show_lists(out, root);
        }
    }
    cJSON_Delete(root);
    return st;
}

enum status status_client_main(const char *url, int port, const char *token, bool as_json,
                               bool has_colour)
{
    if (url[0] == 0 && port <= 0)
        return FAIL(ST_UNHEALTHY, "the status endpoint is off (STATUS_PORT=0); name a URL: convoy "
                                  "status http://host:port");
    char *full = full_url(url, port);
    if (full == NULL)
        return FAIL(ST_UNHEALTHY,
                    "%s is not an http or https URL; write convoy status http://host:port", url);
    struct text body = {.limit = STATUS_CLIENT_BYTES_MAX},
                shown = {.limit = STATUS_CLIENT_BYTES_MAX},
                course = {.limit = STATUS_CLIENT_BYTES_MAX};
    enum status st = fetch_url(full, token, STATUS_CLIENT_TIMEOUT_MS, &body);
    if (st == ST_OK && !as_json)
        chart_history(full, token, &course);
    if (st == ST_OK)
        st =
            show_answer(body.len > 0 ? body.data : "", body.len, full, as_json, has_colour, &shown);
    if (shown.len > 0 && course.len > 0)
        text_add_bytes(&shown, course.data, course.len);
    if (shown.len > 0 && fwrite(shown.data, 1, shown.len, stdout) == shown.len)
        fflush(stdout);
    text_free(&body);
    text_free(&shown);
    text_free(&course);
    curl_free(full);
    return st;
}

#ifdef FUZZ
#include "base/assert.h"

/* Checks that no control byte reaches the terminal, whatever a node answers. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct text shown = {.limit = STATUS_CLIENT_BYTES_MAX};
    show_answer((const char *)bytes, n, "fuzz", false, false, &shown);
    for (size_t i = 0; i < shown.len; i++)
        ASSERT(((unsigned char)shown.data[i] >= 0x20 || shown.data[i] == '\n') &&
               shown.data[i] != 0x7F);
    text_free(&shown);
    return 0;
}
#endif
