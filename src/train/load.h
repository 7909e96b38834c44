/* load — parameters and moments from files into a device's memory, and a model's dimensions as JSON
 * for checkpoints.
 *
 * Training and generating share it. Must not know what happens to the numbers afterwards, nor where
 * files were looked for. */
#ifndef CONVOY_TRAIN_LOAD_H
#define CONVOY_TRAIN_LOAD_H

#include <stddef.h>

#include "base/status.h"
#include "dev/dev.h"
#include "format/ckpt.h"
#include "format/hf.h"
#include "format/llmc.h"
#include "model/model.h"

/* Where to: f32, table->total_elems elements on stream's device; stream NULL: in this process's
 * memory; data NULL: names and shapes are checked, nothing is read. With put, values are handed
 * over piece by piece instead: for a state that does not lie in one place. */
struct load_target {
    const struct param_table *table;
    struct stream *stream;
    struct tensor data;
    /* elements of the table */
    enum status (*put)(void *arg, int64_t first, int64_t n, const float *values);
    void *arg;
};

/* load_hf — every parameter, by name. A language model's folder has no qa_outputs: those keep the
 * values they have. */
enum status load_hf(const struct load_target *to, const struct hf_model *hf);
/* load_llmc — the same from a model file of llm.c, which never has qa_outputs. */
enum status load_llmc(const struct load_target *to, const struct llmc *llmc);
/* load_ckpt — one part ("model", "optim_m", "optim_v") of a checkpoint, every tensor by name and
 * shape. */
enum status load_ckpt(const struct load_target *to, const struct ckpt *ckpt, const char *part);

/* load_ckpt_trunk — its model without qa_outputs, which keep the values they have. */
enum status load_ckpt_trunk(const struct load_target *to, const struct ckpt *ckpt);

/* load_dims_of_hf — dims of a Hugging Face folder; its name is the folder's. The task is the
 * caller's. */
enum status load_dims_of_hf(const char *dir, enum model_task task, struct model_dims *out);
/* load_dims_json — {"name":…,"task":…,"layers":…,…}; load_dims_parse reads it back, strictly. */
void load_dims_json(const struct model_dims *dims, char *out, size_t cap);
enum status load_dims_parse(const char *json, struct model_dims *out);

#endif
