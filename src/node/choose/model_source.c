/* model_source — see model_source.h. */
#include "node/choose/model_source.h"

#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "train/weights/adapter.h"
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
                    "; to use the model of that name on the Hugging Face hub, set hf://%s", path);
    return out;
}

static enum status open_model(const struct conf *conf, struct model_source *out)
{
    const char *model = conf_text(conf, CONF_MODEL), *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    if (weights_are_at(model)) {
        TRY(weights_dims(model, &out->dims));
        text_copy(out->path, sizeof out->path, model);
        LOG_INFO("model %s from %s", out->dims.name, model);
        return ST_OK;
    }
    if (file_is_dir(model))
        dir = model;
    char hint[512];
    if (!*dir && conf_text(conf, CONF_ADAPTER)[0])
        return FAIL(ST_NO_INPUT,
                    "ADAPTER=%s is added to a model, and MODEL=%s%s is not a folder or a file; set "
                    "MODEL to the model with which the adapter was trained",
                    conf_text(conf, CONF_ADAPTER), model,
                    conf_is_set(conf, CONF_MODEL) ? "" : " (the default)");
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

/* check_unused_adapter — refuses a CHECKPOINT_DIR that holds an adapter, which MODEL leaves unused:
 * it is meant as ADAPTER. */
static enum status check_unused_adapter(const struct conf *conf)
{
    const char *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    struct model_dims dims = {0};
    const char *model = conf_text(conf, CONF_MODEL);
    if (!(weights_are_at(model) || file_is_dir(model)) || !dir[0] || !weights_are_ckpt(dir))
        return ST_OK;
    if (weights_dims(dir, &dims) != ST_OK)
        status_clear();
    if (dims.adapter.r == 0)
        return ST_OK;
    return FAIL(ST_BAD_SETTING,
                "CHECKPOINT_DIR=%s holds an adapter, which would not be used; set ADAPTER=%s", dir,
                dir);
}

enum status model_source_open(const struct conf *conf, struct model_source *out)
{
    const char *adapter = conf_text(conf, CONF_ADAPTER);
    *out = (struct model_source){.ignores_tensors = conf_i64(conf, CONF_IGNORE_TENSORS) != 0};
    TRY(open_model(conf, out));
    if (out->dims.adapter.r > 0)
        return FAIL(ST_BAD_SETTING,
                    "%s is a checkpoint of an adapter, not of a model; set MODEL to the model with "
                    "which it was trained, and ADAPTER=%s",
                    ckpt_path(out->ckpt), ckpt_path(out->ckpt));
    if (!adapter[0])
        return check_unused_adapter(conf);
    TRY(adapter_open(adapter, &out->dims, &out->adapter));
    LOG_INFO("adapter from %s", adapter_path(out->adapter));
    return ST_OK;
}

enum status model_source_load(const struct model_source *source, const struct load_target *to)
{
    const struct load_file file = {.ckpt = source->ckpt, .array = "model"};
    struct load_target target = *to;
    char sha256[MODEL_SHA256_MAX];
    target.ignores_tensors = source->ignores_tensors;
    if (source->adapter) {
        TRY(adapter_merge(source->adapter, &target.merge));
        target.sum = load_sum_open();
    }
    const enum status st =
        source->ckpt ? load_params(&target, &file) : weights_load(source->path, &target);
    load_sum_close(target.sum, sha256);
    return st == ST_OK && source->adapter
               ? adapter_check(source->adapter, sha256, model_source_path(source))
               : st;
}

const char *model_source_settings(const struct model_source *source)
{
    const struct ckpt *ckpt = source->adapter ? adapter_ckpt(source->adapter) : source->ckpt;
    return ckpt ? ckpt_meta(ckpt)->settings_json : NULL;
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
    adapter_close(source->adapter);
    *source = (struct model_source){.ckpt = NULL};
}
