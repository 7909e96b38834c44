/* sources — see sources.h. */
#include "node/choose/sources.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "node/bucket/bucket_fetch.h"
#include "node/choose/config_map.h"
#include "remote/remote.h"
#include "train/weights/peft.h"
#include "train/weights/weights.h"

static const struct source {
    enum conf_key key;
    enum remote_kind kind;
} source_list[] = {{CONF_MODEL, REMOTE_KIND_MODEL},         {CONF_ADAPTER, REMOTE_KIND_ADAPTER},
                   {CONF_TOKENIZER, REMOTE_KIND_TOKENIZER}, {CONF_FROM, REMOTE_KIND_MODEL},
                   {CONF_DATA, REMOTE_KIND_DATA},           {CONF_VAL_DATA, REMOTE_KIND_DATA}};
#define SOURCES_N ((int)(sizeof source_list / sizeof *source_list))

/* is_run — returns true for a folder of checkpoints, false for one checkpoint. */
static bool is_run(const char *path)
{
    struct ckpt *ckpt;
    bool is = false;
    if (!weights_are_ckpt(path))
        return false;
    if (weights_peek(path, &ckpt) == ST_OK) {
        is = strcmp(ckpt_path(ckpt), path) != 0;
        ckpt_close(ckpt);
    }
    status_clear(); /* the next open reports it */
    return is;
}

/* needs_resumed — returns true if a checkpoint of the run may replace a setting: ADAPTER, or the
 * commit of a name of the hub. */
static bool needs_resumed(const struct conf *conf)
{
    bool is_needed = conf_text(conf, CONF_ADAPTER)[0] != '\0';
    for (int i = 0; i < SOURCES_N; i++)
        is_needed |= strstr(conf_given(conf, source_list[i].key), "hf://") != NULL;
    return is_needed;
}

/* open_resumed — opens the checkpoint from which this run goes on; NULL: it begins, or no setting
 * needs the checkpoint, which is then not read: copies in memory may replace it. */
static struct ckpt *open_resumed(const struct conf *conf)
{
    const char *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    struct ckpt *ckpt = NULL;
    if (!needs_resumed(conf) || !dir[0] || conf_i64(conf, CONF_RESUME) == CONF_RESUME_NEVER ||
        !weights_are_ckpt(dir))
        return NULL;
    if (weights_peek(dir, &ckpt) != ST_OK)
        status_clear(); /* the trainer reports it */
    return ckpt;
}

/* pin_model — decides which checkpoint of a folder is MODEL. */
static void pin_model(struct conf *conf)
{
    const char *model = conf_text(conf, CONF_MODEL);
    struct model_dims preset;
    struct ckpt *ckpt;
    if (model_preset(model, &preset) || !is_run(model) || weights_peek(model, &ckpt) != ST_OK) {
        status_clear();
        return;
    }
    conf_set_found(conf, CONF_MODEL, ckpt_path(ckpt), "");
    ckpt_close(ckpt);
}

/* replace_adapter — replaces ADAPTER by the checkpoint of the run, which holds its values. */
static void replace_adapter(struct conf *conf, const struct ckpt *resumed)
{
    struct model_dims dims = {.layers = 0};
    if (!conf_text(conf, CONF_ADAPTER)[0] || !resumed)
        return;
    if (weights_dims(ckpt_path(resumed), &dims) != ST_OK)
        status_clear();
    if (dims.adapter.r > 0)
        conf_set_found(conf, CONF_ADAPTER, ckpt_path(resumed), "");
}

bool sources_adapter_is_resumed(const struct conf *conf)
{
    const char *dir = conf_text(conf, CONF_CHECKPOINT_DIR), *path = conf_text(conf, CONF_ADAPTER);
    const size_t n = strlen(dir);
    return n > 0 && text_starts(path, dir) &&
           text_starts(path + n - (dir[n - 1] == '/'), "/step-") &&
           strcmp(path, conf_given(conf, CONF_ADAPTER)) != 0;
}

