/* load — see load.h. */
#include "train/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/must.h"
#include "base/text.h"

#define STAGE_ELEMS ((int64_t)1 << 18)

/* Through a small stage: the file's bytes are not aligned and may be half-width. */
static enum status copy_entry(const struct load_target *to, const struct param *p,
                              const struct safetensors_entry *entry, float *stage)
{
    ASSERTF(entry->elems == p->elems, "%s: %lld elements, expected %lld", p->name, (long long)entry->elems,
            (long long)p->elems);
    for (int64_t first = 0; first < p->elems; first += STAGE_ELEMS) {
        int64_t n = p->elems - first < STAGE_ELEMS ? p->elems - first : STAGE_ELEMS;
        safetensors_to_f32(entry, first, n, stage);
        TRY(dev_copy(to->stream, tensor_at(to->data, p->offset + first).data, stage, (size_t)n * sizeof *stage));
        TRY(dev_sync(to->stream));
    }
    return ST_OK;
}

typedef enum status load_find(const void *file, const char *part, const struct param *p,
                              const struct safetensors_entry **out);

static enum status find_hf(const void *file, const char *part, const struct param *p,
                           const struct safetensors_entry **out)
{
    (void)part;
    const struct hf_model *hf = file;
    *out = NULL;
    if (text_starts(p->name, "qa_outputs.") && !hf_has(hf, p->name)) {
        LOG_INFO("%s is not in the model's folder: it keeps its initial value", p->name);
        return ST_OK;
    }
    return hf_tensor(hf, p->name, p->dims_n, p->dim, out);
}

static enum status find_ckpt(const void *file, const char *part, const struct param *p,
                             const struct safetensors_entry **out)
{
    return ckpt_tensor(file, part, p->name, p->dims_n, p->dim, out);
}

static enum status load_all(const struct load_target *to, load_find *find, const void *file, const char *part)
{
    float *stage = malloc(STAGE_ELEMS * sizeof *stage);
    if (!stage)
        return FAIL(ST_RETRY, "out of memory: a stage for loading; use a machine with more memory");
    enum status st = ST_OK;
    for (int i = 0; i < to->table->rows_n; i++) {
        const struct param *p = &to->table->row[i];
        const struct safetensors_entry *entry;
        TRY_OR(find(file, part, p, &entry), out_free);
        if (entry)
            TRY_OR(copy_entry(to, p, entry, stage), out_free);
    }
out_free:
    free(stage);
    return st;
}

enum status load_hf(const struct load_target *to, const struct hf_model *hf)
{
    return load_all(to, find_hf, hf, NULL);
}

enum status load_ckpt(const struct load_target *to, const struct ckpt *ckpt, const char *part)
{
    return load_all(to, find_ckpt, ckpt, part);
}

enum status load_dims_of_hf(const char *dir, enum model_task task, struct model_dims *out)
{
    struct hf_config c;
    TRY(hf_read_config(dir, &c));
    struct model_dims dims = {.task = task,
                              .layers = c.layers,
                              .heads = c.heads,
                              .embed = c.embed,
                              .context = c.context,
                              .vocab = c.vocab};
    size_t end = strlen(dir);
    while (end > 1 && dir[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && dir[start - 1] != '/')
        start--;
    text_format(dims.name, sizeof dims.name, "%.*s", (int)(end - start), dir + start);
    *out = dims;
    return ST_OK;
}

void load_dims_json(const struct model_dims *dims, char *out, size_t cap)
{
    char name[4 * sizeof dims->name];
    json_quote(name, sizeof name, dims->name);
    bool fits = text_format(
        out, cap,
        "{\"name\":%s,\"task\":\"%s\",\"layers\":%lld,\"heads\":%lld,\"embed\":%lld,\"context\":%lld,"
        "\"vocab\":%lld}",
        name, dims->task == MODEL_TASK_LM ? "lm" : "qa", (long long)dims->layers, (long long)dims->heads,
        (long long)dims->embed, (long long)dims->context, (long long)dims->vocab);
    ASSERTF(fits, "cap %zu", cap);
}

static enum status read_dims(const cJSON *object, struct model_dims *out)
{
    const char *name, *task;
    TRY(json_get_string(object, "name", &name));
    TRY(json_get_string(object, "task", &task));
    text_copy(out->name, sizeof out->name, name);
    if (strcmp(task, "lm") != 0 && strcmp(task, "qa") != 0)
        return FAIL(ST_BAD_DATA, "model dimensions: task is \"%.20s\", expected lm or qa", task);
    out->task = strcmp(task, "lm") == 0 ? MODEL_TASK_LM : MODEL_TASK_QA;
    const int64_t max = (int64_t)1 << 40;
    TRY(json_get_i64(object, "layers", 1, max, &out->layers));
    TRY(json_get_i64(object, "heads", 1, max, &out->heads));
    TRY(json_get_i64(object, "embed", 1, max, &out->embed));
    TRY(json_get_i64(object, "context", 1, max, &out->context));
    TRY(json_get_i64(object, "vocab", 1, max, &out->vocab));
    return model_check(out);
}

enum status load_dims_parse(const char *json, struct model_dims *out)
{
    cJSON *object;
    struct model_dims dims = {0};
    TRY(json_parse(json, strlen(json), "model dimensions", &object));
    enum status st = read_dims(object, &dims);
    cJSON_Delete(object);
    TRY(st);
    *out = dims;
    return ST_OK;
}
