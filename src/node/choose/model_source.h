/* model_source — finds and loads the model that MODEL or CHECKPOINT_DIR names, for commands that
 * use a model without training it. Must not know its use. */
#ifndef CONVOY_NODE_MODEL_SOURCE_H
#define CONVOY_NODE_MODEL_SOURCE_H

#include "base/file.h"
#include "base/status.h"
#include "conf/conf.h"
#include "format/ckpt.h"
#include "model/model.h"
#include "train/weights/load.h"

/* model_source_hub_hint — writes a hint to out if the missing path may be a name on the Hugging
 * Face hub such as "org/name"; else "". Returns out. */
const char *model_source_hub_hint(const char *path, char *out, size_t cap);

struct model_source {
    struct ckpt *ckpt;        /* NULL: the model is at path */
    char path[FILE_PATH_MAX]; /* a Hugging Face folder or a model file of llm.c */
    struct adapter *adapter;  /* ADAPTER, to be added to the weights; NULL: none */
    bool ignores_tensors;     /* IGNORE_TENSORS */
    struct model_dims dims;   /* dimensions; with the task for which the model was trained */
};

/* model_source_open — opens a model in another program's format, a checkpoint, or the newest valid
 * checkpoint in a run's folder. MODEL may name any of them. ADAPTER is opened, too. ST_NO_INPUT: no
 * model is named, or no checkpoint is valid. ST_BAD_DATA: the model or the adapter is damaged, or
 * they do not fit. ST_BAD_SETTING: MODEL is an adapter. */
enum status model_source_open(const struct conf *conf, struct model_source *out);
/* model_source_load — loads the parameters into *to, with the source's own ignores_tensors, and
 * adds the adapter. Errors as weights_load; ST_BAD_DATA also: the adapter was trained on other
 * weights. */
enum status model_source_load(const struct model_source *source, const struct load_target *to);
/* model_source_path — returns the path of the model or of the checkpoint that was found. */
const char *model_source_path(const struct model_source *source);
/* model_source_settings — returns the settings of the run that trained the adapter or the model, as
 * JSON; NULL: no run of this program did. */
const char *model_source_settings(const struct model_source *source);
/* model_source_step — returns the number of updates that the model has had; -1: unknown. */
int64_t model_source_step(const struct model_source *source);
/* accepts a zeroed source, and a second call */
void model_source_close(struct model_source *source);

#endif
