/* trained — see trained.h. */
#include "node/trained.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "train/weights.h"

static enum status open_elsewhere(const char *path, struct trained *out)
{
    TRY(weights_dims(path, &out->dims));
    text_copy(out->path, sizeof out->path, path);
    LOG_INFO("model %s from %s", out->dims.name, path);
    return ST_OK;
}

static enum status open_checkpoint(const char *path, struct trained *out)
{
    TRY(weights_checkpoint(path, &out->ckpt, &out->dims));
    LOG_INFO("model %s from %s, step %lld", out->dims.name, ckpt_path(out->ckpt),
             (long long)trained_step(out));
    return ST_OK;
}

enum status trained_open(const struct conf *conf, struct trained *out)
{
    const char *model = conf_text(conf, CONF_MODEL), *dir = conf_text(conf, CONF_CHECKPOINT_DIR);
    *out = (struct trained){.ckpt = NULL};
    if (weights_are_at(model))
        return open_elsewhere(model, out);
    if (file_is_dir(model))
        dir = model;
    if (!*dir)
        return FAIL(ST_NO_INPUT,
                    "MODEL=%s is not a folder or a file and CHECKPOINT_DIR is empty; set one of "
                    "them to trained weights",
                    model);
    return open_checkpoint(dir, out);
}

enum status trained_load(const struct trained *trained, const struct load_target *to)
{
    return trained->ckpt ? load_ckpt(to, trained->ckpt, "model") : weights_load(trained->path, to);
}

const char *trained_path(const struct trained *trained)
{
    return trained->ckpt ? ckpt_path(trained->ckpt) : trained->path;
}

int64_t trained_step(const struct trained *trained)
{
    return trained->ckpt ? ckpt_meta(trained->ckpt)->step : -1;
}

void trained_close(struct trained *trained)
{
    ckpt_close(trained->ckpt);
    *trained = (struct trained){.ckpt = NULL};
}
