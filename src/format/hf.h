/* hf — a Hugging Face GPT-2 folder: config.json and model.safetensors (or several such files and
 * model.safetensors.index.json), with or without the "transformer." prefix.
 *
 * Our parameter names are Hugging Face's without that prefix ("h.0.attn.c_attn.weight",
 * "wte.weight"), and our layouts are theirs (Conv1D weights (I,O); qa_outputs.weight (2,C)). Mask
 * buffers (attn.bias, attn.masked_bias) are skipped. A tied lm_head.weight is skipped too, or
 * replaces a missing wte.weight. */
#ifndef CONVOY_FORMAT_HF_H
#define CONVOY_FORMAT_HF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "format/safetensors.h"

struct hf_config {
    int64_t layers, heads, embed, context, vocab;
    bool is_qa; /* architectures names GPT2ForQuestionAnswering */
};

bool hf_is_folder(const char *path); /* holds a config.json */
/* hf_read_config — refuses, by name, what is not GPT-2 with gelu_new, eps 1e-5 and n_inner 4C. */
enum status hf_read_config(const char *dir, struct hf_config *out);

struct hf_model;
/* hf_open — maps and parses the weights. Refuses, by name, files that the index lists but do not
 * exist, tensors that are in another file or not listed, and two tensors for one parameter. */
enum status hf_open(const char *dir, struct hf_model **out);
void hf_close(struct hf_model *hf); /* accepts NULL */
/* hf_tensor — by our name; ST_BAD_DATA with file, name, expected and actual shape. */
enum status hf_tensor(const struct hf_model *hf, const char *name, int dims_n, const int64_t *dim,
                      const struct safetensors_entry **out);
/* hf_check_layers — ST_BAD_DATA if it holds a tensor of a layer beyond `layers`. */
enum status hf_check_layers(const struct hf_model *hf, int64_t layers);
bool hf_has(const struct hf_model *hf, const char *name);

#endif
