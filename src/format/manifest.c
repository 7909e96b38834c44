/* manifest — see manifest.h. */
#include "format/manifest.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/json.h"
#include "base/assert.h"

#define SCHEMA 1 /* the schema written, and the only one read so far; see ckpt.h on versions */
#define COUNT_MAX ((int64_t)1 << 53) /* larger whole numbers are not exact in JSON */
#define TAIL_BYTES 43
#define SUFFIX ".safetensors"

/* tail_of — writes the last line for the bytes before it, in the form that the reader expects byte
 * for byte. */
static void tail_of(const char *bytes, size_t n, char out[TAIL_BYTES + 1])
{
    bool fits = text_format(out, TAIL_BYTES + 1, "  \"manifest_xxh3_64\": \"%016" PRIx64 "\"\n}\n",
                            (uint64_t)XXH3_64bits(bytes, n));
    ASSERTF(fits && strlen(out) == TAIL_BYTES, "tail %zu bytes", strlen(out));
}

static enum status normalize_json(const char *what, char *json, size_t cap)
{
    cJSON *root = NULL;
    TRY(json_parse(json, strlen(json), what, &root));
    char *text = cJSON_IsObject(root) ? cJSON_PrintUnformatted(root) : NULL;
    enum status st = ST_OK;
    if (!cJSON_IsObject(root))
        st = FAIL(ST_BAD_DATA, "%s is not a JSON object: %.100s", what, json);
    else if (!text)
        st = FAIL(ST_RETRY, "out of memory: %s", what);
    else if (!text_copy(json, cap, text))
        st = FAIL(ST_BAD_DATA, "%s has %zu bytes of JSON, at most %zu are kept in a checkpoint",
                  what, strlen(text), cap - 1);
    cJSON_free(text);
    cJSON_Delete(root);
    return st;
}

enum status manifest_normalize(struct ckpt_meta *meta)
{
    TRY(normalize_json("the checkpoint's model", meta->model_json, sizeof(meta->model_json)));
    TRY(normalize_json("the checkpoint's settings", meta->settings_json,
                       sizeof(meta->settings_json)));
    if (meta->commits_json[0] != 0)
        TRY(normalize_json("the checkpoint's commits", meta->commits_json,
                           sizeof(meta->commits_json)));
    return ST_OK;
}

enum status manifest_write(const struct manifest *m, struct text *out)
{
    char version[sizeof(m->meta.version) * 6 + 3], tail[TAIL_BYTES + 1];
    json_quote(version, sizeof(version), m->meta.version);
    text_add(out, "{\n  \"schema\": %d,\n  \"version\": %s,\n", SCHEMA, version);
    text_add(out,
             "  \"step\": %" PRId64 ",\n  \"samples\": %" PRId64 ",\n  \"tokens\": %" PRId64 ",\n",
             m->meta.step, m->meta.samples, m->meta.tokens);
    text_add(out, "  \"seed\": \"%016" PRIx64 "\",\n  \"data_fingerprint\": \"%016" PRIx64 "\",\n",
             m->meta.seed, m->meta.data_fingerprint);
    if (m->meta.trained > 0)
        text_add(out, "  \"trained_tokens\": %" PRId64 ",\n", m->meta.trained);
    if (m->meta.loss_scale > 0)
        text_add(out, "  \"loss_scale\": %" PRId64 ",\n  \"loss_scale_steps\": %" PRId64 ",\n",
                 m->meta.loss_scale, m->meta.loss_scale_steps);
    if (m->meta.outer_steps > 0)
        text_add(out, "  \"outer_steps\": %" PRId64 ",\n", m->meta.outer_steps);
    if (m->meta.schedule_step_samples > 0)
        text_add(out,
                 "  \"schedule_step_samples\": %" PRId64 ",\n  \"schedule_samples\": %" PRId64
                 ",\n",
                 m->meta.schedule_step_samples, m->meta.schedule_samples);
    if (m->meta.skipped > 0)
        text_add(out, "  \"skipped\": %" PRId64 ",\n", m->meta.skipped);
    if (m->meta.spike_history[0] != 0)
        text_add(out, "  \"spike_history\": \"%s\",\n", m->meta.spike_history);
    text_add(out, "  \"model\": %s,\n  \"settings\": %s,\n", m->meta.model_json,
             m->meta.settings_json);
    if (m->meta.commits_json[0] != 0)
        text_add(out, "  \"commits\": %s,\n", m->meta.commits_json);
    text_add(out, "  \"files\": [\n");
    for (int i = 0; i < m->files_n; i++)
        text_add(out,
                 "    {\"name\": \"%s\", \"bytes\": %" PRId64 ", \"xxh3_64\": \"%016" PRIx64
                 "\"}%s\n",
                 m->file[i].name, m->file[i].bytes, m->file[i].hash, i + 1 < m->files_n ? "," : "");
    text_add(out, "  ],\n");
    if (out->overflow)
        return FAIL(ST_RETRY, "out of memory: the manifest of %d files", m->files_n);
    tail_of(out->data, out->len, tail);
    text_add(out, "%s", tail);
    return out->overflow ? FAIL(ST_RETRY, "out of memory: the manifest of %d files", m->files_n)
                         : ST_OK;
}

