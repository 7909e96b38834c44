/* weights — see weights.h. */
#include "train/weights.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "format/hf.h"
#include "format/llmc.h"

bool weights_are_at(const char *path) { return hf_is_folder(path) || llmc_is_file(path); }

/* is_one — true for a checkpoint itself, false for a folder of them. */
static bool is_one(const char *path)
{
    char manifest[FILE_PATH_MAX];
    bool has_name = file_join(manifest, sizeof manifest, path, "manifest.json") == ST_OK;
    status_clear();
    return has_name && file_exists(manifest);
}

bool weights_are_ckpt(const char *path)
{
    int n = 0;
    if (!file_is_dir(path) || hf_is_folder(path))
        return false;
    bool is_counted = ckpt_count(path, &n) == ST_OK;
    status_clear(); /* the next open reports it */
    return is_one(path) || (is_counted && n > 0);
}

static enum status llmc_dims(const char *path, struct model_dims *out)
{
    struct llmc_file *file;
    TRY(llmc_open(path, &file));
    const struct llmc *llmc = llmc_of(file);
    const char *slash = strrchr(path, '/');
    *out = (struct model_dims){.task = MODEL_TASK_LM,
                               .layers = llmc->layers,
                               .heads = llmc->heads,
                               .embed = llmc->embed,
                               .context = llmc->context,
                               .vocab = llmc->vocab};
    text_copy(out->name, sizeof out->name, slash ? slash + 1 : path);
    llmc_close(file);
    return ST_OK;
}

enum status weights_check_finite(const char *path, const struct safetensors_entry *entry)
{
    float chunk[4096];
    int64_t bad_n = 0, first = 0;
    for (int64_t at = 0, n; at < entry->elems; at += n) {
        n = entry->elems - at < (int64_t)(sizeof chunk / sizeof *chunk)
                ? entry->elems - at
                : (int64_t)(sizeof chunk / sizeof *chunk);
        safetensors_to_f32(entry, at, n, chunk);
        for (int64_t i = 0; i < n; i++) {
            if (!isfinite(chunk[i]) && bad_n++ == 0)
                first = at + i;
        }
    }
    if (bad_n == 0)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: %" PRId64 " of the %" PRId64
                " elements of %s are not finite, the first is element %" PRId64
                "; the weights are damaged, or their training diverged: use an earlier checkpoint",
                path, bad_n, entry->elems, entry->name, first);
}

/* load_folder — a folder that holds more layers than its config.json is not the model it claims to
 * be. */
static enum status load_folder(const char *path, const struct load_target *to)
{
    struct hf_config config;
    struct hf_model *hf;
    TRY(hf_read_config(path, &config));
    TRY(hf_open(path, &config, &hf));
    enum status st = hf_check_layers(hf, config.layers);
    if (st == ST_OK)
        st = load_hf(to, hf);
    hf_close(hf);
    return st;
}

static enum status load_gguf_file(const char *path, const struct load_target *to)
{
    struct gguf_model *model;
    TRY(gguf_model_open(path, &model));
    enum status st = load_gguf(to, model);
    gguf_model_close(model);
    return st;
}

static enum status load_llmc_file(const char *path, const struct load_target *to)
{
    struct llmc_file *file;
    TRY(llmc_open(path, &file));
    enum status st = load_llmc(to, llmc_of(file));
    llmc_close(file);
    return st;
}

/* fail_none — none is valid: ST_BAD_DATA if there are any, else ST_NO_INPUT. */
static enum status fail_none(const char *path)
{
    int n = 0;
    TRY(ckpt_count(path, &n));
    if (n > 0)
        return FAIL(ST_BAD_DATA, "%s holds %d checkpoint%s, none of them valid; see the log", path,
                    n, n == 1 ? "" : "s");
    return FAIL(ST_NO_INPUT,
                "%s holds no valid checkpoint; name a checkpoint, or the folder of a run", path);
}

/* open_ckpt — opens the checkpoint at path, or the newest in it. is_lazy: contents are not
 * verified. */
static enum status open_ckpt(const char *path, bool is_lazy, struct ckpt **out)
{
    *out = NULL;
    if (!file_exists(path))
        return FAIL(ST_NO_INPUT, "%s does not exist; name a checkpoint, or the folder of a run",
                    path);
    if (is_one(path))
        TRY(is_lazy ? ckpt_open_lazy(path, out) : ckpt_open(path, NULL, out));
    else
        TRY(is_lazy ? ckpt_find_newest(path, INT64_MAX, NULL, out)
                    : ckpt_open_newest(path, NULL, out));
    return *out ? ST_OK : fail_none(path);
}

static enum status open_with_dims(const char *path, bool is_lazy, struct ckpt **out,
                                  struct model_dims *dims_out)
{
    struct ckpt *ckpt;
    TRY(open_ckpt(path, is_lazy, &ckpt));
    enum status st = load_dims_parse(ckpt_meta(ckpt)->model_json, dims_out);
    if (st == ST_OK)
        *out = ckpt;
    else
        ckpt_close(ckpt);
    return st;
}

static enum status ckpt_dims(const char *path, struct model_dims *out)
{
    struct ckpt *ckpt;
    TRY(open_with_dims(path, true, &ckpt, out));
    ckpt_close(ckpt);
    return ST_OK;
}

static enum status load_ckpt_at(const char *path, const struct load_target *to)
{
    struct ckpt *ckpt;
    struct model_dims dims;
    TRY(open_with_dims(path, false, &ckpt, &dims));
    LOG_INFO("checkpoint %s, step %" PRId64, ckpt_path(ckpt), ckpt_meta(ckpt)->step);
    enum status st =
        dims.task == MODEL_TASK_QA ? load_ckpt(to, ckpt, "model") : load_ckpt_trunk(to, ckpt);
    ckpt_close(ckpt);
    return st;
}

enum status weights_checkpoint(const char *path, struct ckpt **out, struct model_dims *dims_out)
{
    return open_with_dims(path, false, out, dims_out);
}

enum status weights_peek(const char *path, struct ckpt **out)
{
    struct model_dims dims;
    return open_with_dims(path, true, out, &dims);
}

enum status weights_file(const char *path, char *out, size_t cap)
{
    struct ckpt *ckpt;
    if (hf_is_folder(path))
        return file_join(out, cap, path, "model.safetensors");
    if (!weights_are_ckpt(path)) {
        text_copy(out, cap, path);
        return ST_OK;
    }
    TRY(open_ckpt(path, true, &ckpt));
    enum status st = file_join(out, cap, ckpt_path(ckpt), "manifest.json");
    ckpt_close(ckpt);
    return st;
}

enum status weights_dims(const char *path, struct model_dims *out)
{
    struct hf_config config;
    if (llmc_is_file(path) && !gguf_model_is_file(path))
        return llmc_dims(path, out);
    if (weights_are_ckpt(path))
        return ckpt_dims(path, out);
    TRY(hf_read_config(path, &config));
    load_dims_of_config(&config, path, config.is_qa ? MODEL_TASK_QA : MODEL_TASK_LM, out);
    return model_check(out);
}

enum status weights_load(const char *path, const struct load_target *to)
{
    if (gguf_model_is_file(path))
        return load_gguf_file(path, to);
    if (llmc_is_file(path))
        return load_llmc_file(path, to);
    if (weights_are_ckpt(path))
        return load_ckpt_at(path, to);
    return load_folder(path, to);
}
