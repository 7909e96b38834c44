/* model_source — the model that MODEL (a Hugging Face folder or a model file of llm.c) or
 * CHECKPOINT_DIR names, for commands that only use one. Must not know what for. */
#ifndef CONVOY_NODE_MODEL_SOURCE_H
#define CONVOY_NODE_MODEL_SOURCE_H

#include "base/file.h"
#include "base/status.h"
#include "conf/conf.h"
#include "format/ckpt.h"
#include "model/model.h"
#include "train/load.h"

struct model_source {
    struct ckpt *ckpt;        /* NULL: path */
    char path[FILE_PATH_MAX]; /* a model made elsewhere */
    struct model_dims dims;   /* with the task that it was trained for */
};

/* model_source_open — a model made elsewhere, a checkpoint, or the newest valid one of a run's
 * folder, which may be MODEL's value too. Fails ST_NO_INPUT: nothing named, or no valid checkpoint;
 * ST_BAD_DATA: damaged. */
enum status model_source_open(const struct conf *conf, struct model_source *out);
enum status model_source_load(const struct model_source *source, const struct load_target *to);
/* of the model or the checkpoint, as found */
const char *model_source_path(const struct model_source *source);
int64_t model_source_step(const struct model_source *source); /* updates behind it; -1 unknown */
void model_source_close(struct model_source *source);         /* accepts a zeroed one, twice */

#endif
