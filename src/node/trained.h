/* trained — the model that MODEL (a Hugging Face folder or a model file of llm.c) or CHECKPOINT_DIR
 * names, for commands that only use one. Must not know what for. */
#ifndef CONVOY_NODE_TRAINED_H
#define CONVOY_NODE_TRAINED_H

#include "base/file.h"
#include "base/status.h"
#include "conf/conf.h"
#include "format/ckpt.h"
#include "model/model.h"
#include "train/load.h"

struct trained {
    struct ckpt *ckpt;        /* NULL: path */
    char path[FILE_PATH_MAX]; /* a model made elsewhere */
    struct model_dims dims;   /* with the task that it was trained for */
};

/* trained_open — a model made elsewhere, a checkpoint, or the newest valid one of a run's folder,
 * which may be MODEL's value too. Fails ST_NO_INPUT: nothing named, or no valid checkpoint;
 * ST_BAD_DATA: damaged. */
enum status trained_open(const struct conf *conf, struct trained *out);
enum status trained_load(const struct trained *trained, const struct load_target *to);
/* of the model or the checkpoint, as found */
const char *trained_path(const struct trained *trained);
int64_t trained_step(const struct trained *trained); /* updates behind it; -1 unknown */
void trained_close(struct trained *trained);         /* accepts a zeroed one, twice */

#endif
