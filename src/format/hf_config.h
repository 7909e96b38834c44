/* hf_config — reads and writes a Hugging Face folder's config.json, and writes its
 * generation_config.json, for GPT-2, Llama (and Mistral), Qwen2, Qwen3 and GPT-NeoX.
 *
 * Pure functions between text and struct hf_config. Missing keys have the defaults of transformers;
 * the dimensions must be there. It must not know files or weights. */
#ifndef CONVOY_FORMAT_HF_CONFIG_H
#define CONVOY_FORMAT_HF_CONFIG_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"
#include "format/hf.h"

/* hf_config_parse — refuses by name what would compute something else: another model_type or
 * activation, attention in a window shorter than the context, a scaling of the rotary positions
 * that hf_rope.h does not have, biases where struct hf_config has none, weights that are
 * quantized. Also refuses numbers of rotary positions that contradict each other, and tokens
 * outside the vocabulary. `what` names the bytes in messages (ST_BAD_DATA). */
enum status hf_config_parse(const char *bytes, size_t n, const char *what, struct hf_config *out);
/* hf_config_parse_generation — of a generation_config.json, into a config that was parsed: the
 * tokens that end a text replace those of config.json, if it names any.
 * ST_BAD_DATA: not JSON, or one of them is outside the vocabulary; out is as before. */
enum status hf_config_parse_generation(const char *bytes, size_t n, const char *what,
                                       struct hf_config *out);
/* hf_config_write — appends a config.json that transformers 4 and 5 read, to the same numbers. A
 * Mistral is written as the Llama that it is. dropout in [0, 1). The caller checks
 * out->overflow. */
void hf_config_write(const struct hf_config *config, double dropout, struct text *out);
void hf_config_write_generation(const struct hf_config *config, struct text *out);

/* hf_config_class — the class of transformers that loads the model. */
const char *hf_config_class(const struct hf_config *config);

#endif