static enum status get_object_text(const cJSON *root, const char *key, char *out, size_t cap)
{
    const cJSON *object;
    TRY(json_get_object(root, key, &object));
    char *text = cJSON_PrintUnformatted(object);
    if (!text)
        return FAIL(ST_RETRY, "out of memory: JSON key \"%s\"", key);
    bool fits = text_copy(out, cap, text);
    cJSON_free(text);
    return fits ? ST_OK
                : FAIL(ST_BAD_DATA, "JSON key \"%s\" is longer than %zu bytes", key, cap - 1);
}

static enum status read_meta(const cJSON *root, struct ckpt_meta *out)
{
    int64_t schema;
    const char *version;
    TRY(json_get_i64(root, "schema", SCHEMA, SCHEMA, &schema));
    TRY(json_get_string(root, "version", &version));
    if (!text_copy(out->version, sizeof(out->version), version))
        return FAIL(ST_BAD_DATA, "JSON key \"version\" is longer than %zu bytes",
                    sizeof(out->version) - 1);
    TRY(json_get_i64(root, "step", 0, COUNT_MAX, &out->step));
    TRY(json_get_i64(root, "samples", 0, COUNT_MAX, &out->samples));
    TRY(json_get_i64(root, "tokens", 0, COUNT_MAX, &out->tokens));
    if (cJSON_HasObjectItem(root, "trained_tokens"))
        TRY(json_get_i64(root, "trained_tokens", 1, out->tokens, &out->trained));
    TRY(json_get_hex(root, "seed", &out->seed));
    TRY(json_get_hex(root, "data_fingerprint", &out->data_fingerprint));
    if (cJSON_HasObjectItem(root, "loss_scale")) {
        TRY(json_get_i64(root, "loss_scale", 1, 1 << 24, &out->loss_scale));
        TRY(json_get_i64(root, "loss_scale_steps", 0, COUNT_MAX, &out->loss_scale_steps));
    }
    if (cJSON_HasObjectItem(root, "outer_steps"))
        TRY(json_get_i64(root, "outer_steps", 1, COUNT_MAX, &out->outer_steps));
    if (cJSON_HasObjectItem(root, "schedule_step_samples")) {
        TRY(json_get_i64(root, "schedule_step_samples", 1, 1 << 24, &out->schedule_step_samples));
        TRY(json_get_i64(root, "schedule_samples", 0, COUNT_MAX, &out->schedule_samples));
    }
    if (cJSON_HasObjectItem(root, "skipped"))
        TRY(json_get_i64(root, "skipped", 1, out->step, &out->skipped));
    if (cJSON_HasObjectItem(root, "spike_history")) {
        /* Hexadecimal digits; the caller interprets them. */
        const char *s;
        TRY(json_get_string(root, "spike_history", &s));
        if (s[strspn(s, "0123456789abcdef")] != 0 ||
            !text_copy(out->spike_history, sizeof(out->spike_history), s))
            return FAIL(ST_BAD_DATA,
                        "JSON key \"spike_history\" is \"%.20s\", expected up to %d hexadecimal "
                        "digits",
                        s, CKPT_HISTORY_MAX);
    }
    TRY(get_object_text(root, "model", out->model_json, sizeof(out->model_json)));
    TRY(get_object_text(root, "settings", out->settings_json, sizeof(out->settings_json)));
    if (cJSON_HasObjectItem(root, "commits"))
        TRY(get_object_text(root, "commits", out->commits_json, sizeof(out->commits_json)));
    return ST_OK;
}

static enum status read_fields(const cJSON *root, struct manifest *out)
{
    const cJSON *files;
    TRY(read_meta(root, &out->meta));
    TRY(json_get_array(root, "files", &files));
    for (const cJSON *item = files->child; item; item = item->next) {
        if (out->files_n == MANIFEST_FILES_MAX)
            return FAIL(ST_BAD_DATA, "more than %d files are listed", MANIFEST_FILES_MAX);
        const char *name;
        struct manifest_file *file = &out->file[out->files_n];
        TRY(json_get_string(item, "name", &name));
        /* A plain name of ours, which cannot lead out of the folder. */
        size_t stem = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (!(stem > 0 && strlen(name) < MANIFEST_NAME_MAX && strcmp(name + stem, SUFFIX) == 0))
            return FAIL(ST_BAD_DATA,
                        "a file's name is \"%.80s\", expected letters, digits or _ and " SUFFIX,
                        name);
        for (int i = 0; i < out->files_n; i++)
            if (strcmp(out->file[i].name, name) == 0)
                return FAIL(ST_BAD_DATA, "file %s is listed twice", name);
        text_copy(file->name, sizeof(file->name), name);
        TRY(json_get_i64(item, "bytes", 0, COUNT_MAX, &file->bytes));
        TRY(json_get_hex(item, "xxh3_64", &file->hash));
        out->files_n++;
    }
    return out->files_n > 0 ? ST_OK : FAIL(ST_BAD_DATA, "no file is listed");
}

