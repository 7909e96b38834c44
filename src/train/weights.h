/* weights — models that others trained, and checkpoints of ours, by the path a user gives.
 *
 * A model made elsewhere is a Hugging Face folder or an llm.c model file; a checkpoint is one
 * folder, or the newest of several; the rooms above need not know which. Must not know settings,
 * nor what becomes of the numbers. */
#ifndef CONVOY_TRAIN_WEIGHTS_H
#define CONVOY_TRAIN_WEIGHTS_H

#include <stdbool.h>

#include "base/status.h"
#include "format/ckpt.h"
#include "model/model.h"
#include "train/load.h"

/* weights_are_at — is there a folder with a config.json, or a regular file? */
bool weights_are_at(const char *path);
/* weights_are_ckpt — is it a checkpoint of ours, or a folder of some? */
bool weights_are_ckpt(const char *path);
/* weights_file — a file with first bytes that tell two models apart. */
enum status weights_file(const char *path, char *out, size_t cap);
/* weights_dims — dimensions and task as the model says, of all three; its name is the folder's or
 * the file's. */
enum status weights_dims(const char *path, struct model_dims *out);
/* weights_check_finite — ST_BAD_DATA: with how many elements of the tensor are not finite. path is
 * for the message. */
enum status weights_check_finite(const char *path, const struct safetensors_entry *entry);
/* weights_load — every parameter, by name. ST_BAD_DATA: one is missing or of another shape; a
 * Hugging Face folder holds layers beyond those of its config.json. A language model has no
 * qa_outputs: those keep the values they have. A checkpoint is verified as for resuming: a damaged
 * one is ST_BAD_DATA, or passed over for the one before where path is the folder of a run. */
enum status weights_load(const char *path, const struct load_target *to);
/* weights_checkpoint — the checkpoint at path, or the newest valid one in the folder at path;
 * ST_NO_INPUT: none, ST_BAD_DATA: all are damaged. The caller closes it. */
enum status weights_checkpoint(const char *path, struct ckpt **out, struct model_dims *dims_out);

#endif
