/* weights — opens a model by the path that a user gives: a Hugging Face folder, a GGUF file, a
 * model file of llm.c, a checkpoint, or a folder of checkpoints (the newest valid one).
 *
 * It must not know settings, nor how the numbers are used. */
#ifndef CONVOY_TRAIN_WEIGHTS_H
#define CONVOY_TRAIN_WEIGHTS_H

#include <stdbool.h>

#include "base/status.h"
#include "format/ckpt.h"
#include "model/model.h"
#include "train/weights/load.h"

/* weights_are_at — returns true for a folder with a config.json, for a regular file, and for a
 * folder with the outline of a model on node 0 (outline.h). */
bool weights_are_at(const char *path);
/* weights_are_ckpt — returns true for a checkpoint, and for a folder of checkpoints. */
bool weights_are_ckpt(const char *path);
/* weights_dims — reads the dimensions and task of the model; dims.name becomes the name of the
 * folder or file. */
enum status weights_dims(const char *path, struct model_dims *out);
/* Elements of one tensor that are not finite, counted while it is read from its beginning. */
struct weights_finite {
    int64_t seen_n, bad_n, first_bad;
};
/* weights_finite_add — counts the next n values of the tensor. */
void weights_finite_add(struct weights_finite *finite, const float *values, int64_t n);
/* weights_finite_check — fails with ST_BAD_DATA if any elements are not finite, with their number.
 * Call it after the last element. path and name are for the message. */
enum status weights_finite_check(const struct weights_finite *finite, const char *path,
                                 const char *name);

struct weights; /* an open model */
/* weights_open — opens any of these models. None of its parameters is read yet, except that a
 * checkpoint is verified. The table lists the parameters that load_find looks for. ignores_tensors:
 * as in struct load_target. Errors as weights_load. */
enum status weights_open(const char *path, const struct param_table *table, bool ignores_tensors,
                         struct weights **out);
/* weights_load_file — returns the model for load_find; valid until weights_close. */
const struct load_file *weights_load_file(const struct weights *weights);
void weights_close(struct weights *weights); /* accepts NULL */
/* weights_load — loads every parameter by name. A language model has no qa_outputs; those keep
 * their values. ST_BAD_DATA: a parameter is missing or has another shape, or a Hugging Face folder
 * holds more layers than its config.json, or tensors that do not belong to the model
 * (to->ignores_tensors: these are left out). A checkpoint is verified: a damaged one is
 * ST_BAD_DATA, or in a folder of checkpoints the one before it is used. */
enum status weights_load(const char *path, const struct load_target *to);
/* weights_checkpoint — opens the checkpoint at path, or the newest valid one in the folder.
 * ST_NO_INPUT: none. ST_BAD_DATA: all are damaged. ST_BAD_SETTING: the folder is an adapter of
 * PEFT. The caller closes it. */
enum status weights_checkpoint(const char *path, struct ckpt **out, struct model_dims *dims_out);
/* weights_peek — does the same without reading the tensors: damage is not noticed. */
enum status weights_peek(const char *path, struct ckpt **out);

#endif
