/* trained — see trained.h. */
#include "node/trained.h"

#include "base/file.h"
#include "base/log.h"

static enum status open_folder(const char *path, struct trained *out)
{
    struct hf_config config;
    TRY(hf_read_config(path, &config));
    TRY(load_dims_of_hf(path, config.is_qa ? MODEL_TASK_QA : MODEL_TASK_LM, &out->dims));
    TRY(hf_open(path, &out->hf));
    LOG_INFO("model %s from %s", out->dims.name, path);
    return ST_OK;
}

static enum status open_checkpoint(const char *path, struct trained *out)
{
    char manifest[FILE_PATH_MAX];
    TRY(file_join(manifest, sizeof manifest, path, "manifest.json"));
    if (file_exists(manifest))
        TRY(ckpt_open(path, NULL, &out->ckpt));
    else
        TRY(ckpt_open_newest(path, NULL, &out->ckpt));
    if (!out->ckpt)
        return FAIL(
            ST_NO_INPUT,
            "%s holds no valid checkpoint; name a checkpoint folder or a Hugging Face folder by MODEL", path);
    TRY(load_dims_parse(ckpt_meta(out->ckpt)->model_json, &out->dims));
    LOG_INFO("model %s from %s, step %lld", out->dims.name, ckpt_path(out->ckpt),
             (long long)trained_step(out));
    return ST_OK;
}

enum status trained_open(const struct conf *conf, struct trained *out)
{
    const char *model = conf_text(conf, CONF_MODEL), *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    struct trained found = {0};
    enum status st;
    if (!hf_is_folder(model) && !file_is_dir(model) && !*dir)
        return FAIL(
            ST_NO_INPUT,
            "MODEL=%s is not a folder and CHECKPOINT_DIR is empty; set one of them to trained weights",
            model);
    if (hf_is_folder(model))
        st = open_folder(model, &found);
    else
        st = open_checkpoint(file_is_dir(model) ? model : dir, &found);
    if (st != ST_OK) {
        trained_close(&found);
        return status_trace_at(__FILE__, __LINE__, st);
    }
    *out = found;
    return ST_OK;
}

enum status trained_load(const struct trained *trained, const struct load_target *to)
{
    return trained->hf ? load_hf(to, trained->hf) : load_ckpt(to, trained->ckpt, "model");
}

int64_t trained_step(const struct trained *trained)
{
    return trained->ckpt ? ckpt_meta(trained->ckpt)->step : -1;
}

void trained_close(struct trained *trained)
{
    hf_close(trained->hf);
    ckpt_close(trained->ckpt);
    *trained = (struct trained){0};
}
