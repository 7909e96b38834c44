/* model_source — see model_source.h. */
#include "node/choose/model_source.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "train/weights/weights.h"

const char *model_source_hub_hint(const char *path, char *out, size_t cap)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const size_t org_n = strspn(path, plain);
    const char *name = path + org_n + (path[org_n] == '/');
    const bool is_name = path[0] != '.' && org_n > 0 && path[org_n] == '/' && name[0] != 0 &&
                         name[strspn(name, plain)] == 0;
    out[0] = 0;
    if (is_name)
        text_format(out, cap,
                    "; to use the model of that name on the Hugging Face hub, download it first "
                    "(`hf download %s --local-dir %s`), then give the folder %s",
                    path, name, name);
    return out;
}

enum status model_source_open(const struct conf *conf, struct model_source *out)
{
    const char *model = conf_text(conf, CONF_MODEL), *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    *out = (struct model_source){.ignores_tensors = conf_i64(conf, CONF_IGNORE_TENSORS) != 0};
    if (weights_are_at(model)) {
        TRY(weights_dims(model, &out->dims));
        text_copy(out->path, sizeof out->path, model);
        LOG_INFO("model %s from %s", out->dims.name, model);
        return ST_OK;
    }
    if (file_is_dir(model))
        dir = model;
    char hint[512];
    if (!*dir)
        return FAIL(ST_NO_INPUT,
                    "MODEL=%s is not a folder or a file and CHECKPOINT_DIR is empty; set one of "
                    "them to trained weights%s",
                    model, model_source_hub_hint(model, hint, sizeof hint));
    TRY(weights_checkpoint(dir, &out->ckpt, &out->dims));
    LOG_INFO("model %s from %s, step %lld", out->dims.name, ckpt_path(out->ckpt),
             (long long)model_source_step(out));
    return ST_OK;
}

enum status model_source_load(const struct model_source *source, const struct load_target *to)
{
    const struct load_file file = {.ckpt = source->ckpt, .array = "model"};
    struct load_target target = *to;
    target.ignores_tensors = source->ignores_tensors;
    return source->ckpt ? load_params(to, &file) : weights_load(source->path, &target);
}

const char *model_source_path(const struct model_source *source)
{
    return source->ckpt ? ckpt_path(source->ckpt) : source->path;
}

int64_t model_source_step(const struct model_source *source)
{
    return source->ckpt ? ckpt_meta(source->ckpt)->step : -1;
}

void model_source_close(struct model_source *source)
{
    ckpt_close(source->ckpt);
    *source = (struct model_source){.ckpt = NULL};
}
