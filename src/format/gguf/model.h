/* gguf_model — a GGUF file as a model: parameters by our names, in our layouts.
 *
 * Names are Hugging Face's without the model's prefix, as in hf.h. The changes of llama.cpp's
 * converter are undone: the order of q and k rows of llama (rotary pairs side by side), the order
 * of GPT-NeoX's q, k and v, the transposed matrices of GPT-2. Quantized blocks become floats tile
 * by tile; nothing is kept. It must not know our models' code, only their names. */
#ifndef CONVOY_FORMAT_GGUF_MODEL_H
#define CONVOY_FORMAT_GGUF_MODEL_H

#include "base/status.h"
#include "format/gguf.h"
#include "format/gguf/form.h"
#include "format/hf.h"

/* One parameter. */
struct gguf_entry {
    const struct gguf_tensor *tensor; /* borrowed until the model is closed */
    enum gguf_form form;
    int64_t heads, head_dim; /* PAIRS (heads of this tensor), QKV */
    int64_t elems;
};

bool gguf_model_is_file(const char *path); /* a regular file that begins with "GGUF" */
struct gguf_model;
/* gguf_model_open — maps and parses the file. Refuses, with their names, tensors that the
 * architecture does not have. */
enum status gguf_model_open(const char *path, struct gguf_model **out);
/* gguf_model_parse — does the same for bytes, for tests and the fuzzer; they stay the caller's. */
enum status gguf_model_parse(const uint8_t *bytes, size_t n, const char *what,
                             struct gguf_model **out);
void gguf_model_close(struct gguf_model *model); /* accepts NULL */
/* gguf_model_config — returns the model's config; valid until gguf_model_close. */
const struct hf_config *gguf_model_config(const struct gguf_model *model);
/* gguf_model_file — returns the parsed file; valid until gguf_model_close. */
const struct gguf *gguf_model_file(const struct gguf_model *model);
/* gguf_model_tensor — finds a tensor by our name; ST_BAD_DATA with file, name, expected and actual
 * shape. */
enum status gguf_model_tensor(const struct gguf_model *model, const char *name, int dims_n,
                              const int64_t *dim, struct gguf_entry *out);
/* gguf_model_to_f32 — converts elements [first, first+n) in our layout; the range must be valid.
 * Whole rows are fastest. */
void gguf_model_to_f32(const struct gguf_entry *entry, int64_t first, int64_t n, float *out);

/* gguf_model_release — removes the pages of a tensor from resident memory, after it was read. */
void gguf_model_release(const struct gguf_model *model, const struct gguf_entry *entry);

/* gguf_config — the model that the keys of a GGUF file describe. Of the weights it must know only
 * rope_freqs.weight, which holds Llama-3's scaling. */

/* gguf_config_read — reads the architectures llama, qwen2, qwen3, gptneox and gpt2, with the
 * defaults of llama.cpp. Refuses, with a reason, the models that hf_config_parse refuses, experts,
 * and one file of a split model. */
enum status gguf_config_read(const struct gguf *gguf, struct hf_config *out);

#endif
