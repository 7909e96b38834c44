/* checkpoint_status — `convoy status DIR`: reports a run from its folder of checkpoints, whether
 * the run still trains or not. Reads manifests, sizes and headers, not all the data, and locks
 * nothing, so it does not disturb a run. Must not know HTTP. Read checkpoint_status_main first, at
 * the foot. */
#include "node/command.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/ckpt.h"
#include "node/bucket/bucket.h"
#include "node/bucket/bucket_fetch.h"
#include "node/command/damage_list.h"
#include "node/process/print.h"
#include "serve/chart.h"
#include "train/weights/load.h"

#define CHECKPOINTS_MAX 1000 /* the most that are listed */
#define SHOWN_MAX 8
#define HISTORY_NAME "history.json" /* curves that the node keeps next to its checkpoints */
#define HISTORY_BYTES_MAX ((size_t)4 << 20)

struct checkpoint_dir {
    const char *dir;
    struct ckpt_meta meta; /* metadata of the newest checkpoint */
    struct model_dims dims;
    char path[FILE_PATH_MAX];
    int64_t wall_ms; /* time at which the newest checkpoint was committed; -1: unknown */
    int64_t step[CHECKPOINTS_MAX];
    int steps_n;               /* number of valid checkpoints */
    struct damage_list damage; /* the invalid checkpoints */
    int64_t bytes;             /* in a bucket: bytes of the complete checkpoints */
    struct text cut;           /* in a bucket: " 250, 300", steps without a manifest */
    char phase[32];            /* last phase in the history; "": unknown */
    char error[256];           /* last error in the history; "": none */
    char *history;             /* owned; NULL: there is no history */
    size_t history_bytes;
};

/* ---- reading ---- */

static bool is_checkpoint(const char *dir)
{
    char manifest[FILE_PATH_MAX];
    return file_join(manifest, sizeof manifest, dir, "manifest.json") == ST_OK &&
           file_exists(manifest);
}

/* add_checkpoint — adds a checkpoint to the report. A ckpt_visit. */
static enum status add_checkpoint(void *arg, int64_t step, const struct ckpt *ckpt)
{
    struct checkpoint_dir *f = arg;
    if (ckpt == NULL) {
        damage_list_add(&f->damage, step, status_message());
        status_clear();
        return ST_OK;
    }
    if (f->steps_n == 0) {
        f->meta = *ckpt_meta(ckpt);
        text_copy(f->path, sizeof f->path, ckpt_path(ckpt));
        char manifest[FILE_PATH_MAX];
        struct stat info;
        bool is_there = file_join(manifest, sizeof manifest, f->path, "manifest.json") == ST_OK &&
                        stat(manifest, &info) == 0;
        f->wall_ms = is_there ? (int64_t)info.st_mtim.tv_sec * 1000 : clock_wall_ms();
        TRY(load_dims_parse(f->meta.model_json, &f->dims));
        text_strip_controls(f->dims.name);
        text_strip_controls(f->meta.version);
    }
    if (f->steps_n < CHECKPOINTS_MAX)
        f->step[f->steps_n++] = step;
    return ST_OK;
}

/* read_one — reads a folder that is a checkpoint itself. */
static enum status read_one(struct checkpoint_dir *f)
{
    struct ckpt *ckpt = NULL;
    enum status st = ckpt_open_lazy(f->dir, &ckpt);
    if (st != ST_OK && st != ST_BAD_DATA)
        return st;
    st = add_checkpoint(f, ckpt ? ckpt_meta(ckpt)->step : -1, ckpt);
    ckpt_close(ckpt);
    return st;
}

/* read_end — determines how the run ended, from the last phase among the events of its history. A
 * run that a signal stopped after a checkpoint has not failed. */
static void read_end(struct checkpoint_dir *f)
{
    cJSON *root = NULL;
    const cJSON *event;
    if (json_parse(f->history, f->history_bytes, "history", &root) != ST_OK) {
        status_clear();
        return;
    }
    chart_strip_controls(root);
    cJSON_ArrayForEach(event, cJSON_GetObjectItemCaseSensitive(root, "events"))
    {
        if (strcmp(json_text(event, "kind"), "phase") == 0)
            text_copy(f->phase, sizeof f->phase, json_text(event, "text"));
        if (strcmp(json_text(event, "kind"), "error") == 0)
            text_copy(f->error, sizeof f->error, json_text(event, "text"));
    }
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(root, "record"),
                *status = cJSON_GetObjectItemCaseSensitive(record, "status"),
                *error = cJSON_GetObjectItemCaseSensitive(status, "error");
    const double code = json_number(error, "code");
    if (strcmp(f->phase, "failed") == 0 &&
        (code == status_exit_code(ST_INTERRUPTED) || code == status_exit_code(ST_TERMINATED)))
        text_copy(f->phase, sizeof f->phase, "stopped");
    cJSON_Delete(root);
}

