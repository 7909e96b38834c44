/* load — see load.h. */
#include "train/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/assert.h"
#include "base/text.h"
#include "format/hf_config.h"

#define BUFFER_ELEMS ((int64_t)1 << 18)

/* One parameter in a file: plain, or of llm.c; neither: the file has none. */
struct source {
    const struct safetensors_entry *plain;
    bool is_llmc;
    struct llmc_entry llmc;
};

static void read_piece(const struct source *source, int64_t first, int64_t n, float *out)
{
    if (source->is_llmc)
        llmc_to_f32(&source->llmc, first, n, out);
    else
        safetensors_to_f32(source->plain, first, n, out);
}

/* plain_f32 — true if the file's bytes are the bytes in memory, so they are only copied. */
static bool plain_f32(const struct source *source)
{
    return !source->is_llmc && source->plain->dtype == DTYPE_F32;
}

/* copy_source — f32 is copied directly, with all threads of the device. Other types and layouts are
 * converted in a small buffer, in whole rows where they fit. */
static enum status copy_source(const struct load_target *to, const struct param *p,
                               const struct source *source, float *buffer)
{
    int64_t elems = source->is_llmc ? source->llmc.elems : source->plain->elems,
            row = p->dim[p->dims_n - 1];
    int64_t most = row < BUFFER_ELEMS ? BUFFER_ELEMS / row * row : BUFFER_ELEMS;
    ASSERTF(elems == p->elems, "%s: %lld elements, expected %lld", p->name, (long long)elems,
            (long long)p->elems);
    if (!to->put && to->stream && plain_f32(source)) {
        TRY(dev_copy(to->stream, tensor_at(to->data, p->offset).data, source->plain->data,
                     source->plain->bytes));
        return dev_sync(to->stream);
    }
    for (int64_t first = 0; first < p->elems; first += most) {
        int64_t n = p->elems - first < most ? p->elems - first : most;
        if (to->put) {
            read_piece(source, first, n, buffer);
            TRY(to->put(to->arg, p->offset + first, n, buffer));
            continue;
        }
        void *out = tensor_at(to->data, p->offset + first).data;
        if (!to->stream) {
            read_piece(source, first, n, out);
            continue;
        }
        read_piece(source, first, n, buffer);
        TRY(dev_copy(to->stream, out, buffer, (size_t)n * sizeof *buffer));
        TRY(dev_sync(to->stream));
    }
    return ST_OK;
}

typedef enum status load_find(const void *file, const char *part, const struct param *p,
                              struct source *out);

/* is_head — true for the head of question answering, which a language model lacks. */
static bool is_head(const struct param *p) { return text_starts(p->name, "qa_outputs."); }

static enum status find_hf(const void *file, const char *part, const struct param *p,
                           struct source *out)
{
    (void)part;
    const struct hf_model *hf = file;
    if (is_head(p) && !hf_has(hf, p->name))
        return ST_OK;
    return hf_tensor(hf, p->name, p->dims_n, p->dim, &out->plain);
}

static enum status find_llmc(const void *file, const char *part, const struct param *p,
                             struct source *out)
{
    (void)part;
    out->is_llmc = !is_head(p);
    return out->is_llmc ? llmc_tensor(file, p->name, p->dims_n, p->dim, &out->llmc) : ST_OK;
}

static enum status find_ckpt(const void *file, const char *part, const struct param *p,
                             struct source *out)
{
    return ckpt_tensor(file, part, p->name, p->dims_n, p->dim, &out->plain);
}

static enum status find_trunk(const void *file, const char *part, const struct param *p,
                              struct source *out)
{
    return is_head(p) ? ST_OK : find_ckpt(file, part, p, out);
}

static enum status load_all(const struct load_target *to, load_find *find, const void *file,
                            const char *part)
{
    float *buffer = malloc(BUFFER_ELEMS * sizeof *buffer);
    if (!buffer)
        return FAIL(ST_RETRY,
                    "out of memory: a buffer for loading; use a machine with more memory");
    enum status st = ST_OK;
    for (int i = 0; i < to->table->params_n; i++) {
        const struct param *p = &to->table->param[i];
        struct source source = {.plain = NULL};
        TRY_OR(find(file, part, p, &source), out_free);
        if (!to->data.data && !to->put)
            continue;
        if (source.plain || source.is_llmc)
            TRY_OR(copy_source(to, p, &source, buffer), out_free);
        else
            LOG_INFO(
                "%s is missing in the model that weights come from: it keeps its initial value",
                p->name);
    }
out_free:
    free(buffer);
    return st;
}

enum status load_hf(const struct load_target *to, const struct hf_model *hf)
{
    return load_all(to, find_hf, hf, NULL);
}

enum status load_llmc(const struct load_target *to, const struct llmc *llmc)
{
    return load_all(to, find_llmc, llmc, NULL);
}

enum status load_ckpt(const struct load_target *to, const struct ckpt *ckpt, const char *part)
{
    return load_all(to, find_ckpt, ckpt, part);
}

enum status load_ckpt_trunk(const struct load_target *to, const struct ckpt *ckpt)
{
    return load_all(to, find_trunk, ckpt, "model");
}

enum status load_dims_of_hf(const char *dir, enum model_task task, struct model_dims *out)
{
    struct hf_config c;
    TRY(hf_read_config(dir, &c));
    if (c.arch != HF_ARCH_GPT2)
        return FAIL(ST_BAD_SETTING, "%s holds a %s; this program computes GPT-2 alone", dir,
                    hf_config_class(&c));
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
    bool fits = text_format(out, cap,
                            "{\"name\":%s,\"task\":\"%s\",\"layers\":%lld,\"heads\":%lld,\"embed\":"
                            "%lld,\"context\":%lld,\"vocab\":%lld}",
                            name, dims->task == MODEL_TASK_LM ? "lm" : "qa",
                            (long long)dims->layers, (long long)dims->heads, (long long)dims->embed,
                            (long long)dims->context, (long long)dims->vocab);
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
