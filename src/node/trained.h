/* trained — the model that MODEL (a Hugging Face folder) or CHECKPOINT_DIR names, for commands that only use
 * one. Must not know what for. */
#ifndef CONVOY_NODE_TRAINED_H
#define CONVOY_NODE_TRAINED_H

#include "base/status.h"
#include "conf/conf.h"
#include "format/ckpt.h"
#include "format/hf.h"
#include "model/model.h"
#include "train/load.h"

/* One of the two is open. */
struct trained {
    struct hf_model *hf;
    struct ckpt *ckpt;
    struct model_dims dims; /* with the task that it was trained for */
};

/* trained_open — a Hugging Face folder, a checkpoint, or the newest valid one of a run's folder, which may be
 * MODEL's value too. Fails ST_NO_INPUT: nothing named, or no valid checkpoint; ST_BAD_DATA: damaged. */
enum status trained_open(const struct conf *conf, struct trained *out);
enum status trained_load(const struct trained *trained, const struct load_target *to);
int64_t trained_step(const struct trained *trained); /* updates behind it; -1 unknown */
void trained_close(struct trained *trained);         /* accepts a zeroed one, twice */

#endif
