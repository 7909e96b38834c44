/* adapter — opens the adapter at a user's path: a PEFT folder, a checkpoint of a run with LORA, or
 * a folder of such checkpoints. Loads its tensors, or adds it to the model's weights while they
 * are read.
 *
 * It must not know settings, nor how the numbers are used. */
#ifndef CONVOY_TRAIN_ADAPTER_H
#define CONVOY_TRAIN_ADAPTER_H

#include "train/weights/load.h"

struct adapter;
/* adapter_open — opens an adapter of the model with dimensions `base`. ST_NO_INPUT: there is none.
 * ST_BAD_DATA: it is damaged, has tensors that belong to no linear layer of the model's blocks,
 * lacks some, or one has another shape; the message has file, name and values. */
enum status adapter_open(const char *path, const struct model_dims *base, struct adapter **out);
void adapter_close(struct adapter *adapter); /* accepts NULL */
/* adapter_dims — returns rank, alpha, targets, and the sum of its model ("" for PEFT, which records
 * none), of the adapter at a user's path; also of a folder with the outline of an adapter on node 0
 * (outline.h). Fails like adapter_open. */
enum status adapter_dims(const char *path, const struct model_dims *base,
                         struct model_adapter *out);
/* adapter_of — for tests: returns the values of adapter_dims. */
struct model_adapter adapter_of(const struct adapter *adapter);
/* adapter_check — fails with ST_BAD_DATA if the adapter has a number that is not finite, or was
 * trained on weights with another sum. model: the path of the weights with this sum. */
enum status adapter_check(struct adapter *adapter, const char *sha256, const char *model);
/* adapter_path — returns the path of the folder or checkpoint that was found. */
const char *adapter_path(const struct adapter *adapter);
/* adapter_ckpt — returns its checkpoint; NULL: it is a PEFT folder. */
const struct ckpt *adapter_ckpt(const struct adapter *adapter);
/* adapter_load_file — returns the tensors for load_params; valid until adapter_close. */
const struct load_file *adapter_load_file(const struct adapter *adapter);
/* adapter_merge — reads the adapter, so that load_params adds it to the model's weights: set the
 * result as load_target.merge. It is valid until adapter_close. */
enum status adapter_merge(struct adapter *adapter, const struct load_merge **out);

#endif