void sources_find_local(struct conf *conf)
{
    struct ckpt *resumed = open_resumed(conf);
    replace_adapter(conf, resumed);
    ckpt_close(resumed);
    pin_model(conf);
}

/* set_found — sets path and commits in the settings. */
static void set_found(struct conf *conf, enum conf_key key, const char *path, const cJSON *commits)
{
    char *json = commits != NULL && commits->child != NULL ? cJSON_PrintUnformatted(commits) : NULL;
    conf_set_found(conf, key, path, json != NULL ? json : "");
    cJSON_free(json);
}

/* fetch_source — fetches a name of another machine. Of data only the commit is found: the reader
 * fetches their files. recorded: commits of an earlier process of the run; NULL: none. */
static enum status fetch_source(struct conf *conf, const struct source *source,
                                const cJSON *recorded, sources_progress *progress, void *arg)
{
    const char *name = conf_given(conf, source->key), *setting = conf_row_name(source->key);
    const bool is_data = source->kind == REMOTE_KIND_DATA;
    char path[FILE_PATH_MAX], revision[REMOTE_REVISION_MAX];
    if (is_data ? strstr(name, "hf://") == NULL : !remote_is_name(name))
        return ST_OK;
    if (!is_data) { /* perhaps the checkpoints of a run in a bucket */
        TRY(config_map_cache(conf));
        TRY(bucket_fetch_setting(conf, source->key, true, progress, arg));
        if (strcmp(conf_text(conf, source->key), name) != 0)
            return ST_OK;
    }
    const struct remote_config config = {.setting = setting,
                                         .cache_dir = conf_text(conf, CONF_CACHE_DIR),
                                         .allows_local = conf_i64(conf, CONF_ALLOW_LOCAL_URLS) != 0,
                                         .progress = progress,
                                         .progress_arg = arg};
    struct text pinned = {.data = NULL};
    cJSON *used = cJSON_CreateObject();
    enum status st = ST_OK;
    TRY_OR(config_map_cache(conf), done);
    TRY_OR(remote_pin(&config, name, recorded, used, &pinned), done);
    if (!is_data) {
        TRY_OR(remote_fetch(&config, source->kind, pinned.data, path, revision), done);
        LOG_INFO("%s=%s is in %s", setting, name, path);
    }
    set_found(conf, source->key, is_data ? pinned.data : path, used);
done:
    cJSON_Delete(used);
    text_free(&pinned);
    return st;
}

/* read_commits — reads the commits that the checkpoint records; NULL: none. */
static cJSON *read_commits(const struct ckpt *resumed)
{
    cJSON *commits = NULL;
    const char *json = resumed != NULL ? ckpt_meta(resumed)->commits_json : "";
    if (json[0] != '\0' &&
        json_parse(json, strlen(json), "the checkpoint's commits", &commits) != ST_OK)
        status_clear();
    return commits;
}

enum status sources_find(struct conf *conf, sources_progress *progress, void *progress_arg)
{
    struct ckpt *resumed = open_resumed(conf);
    cJSON *recorded = read_commits(resumed);
    enum status st = ST_OK;
    replace_adapter(conf, resumed);
    const bool is_resumed = sources_adapter_is_resumed(conf);
    for (int i = 0; st == ST_OK && i < SOURCES_N; i++)
        if (source_list[i].key != CONF_ADAPTER || !is_resumed)
            st = fetch_source(conf, &source_list[i], recorded, progress, progress_arg);
    cJSON_Delete(recorded);
    ckpt_close(resumed);
    TRY(st);
    pin_model(conf);
    if (is_resumed)
        LOG_INFO("ADAPTER=%s is not used: the run resumes from %s", conf_given(conf, CONF_ADAPTER),
                 conf_text(conf, CONF_ADAPTER));
    return ST_OK;
}

