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

enum status weights_dims(const char *path, struct model_dims *out)
{
    struct hf_config config;
    if (llmc_is_file(path))
        return llmc_dims(path, out);
    TRY(hf_read_config(path, &config));
    return load_dims_of_hf(path, config.is_qa ? MODEL_TASK_QA : MODEL_TASK_LM, out);
}

enum status weights_check_finite(const char *path, const struct safetensors_entry *entry)
{
    float piece[4096];
    int64_t bad_n = 0, first = 0;
    for (int64_t at = 0, n; at < entry->elems; at += n) {
        n = entry->elems - at < (int64_t)(sizeof piece / sizeof *piece) ? entry->elems - at
                                                                       : (int64_t)(sizeof piece / sizeof *piece);
        safetensors_to_f32(entry, at, n, piece);
        for (int64_t i = 0; i < n; i++) {
            if (!isfinite(piece[i]) && bad_n++ == 0)
                first = at + i;
        }
    }
    if (bad_n == 0)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: %" PRId64 " of the %" PRId64 " elements of %s are not finite, the first is element %" PRId64
                "; the weights are damaged, or their training diverged: use an earlier checkpoint",
                path, bad_n, entry->elems, entry->name, first);
}

/* check_layers — the folder's own: one that holds more than its config says is not the model that it says. */
static enum status check_layers(const char *path, const struct hf_model *hf)
{
    struct hf_config config;
    TRY(hf_read_config(path, &config));
    return hf_check_layers(hf, config.layers);
}

static enum status load_llmc_file(const char *path, const struct load_target *to)
{
    struct llmc_file *file;
    TRY(llmc_open(path, &file));
    enum status st = load_llmc(to, llmc_of(file));
    llmc_close(file);
    return st;
}

enum status weights_load(const char *path, const struct load_target *to)
{
    struct hf_model *hf;
    if (llmc_is_file(path))
        return load_llmc_file(path, to);
    TRY(hf_open(path, &hf));
    enum status st = check_layers(path, hf);
    if (st == ST_OK)
        st = load_hf(to, hf);
    hf_close(hf);
    return st;
}

enum status weights_checkpoint(const char *path, struct ckpt **out, struct model_dims *dims_out)
{
    char manifest[FILE_PATH_MAX];
    struct ckpt *ckpt = NULL;
    if (!file_exists(path))
        return FAIL(ST_NO_INPUT, "%s is not there; name a checkpoint, or the folder of a run", path);
    TRY(file_join(manifest, sizeof manifest, path, "manifest.json"));
    if (file_exists(manifest))
        TRY(ckpt_open(path, NULL, &ckpt));
    else
        TRY(ckpt_open_newest(path, NULL, &ckpt));
    if (!ckpt)
        return FAIL(ST_NO_INPUT, "%s holds no valid checkpoint; name a checkpoint, or the folder of a run",
                    path);
    enum status st = load_dims_parse(ckpt_meta(ckpt)->model_json, dims_out);
    if (st != ST_OK) {
        ckpt_close(ckpt);
        return st;
    }
    *out = ckpt;
    return ST_OK;
}
