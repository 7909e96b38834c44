/* chat_source — see chat_source.h. */
#include "node/choose/chat_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/gguf/model.h"
#include "node/choose/tokenizer_source.h"

#define JINJA_BYTES_MAX ((size_t)1 << 20)
#define CONFIG_BYTES_MAX ((size_t)8 << 20)

/* Reads a file of a folder; *out NULL: there is none. */
static enum status read_beside(const char *folder, const char *name, size_t bytes_max, char **out,
                               size_t *n_out)
{
    char path[FILE_PATH_MAX];
    *out = NULL;
    TRY(file_join(path, sizeof path, folder, name));
    return file_exists(path) ? file_read(path, bytes_max, out, n_out) : ST_OK;
}

/* Returns the chat_template of a tokenizer_config.json: a text, or the one named "default" of a
 * list; NULL: there is none. */
static const char *config_template(const cJSON *config)
{
    const cJSON *item, *value = cJSON_GetObjectItemCaseSensitive(config, "chat_template");
    cJSON_ArrayForEach(item, value)
    {
        if (cJSON_IsObject(item) && strcmp(json_text(item, "name"), "default") == 0)
            return json_text(item, "template");
    }
    return cJSON_GetStringValue(value);
}

/* Sets out to the folder of a tokenizer: the path itself, or the folder of the file. */
static void folder_of(const char *path, char out[FILE_PATH_MAX])
{
    text_copy(out, FILE_PATH_MAX, path);
    char *slash = strrchr(out, '/');
    if (file_is_dir(path))
        return;
    if (slash == NULL)
        text_copy(out, FILE_PATH_MAX, ".");
    else
        slash[slash == out] = 0;
}

/* Reads the Jinja template in a folder with a tokenizer; *out NULL: there is none. */
static enum status read_folder(const char *folder, char **out)
{
    char *bytes;
    size_t n;
    cJSON *config;
    TRY(read_beside(folder, "chat_template.jinja", JINJA_BYTES_MAX, out, &n));
    if (*out != NULL)
        return ST_OK;
    TRY(read_beside(folder, "tokenizer_config.json", CONFIG_BYTES_MAX, &bytes, &n));
    if (bytes == NULL)
        return ST_OK;
    const enum status st = json_parse(bytes, n, "tokenizer_config.json", &config);
    free(bytes);
    TRY(st);
    const char *text = config_template(config);
    if (text != NULL && text[0] != '\0')
        *out = memory_text(text);
    cJSON_Delete(config);
    return ST_OK;
}

static enum status read_gguf(const char *path, char **out)
{
    struct file_map map;
    struct gguf gguf;
    TRY(file_map_open(path, &map));
    enum status st = gguf_parse(map.data, map.bytes, path, &gguf);
    if (st == ST_OK) {
        if (gguf_find(&gguf, "tokenizer.chat_template") != NULL) {
            char *text = memory_new(1, JINJA_BYTES_MAX);
            st = gguf_get_text(&gguf, "tokenizer.chat_template", text, JINJA_BYTES_MAX);
            if (st == ST_OK)
                *out = text;
            else
                free(text);
        }
        gguf_free(&gguf);
    }
    file_map_close(&map);
    return st;
}

/* Reads the Jinja template of the tokenizer at a path: in the keys of a GGUF file, or in the
 * folder. *out NULL: it has none. */
static enum status read_jinja(const char *path, char **out)
{
    char folder[FILE_PATH_MAX];
    *out = NULL;
    if (gguf_model_is_file(path))
        return read_gguf(path, out);
    folder_of(path, folder);
    return read_folder(folder, out);
}

static enum status recognise_template(const struct conf *conf, struct chat_template *out)
{
    char path[FILE_PATH_MAX], *jinja = NULL;
    const bool has_path = tokenizer_source_path(conf, path);
    if (has_path)
        TRY(read_jinja(path, &jinja));
    if (jinja == NULL)
        return FAIL(ST_BAD_SETTING,
                    "the tokenizer %s has no chat_template; set CHAT_TEMPLATE to the family of the "
                    "model, such as chatml, or for a base model to zephyr, which needs no tokens "
                    "of its own",
                    has_path ? path : "of the model");
    const enum status st = chat_template_recognise(jinja, path, out);
    free(jinja);
    if (st == ST_OK)
        LOG_INFO("chat template %s, recognised in %s", out->name, path);
    return st;
}