void sources_commits(const struct conf *conf, struct text *out)
{
    cJSON *all = cJSON_CreateObject();
    for (int i = 0; i < SOURCES_N; i++) {
        const char *json = conf_revision(conf, source_list[i].key);
        cJSON *one = NULL;
        if (json[0] == '\0' || json_parse(json, strlen(json), "commits", &one) != ST_OK)
            status_clear();
        for (const cJSON *item = one != NULL ? one->child : NULL; item != NULL; item = item->next)
            if (!cJSON_HasObjectItem(all, item->string))
                cJSON_AddStringToObject(all, item->string, item->valuestring);
        cJSON_Delete(one);
    }
    char *text = all != NULL && all->child != NULL ? cJSON_PrintUnformatted(all) : NULL;
    if (text != NULL)
        text_add(out, "%s", text);
    cJSON_free(text);
    cJSON_Delete(all);
}

enum status sources_find_for_command(struct conf *conf, bool reads_weights)
{
    for (int i = 0; i < SOURCES_N; i++) {
        struct source source = source_list[i];
        if (source.kind == REMOTE_KIND_MODEL && !reads_weights)
            source.kind = REMOTE_KIND_CONFIG;
        if (source.kind != REMOTE_KIND_DATA)
            TRY(fetch_source(conf, &source, NULL, NULL, NULL));
    }
    return ST_OK;
}

/* ---- the place of the files ---- */

bool sources_is_local(const struct conf *conf, enum conf_key key)
{
    const char *path = conf_given(conf, key);
    if (remote_is_name(path) || is_run(path))
        return false;
    return weights_are_ckpt(path) ||
           (key == CONF_ADAPTER ? peft_is_folder(path) : weights_are_at(path));
}

bool sources_are_here(const struct conf *conf)
{
    const char *model = conf_text(conf, CONF_MODEL), *adapter = conf_text(conf, CONF_ADAPTER);
    struct model_dims preset;
    if (remote_is_name(model) || remote_is_name(adapter))
        return false;
    return conf_i64(conf, CONF_NODE_ID) == 0 ||
           ((model_preset(model, &preset) || weights_are_at(model) || weights_are_ckpt(model)) &&
            (!adapter[0] || peft_is_folder(adapter) || weights_are_ckpt(adapter)));
}

/* ---- as JSON ---- */

void sources_write(const struct conf *conf, struct text *out)
{
    text_add(out, "{");
    for (int i = 0, n = 0; i < SOURCES_N; i++) {
        const enum conf_key key = source_list[i].key;
        if (strcmp(conf_text(conf, key), conf_given(conf, key)) == 0)
            continue;
        text_add(out, "%s\"%s\":{\"path\":", n++ > 0 ? "," : "", conf_row_name(key));
        json_quote_text(out, conf_text(conf, key));
        text_add(out, ",\"revision\":");
        json_quote_text(out, conf_revision(conf, key));
        text_add(out, "}");
    }
    text_add(out, "}");
}

bool sources_read(struct conf *conf, const char *bytes, size_t n)
{
    cJSON *root = NULL;
    bool is_whole = json_parse(bytes, n, "the paths of MODEL and ADAPTER", &root) == ST_OK;
    const cJSON *item;
    status_clear();
    for (int i = 0; is_whole && i < SOURCES_N; i++) {
        item = cJSON_GetObjectItemCaseSensitive(root, conf_row_name(source_list[i].key));
        is_whole = !item || source_list[i].kind == REMOTE_KIND_DATA ||
                   file_exists(json_text(item, "path"));
    }
    for (int i = 0; is_whole && i < SOURCES_N; i++) {
        item = cJSON_GetObjectItemCaseSensitive(root, conf_row_name(source_list[i].key));
        if (item)
            conf_set_found(conf, source_list[i].key, json_text(item, "path"),
                           json_text(item, "revision"));
    }
    cJSON_Delete(root);
    return is_whole;
}
