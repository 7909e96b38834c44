/* weights — see weights.h. */
#include "train/weights/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "format/hf.h"
#include "format/llmc.h"
#include "train/weights/outline.h"
#include "train/weights/peft.h"

bool weights_are_at(const char *path)
{
    return hf_is_folder(path) || llmc_is_file(path) || outline_is_at(path);
}

/* is_one — Returns true for a checkpoint itself, false for a folder of checkpoints. */
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

void weights_finite_add(struct weights_finite *finite, const float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]) && finite->bad_n++ == 0)
            finite->first_bad = finite->seen_n + i;
    finite->seen_n += n;
}

enum status weights_finite_check(const struct weights_finite *finite, const char *path,
                                 const char *name)
{
    if (finite->bad_n == 0)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: %" PRId64 " of the %" PRId64
                " elements of %s are not finite, the first is element %" PRId64
                "; the weights are damaged, or their training diverged: use an earlier checkpoint",
                path, finite->bad_n, finite->seen_n, name, finite->first_bad);
}

/* open_ckpt — Opens the checkpoint at path, or the newest in it. is_lazy: contents are not
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
    if (*out)
        return ST_OK;
    int n = 0;
    TRY(ckpt_count(path, &n));
    if (n > 0)
        return FAIL(ST_BAD_DATA, "%s holds %d checkpoint%s, none of them valid; see the log", path,
                    n, n == 1 ? "" : "s");
    if (hf_is_folder(path))
        return FAIL(ST_NO_INPUT,
                    "%s holds no valid checkpoint but a model made elsewhere; use it as MODEL, or "
                    "make a checkpoint of it with `convoy import`",
                    path);
    if (peft_is_folder(path))
        return peft_refuse(path);
    return FAIL(ST_NO_INPUT,
                "%s holds no valid checkpoint; name a checkpoint, or the folder of a run", path);
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

enum status weights_checkpoint(const char *path, struct ckpt **out, struct model_dims *dims_out)
{
    return open_with_dims(path, false, out, dims_out);
}

enum status weights_peek(const char *path, struct ckpt **out)
{
    struct model_dims dims;
    return open_with_dims(path, true, out, &dims);
}

enum status weights_dims(const char *path, struct model_dims *out)
{
    struct hf_config config;
    if (llmc_is_file(path) && !gguf_model_is_file(path)) {
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
    if (weights_are_ckpt(path)) {
        struct ckpt *ckpt;
        TRY(open_with_dims(path, true, &ckpt, out));
        ckpt_close(ckpt);
        return ST_OK;
    }
    if (outline_is_at(path)) {
        struct outline outline;
        TRY(outline_read(path, &outline));
        *out = outline.dims;
        return ST_OK;
    }
    TRY(hf_read_config(path, &config));
    load_dims_of_config(&config, path, config.is_qa ? MODEL_TASK_QA : MODEL_TASK_LM, out);
    return model_check(out);
}

/* An open model: one of the four, and the same in the form of load.h. */
struct weights {
    struct hf_model *hf;
    struct gguf_model *gguf;
    struct llmc_file *llmc;
    struct ckpt *ckpt;
    struct load_file file;
};

static enum status open_any(struct weights *weights, const char *path, bool ignores_tensors)
{
    if (gguf_model_is_file(path))
        return gguf_model_open(path, &weights->gguf);
    if (llmc_is_file(path))
        return llmc_open(path, &weights->llmc);
    if (weights_are_ckpt(path)) {
        struct model_dims dims;
        TRY(open_with_dims(path, false, &weights->ckpt, &dims));
        LOG_INFO("checkpoint %s, step %" PRId64, ckpt_path(weights->ckpt),
                 ckpt_meta(weights->ckpt)->step);
        weights->file.array = "model";
        weights->file.is_headless = dims.task != MODEL_TASK_QA;
        return ST_OK;
    }
    /* A folder with more layers than its config.json is another model. */
    struct hf_config config;
    TRY(hf_read_config(path, &config));
    TRY(hf_open(path, &config, &weights->hf));
    TRY(hf_check_layers(weights->hf, config.layers));
    return ignores_tensors ? ST_OK : hf_check_names(weights->hf);
}

enum status weights_open(const char *path, const struct param_table *table, bool ignores_tensors,
                         struct weights **out)
{
    struct weights *weights = calloc(1, sizeof *weights);
    if (!weights)
        return FAIL(ST_RETRY, "out of memory: model %s", path);
    enum status st = open_any(weights, path, ignores_tensors);
    weights->file.hf = weights->hf;
    weights->file.gguf = weights->gguf;
    weights->file.llmc = weights->llmc;
    weights->file.ckpt = weights->ckpt;
    struct load_entry entry;
    for (int i = 0; st == ST_OK && i < table->params_n; i++)
        st = load_find(&weights->file, &table->param[i], &entry);
    if (st == ST_OK)
        *out = weights;
    else
        weights_close(weights);
    return st;
}

const struct load_file *weights_load_file(const struct weights *weights) { return &weights->file; }

void weights_close(struct weights *weights)
{
    if (!weights)
        return;
    hf_close(weights->hf);
    gguf_model_close(weights->gguf);
    llmc_close(weights->llmc);
    ckpt_close(weights->ckpt);
    free(weights);
}

enum status weights_load(const char *path, const struct load_target *to)
{
    struct weights *weights;
    TRY(weights_open(path, to->table, to->ignores_tensors, &weights));
    enum status st = load_params(to, &weights->file);
    weights_close(weights);
    return st;
}