/* read_text — reads a manifest without the checksum, so that the fuzzer reaches it. */
static enum status read_text(const char *bytes, size_t n, const char *what, struct manifest *out)
{
    cJSON *root = NULL;
    struct manifest found = {.files_n = 0};
    TRY(json_parse(bytes, n, what, &root));
    enum status st = read_fields(root, &found);
    cJSON_Delete(root);
    if (st != ST_OK)
        return FAIL(st, "%s: %s", what, status_message());
    *out = found;
    return ST_OK;
}

static size_t skip_space(const char *bytes, size_t n, size_t at)
{
    while (at < n && strchr(" \t\r\n", bytes[at]) && bytes[at])
        at++;
    return at;
}

/* Skips white space, then this text; false: the bytes differ. */
static bool accept_text(const char *bytes, size_t n, size_t *at, const char *text)
{
    size_t from = skip_space(bytes, n, *at), len = strlen(text);
    if (n - from < len || memcmp(bytes + from, text, len) != 0)
        return false;
    *at = from + len;
    return true;
}

/* schema_of — reads the first key, before anything else is trusted: another schema may have other
 * rules for the rest and its checksum. -1: the bytes do not begin with it. */
static int64_t schema_of(const char *bytes, size_t n)
{
    char digits[20];
    size_t at = 0;
    int64_t schema;
    if (!accept_text(bytes, n, &at, "{") || !accept_text(bytes, n, &at, "\"schema\"") ||
        !accept_text(bytes, n, &at, ":"))
        return -1;
    at = skip_space(bytes, n, at);
    size_t len = 0;
    while (at + len < n && len + 1 < sizeof(digits) && bytes[at + len] >= '0' &&
           bytes[at + len] <= '9')
        len++;
    memcpy(digits, bytes + at, len);
    digits[len] = 0;
    at += len;
    if (text_parse_i64(digits, 0, INT64_MAX, &schema) != TEXT_OK ||
        !accept_text(bytes, n, &at, ","))
        return -1;
    return schema;
}

enum status manifest_parse(const char *bytes, size_t n, const char *what, struct manifest *out)
{
    char tail[TAIL_BYTES + 1];
    int64_t schema = schema_of(bytes, n);
    if (schema >= 0 && schema != SCHEMA)
        return FAIL(ST_SCHEMA,
                    "%s has schema %" PRId64
                    ", but this version reads schema %d: %s version wrote it; use that version, or "
                    "another CHECKPOINT_DIR; nothing was changed",
                    what, schema, SCHEMA, schema > SCHEMA ? "a newer" : "an older");
    if (n > MANIFEST_BYTES_MAX || n < TAIL_BYTES)
        return FAIL(ST_BAD_DATA,
                    "%s has %zu bytes, a manifest has %d to %d; it is cut short or damaged", what,
                    n, TAIL_BYTES, MANIFEST_BYTES_MAX);
    tail_of(bytes, n - TAIL_BYTES, tail);
    if (memcmp(bytes + n - TAIL_BYTES, tail, TAIL_BYTES) != 0)
        return FAIL(ST_BAD_DATA,
                    "%s: its bytes do not have the checksum in its last line; it is damaged", what);
    return read_text(bytes, n, what, out);
}

#ifdef FUZZ
/* A manifest that is read can be written, and reads back the same. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct manifest first, again;
    struct text text = {.data = NULL};
    enum status st = manifest_parse((const char *)bytes, n, "fuzz", &first);
    if (st == ST_OK || read_text((const char *)bytes, n, "fuzz", &first) != ST_OK)
        return 0;
    ASSERT(manifest_write(&first, &text) == ST_OK);
    if (manifest_parse(text.data, text.len, "fuzz", &again) == ST_OK) {
        ASSERT(again.files_n == first.files_n && again.meta.step == first.meta.step &&
               again.meta.seed == first.meta.seed);
        ASSERT(strcmp(again.file[0].name, first.file[0].name) == 0);
    }
    text_free(&text);
    return 0;
}
#endif