/* read_listing — reads the checkpoints of a bucket from their names and the newest manifest. */
static enum status read_listing(struct checkpoint_dir *f, struct bucket *bucket,
                                const struct bucket_listing *listing)
{
    for (int i = 0; i < listing->steps_n; i++) {
        const struct bucket_step *step = &listing->step[i];
        if (!step->is_complete) {
            text_add(&f->cut, "%s%" PRId64, f->cut.len > 0 ? ", " : "", step->step);
        } else if (f->steps_n < CHECKPOINTS_MAX) {
            f->step[f->steps_n++] = step->step;
            f->bytes += step->bytes;
        }
    }
    if (f->steps_n == 0)
        return ST_OK;
    struct manifest *manifest = memory_new(1, sizeof *manifest);
    enum status st = bucket_read_manifest(bucket, f->step[0], manifest);
    if (st == ST_OK) {
        f->meta = manifest->meta;
        text_format(f->path, sizeof f->path, "%s/step-%08" PRId64, bucket_name(bucket), f->step[0]);
        f->wall_ms = -1;
        st = load_dims_parse(f->meta.model_json, &f->dims);
        text_strip_controls(f->dims.name);
        text_strip_controls(f->meta.version);
    }
    free(manifest);
    return st;
}

/* read_bucket — reads a run in a bucket. */
static enum status read_bucket(const struct conf *conf, struct checkpoint_dir *f)
{
    struct bucket_address address;
    struct bucket_listing listing;
    struct bucket *bucket;
    TRY(bucket_address_parse(f->dir, &address));
    const struct bucket_config config = {
        .address = &address, .allows_local = conf_i64(conf, CONF_ALLOW_LOCAL_URLS) != 0};
    TRY(bucket_open(&config, &bucket));
    enum status st = bucket_list(bucket, &listing);
    if (st == ST_OK) {
        st = read_listing(f, bucket, &listing);
        bucket_listing_free(&listing);
    }
    bucket_close(bucket);
    return st;
}

/* ---- output ---- */

/* show_settings — writes {"OPTIMIZER":"adamw","LR":0.001} as NAME=VALUE pairs. */
static void show_settings(struct text *t, const char *json)
{
    cJSON *root = NULL;
    const cJSON *item;
    if (json_parse(json, strlen(json), "settings", &root) != ST_OK) {
        status_clear();
        return;
    }
    chart_strip_controls(root);
    text_add(t, "settings   ");
    cJSON_ArrayForEach(item, root)
    {
        if (item->string[0] < 'A' || item->string[0] > 'Z') /* not a setting */
            continue;
        if (cJSON_IsString(item))
            text_add(t, " %s=%s", item->string, item->valuestring);
        else
            text_add(t, " %s=%s", item->string, text_f64(item->valuedouble).text);
    }
    text_add(t, "\n");
    cJSON_Delete(root);
}

static void show_text(struct text *t, const struct checkpoint_dir *f)
{
    char word[64];
    text_add(t, "folder      %s\n", f->dir);
    text_add_bytes(t, f->damage.lines.data, f->damage.lines.len);
    if (f->cut.len > 0)
        text_add(t,
                 "incomplete  step %s: without a manifest; the upload is in progress, or was cut\n",
                 f->cut.data);
    if (f->steps_n == 0) {
        if (f->history)
            chart_write(f->history, f->history_bytes, t);
        return;
    }
    text_add(t,
             "model       %s (%s)  %" PRId64 " layers, %" PRId64 " heads, %" PRId64
             " wide, context %" PRId64 ", vocabulary %" PRId64 "\n",
             f->dims.name, f->dims.task == MODEL_TASK_QA ? "qa" : "lm", f->dims.layers,
             f->dims.heads, f->dims.embed, f->dims.context, f->dims.vocab);
    text_add(t, "step        %" PRId64 "  %s tokens  by convoy %s\n", f->meta.step,
             text_format_count(word, sizeof word, (double)f->meta.tokens), f->meta.version);
    const int64_t age_ms = clock_wall_ms() - f->wall_ms;
    if (f->wall_ms < 0)
        text_add(t, "checkpoint  %s\n", f->path);
    else
        text_add(t, "checkpoint  %s  %s ago\n", f->path,
                 text_format_span(word, sizeof word, age_ms > 0 ? age_ms : 0));
    text_add(t, "kept        %d checkpoint%s: step", f->steps_n, f->steps_n == 1 ? "" : "s");
    for (int i = 0; i < f->steps_n && i < SHOWN_MAX; i++)
        text_add(t, "%s %" PRId64, i > 0 ? "," : "", f->step[i]);
    text_add(t, "%s\n", f->steps_n > SHOWN_MAX ? " and older ones" : "");
    if (f->bytes > 0)
        text_add(t, "size        %s\n", text_format_bytes(word, sizeof word, (double)f->bytes));
    show_settings(t, f->meta.settings_json);
    if (f->history)
        chart_write(f->history, f->history_bytes, t);
}

static void add_raw(cJSON *root, const char *key, const char *json)
{
    cJSON *item = NULL;
    if (json_parse(json, strlen(json), key, &item) == ST_OK)
        cJSON_AddItemToObject(root, key, item);
    else
        cJSON_AddNullToObject(root, key);
    status_clear();
}

