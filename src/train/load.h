/* load — reads parameters and moments from files into a device's memory; writes and parses the
 * model's dimensions as JSON.
 *
 * For training and generation. It must not know what happens to the numbers afterwards, nor how a
 * file was found. */
#ifndef CONVOY_TRAIN_LOAD_H
#define CONVOY_TRAIN_LOAD_H

#include <stddef.h>

#include "base/status.h"
#include "dev/dev.h"
#include "format/ckpt.h"
#include "format/gguf_model.h"
#include "format/hf.h"
#include "format/llmc.h"
#include "model/model.h"

/* The target of a load: table->total_elems f32 elements on stream's device. stream NULL: in host
 * memory. data NULL: names and shapes are checked and nothing is read. With put, values are passed
 * to it range by range instead, for a state that is sharded or otherwise not one array. */
struct load_target {
    const struct param_table *table;
    struct stream *stream;
    struct tensor data;
    /* range of the table's elements */
    enum status (*put)(void *arg, int64_t first, int64_t n, const float *values);
    void *arg;
};

/* load_hf — loads every parameter by name. A language model's folder has no qa_outputs; those keep
 * their values. */
enum status load_hf(const struct load_target *to, const struct hf_model *hf);
/* load_llmc — the same from a model file of llm.c, which never has qa_outputs. */
enum status load_llmc(const struct load_target *to, const struct llmc *llmc);
/* load_gguf — the same from a GGUF file, which never has qa_outputs. */
enum status load_gguf(const struct load_target *to, const struct gguf_model *model);
/* load_ckpt — loads one part of a checkpoint ("model", "optim_m", "optim_v"), every tensor by name
 * and shape. */
enum status load_ckpt(const struct load_target *to, const struct ckpt *ckpt, const char *part);

/* load_ckpt_trunk — loads a checkpoint's model without qa_outputs, which keep their values. */
enum status load_ckpt_trunk(const struct load_target *to, const struct ckpt *ckpt);

/* load_dims_of_config — the dimensions in a config; dims.name becomes the last part of the path.
 * _of_hf — for tests: those of a Hugging Face folder. */
void load_dims_of_config(const struct hf_config *config, const char *path, enum model_task task,
                         struct model_dims *out);
enum status load_dims_of_hf(const char *dir, enum model_task task, struct model_dims *out);
/* load_dims_json — writes {"name":…,"task":…,"layers":…,…}. load_dims_parse reads it back,
 * strictly, and what older versions wrote. */
void load_dims_json(const struct model_dims *dims, char *out, size_t cap);
enum status load_dims_parse(const char *json, struct model_dims *out);

#endif