static enum status read_table(const char *path, struct chat_template *out)
{
    char *bytes;
    size_t n;
    TRY(file_read(path, CHAT_TEMPLATE_FILE_MAX, &bytes, &n));
    const enum status st = chat_template_parse(bytes, n, path, out);
    free(bytes);
    return st;
}

static enum status named_template(const char *named, struct chat_template *out)
{
    return file_exists(named) ? read_table(named, out) : chat_template_named(named, out);
}

static enum status open_template(const struct conf *conf, const char *named,
                                 struct chat_template *out)
{
    return strcmp(named, "auto") == 0 ? recognise_template(conf, out) : named_template(named, out);
}

/* Opens the template of a run: a family or a file, or the model's own. */
static enum status trained_template(const char *named, const char *path, const char *own,
                                    struct chat_template *out)
{
    if (strcmp(named, "auto") != 0)
        return named_template(named, out);
    return own != NULL ? chat_template_recognise(own, path, out)
                       : FAIL(ST_BAD_SETTING, "the tokenizer has no chat_template");
}

/* Replaces the model's own template by the template of the run, if that is another one. */
static enum status replace_template(const char *path, const struct tokenizer *tokenizer,
                                    const struct chat_template *template,
                                    struct chat_source_export *out)
{
    struct chat_template own = {.name = ""};
    struct text jinja = {.data = NULL};
    struct chat *chat;
    if (out->jinja != NULL && chat_template_recognise(out->jinja, path, &own) != ST_OK)
        status_clear();
    if (strcmp(own.name, template->name) != 0) {
        chat_template_jinja(template, &jinja);
        if (jinja.overflow)
            return FAIL(ST_RETRY, "out of memory: the chat template");
        free(out->jinja);
        out->jinja = jinja.data;
        out->is_new = true;
    }
    chat_template_free(&own);
    TRY(chat_open(tokenizer, template, CHAT_LOSS_ASSISTANT, &chat));
    out->turn_end = chat_turn_end(chat);
    chat_close(chat);
    return ST_OK;
}

enum status chat_source_export(const char *settings_json, const char *path,
                               const struct tokenizer *tokenizer, struct chat_source_export *out)
{
    struct chat_template template = {.name = ""};
    cJSON *settings;
    *out = (struct chat_source_export){.turn_end = TOKENIZER_NONE};
    if (path[0] != '\0')
        TRY(read_jinja(path, &out->jinja));
    TRY(json_parse(settings_json, strlen(settings_json), "the checkpoint's settings", &settings));
    const char *named = json_text(settings, "CHAT_TEMPLATE");
    enum status st = ST_OK;
    if (named[0] != '\0') {
        st = trained_template(named, path, out->jinja, &template);
        if (st == ST_OK)
            st = replace_template(path, tokenizer, &template, out);
    }
    if (st != ST_OK && st != ST_RETRY) {
        LOG_WARN("the chat template CHAT_TEMPLATE=%s of the run is not written: %s", named,
                 status_message());
        status_clear();
        st = ST_OK;
    }
    cJSON_Delete(settings);
    return st;
}

enum status chat_source_open(const struct conf *conf, const struct tokenizer *tokenizer,
                             const char *settings_json, struct chat **out)
{
    struct chat_template template = {.name = ""};
    cJSON *settings = NULL;
    if (settings_json != NULL && !conf_is_set(conf, CONF_CHAT_TEMPLATE))
        TRY(json_parse(settings_json, strlen(settings_json), "the checkpoint's settings",
                       &settings));
    const char *recorded = settings != NULL ? json_text(settings, "CHAT_TEMPLATE") : "";
    const enum status st = open_template(
        conf, recorded[0] != '\0' ? recorded : conf_text(conf, CONF_CHAT_TEMPLATE), &template);
    cJSON_Delete(settings);
    TRY(st);
    return chat_open(tokenizer, &template, (enum chat_loss)conf_i64(conf, CONF_LOSS_ON), out);
}

/* clang-format off */
#define IS_LOSS(row, value, word) CONF_CHOICE_IS(CONF_##row##_##value, CHAT_LOSS_##value)
CONF_LOSS_ON_LIST(IS_LOSS)
/* clang-format on */