/* add_text — adds a text member; null if the value is unknown. */
static void add_text(cJSON *root, const char *key, const char *value)
{
    char quoted[6 * FILE_PATH_MAX + 3];
    json_quote(quoted, sizeof quoted, value);
    cJSON_AddRawToObject(root, key, value[0] ? quoted : "null");
}

/* is_failed — returns true if the run has failed. A run that was started again has a later
 * phase. */
static bool is_failed(const struct checkpoint_dir *f) { return strcmp(f->phase, "failed") == 0; }

static void show_json(struct text *t, const struct checkpoint_dir *f)
{
    cJSON *root = cJSON_CreateObject();
    const bool is_any = f->steps_n > 0;
    add_text(root, "folder", f->dir);
    add_text(root, "phase", f->phase);
    add_text(root, "error", is_failed(f) ? f->error : "");
    add_text(root, "checkpoint", f->path);
    json_add_number(root, "age_seconds",
                    is_any && f->wall_ms >= 0 ? (double)(clock_wall_ms() - f->wall_ms) / 1000
                                              : NAN);
    json_add_number(root, "step", is_any ? (double)f->meta.step : NAN);
    json_add_number(root, "tokens", is_any ? (double)f->meta.tokens : NAN);
    add_text(root, "version", f->meta.version);
    add_raw(root, "model", f->meta.model_json);
    add_raw(root, "settings", f->meta.settings_json);
    struct text list = {0};
    text_add(&list, "[%s]", f->damage.n > 0 ? f->damage.json.data : "");
    if (list.data != NULL)
        cJSON_AddRawToObject(root, "damaged", list.data);
    text_free(&list);
    cJSON *steps = cJSON_AddArrayToObject(root, "checkpoints");
    for (int i = 0; i < f->steps_n; i++)
        cJSON_AddItemToArray(steps, cJSON_CreateNumber((double)f->step[i]));
    char *json = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    t->overflow = json == NULL;
    if (json != NULL)
        text_add(t, "%s\n", json);
    cJSON_free(json);
}

/* check_run — returns the status of the run. Call it after the report was shown. */
static enum status check_run(const struct checkpoint_dir *f)
{
    const int damaged_n = f->damage.n;
    if (f->steps_n == 0 && damaged_n == 0 && !f->history)
        return FAIL(
            ST_UNHEALTHY,
            "%s holds no checkpoint and no history of a run; name a run's CHECKPOINT_DIR, or "
            "a URL such as http://host:8080",
            f->dir);
    if (damaged_n > 0)
        return FAIL(ST_UNHEALTHY, "%s: %d of %d checkpoint%s cannot be used: %s", f->dir, damaged_n,
                    f->steps_n + damaged_n, f->steps_n + damaged_n == 1 ? "" : "s",
                    f->damage.first);
    if (is_failed(f))
        return FAIL(ST_UNHEALTHY, "%s: the run has failed: %s", f->dir,
                    f->error[0] ? f->error : "its history has no reason; see its log");
    return ST_OK;
}

/* read_history — reads the curves in a folder, and how the run ended. */
static void read_history(struct checkpoint_dir *f, const char *dir)
{
    char path[FILE_PATH_MAX];
    if (file_join(path, sizeof path, dir, HISTORY_NAME) != ST_OK || !file_exists(path) ||
        file_read(path, HISTORY_BYTES_MAX, &f->history, &f->history_bytes) != ST_OK)
        f->history = NULL;
    status_clear();
    if (f->history)
        read_end(f);
}

/* finish_report — prints the report unless st is a failure, and frees f. */
static enum status finish_report(struct checkpoint_dir *f, bool as_json, enum status st)
{
    struct text shown = {0};
    if (st == ST_OK && (f->steps_n + f->damage.n > 0 || f->history)) {
        (as_json ? show_json : show_text)(&shown, f);
        st = print_text(&shown);
    }
    if (st == ST_OK)
        st = check_run(f);
    damage_list_free(&f->damage);
    text_free(&f->cut);
    free(f->history);
    free(f);
    return st;
}

enum status checkpoint_status_main(const char *dir, bool as_json)
{
    struct checkpoint_dir *f = memory_new(1, sizeof *f);
    f->dir = dir;
    const enum status st =
        is_checkpoint(dir) ? read_one(f) : ckpt_each(dir, true, add_checkpoint, f);
    if (st == ST_OK)
        read_history(f, dir);
    return finish_report(f, as_json, st);
}

enum status checkpoint_status_bucket(const struct conf *conf, const char *name)
{
    char dir[FILE_PATH_MAX];
    struct checkpoint_dir *f = memory_new(1, sizeof *f);
    f->dir = name;
    enum status st = bucket_fetch_run(conf, name, BUCKET_FETCH_RECORDS, dir);
    if (st == ST_OK)
        read_history(f, dir);
    if (st == ST_OK)
        st = read_bucket(conf, f);
    return finish_report(f, conf_i64(conf, CONF_JSON) != 0, st);
}
