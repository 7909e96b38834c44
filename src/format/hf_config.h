/* hf_config — reads and writes a Hugging Face folder's config.json, and writes its
 * generation_config.json, for GPT-2, Llama (and Mistral), Qwen2, Qwen3 and GPT-NeoX.
 *
 * Pure functions between text and struct hf_config. Missing keys have the defaults of transformers;
 * the dimensions must be there. It must not know files or weights. */
#ifndef CONVOY_FORMAT_HF_CONFIG_H
#define CONVOY_FORMAT_HF_CONFIG_H

#include <stddef.h>

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "format/hf.h"

/* hf_config_parse — parses a config.json. Refuses, with the key, models that compute something
 * else: another model_type or activation, attention in a window shorter than the context, a scaling
 * of the rotary positions that struct hf_rope does not have, biases that struct hf_config does not
 * have, weights that are quantized. Also refuses numbers of rotary positions that contradict each
 * other, and tokens outside the vocabulary. `what` names the bytes in messages (ST_BAD_DATA). */
enum status hf_config_parse(const char *bytes, size_t n, const char *what, struct hf_config *out);
/* hf_config_parse_generation — adds a generation_config.json to a config that was parsed: its
 * tokens that end a text, if any, replace the tokens of config.json. ST_BAD_DATA: not JSON, or one
 * of them is outside the vocabulary; out is unchanged. */
enum status hf_config_parse_generation(const char *bytes, size_t n, const char *what,
                                       struct hf_config *out);
/* hf_config_write — appends a config.json that transformers 4 and 5 read as the same numbers. A
 * Mistral is written as the equivalent Llama. dropout in [0, 1). The caller checks
 * out->overflow. */
void hf_config_write(const struct hf_config *config, double dropout, struct text *out);
/* hf_config_write_generation — appends a generation_config.json with the tokens that begin and end
 * a text. The caller checks out->overflow. */
void hf_config_write_generation(const struct hf_config *config, struct text *out);

/* hf_config_class — returns the class of transformers that loads the model. */
const char *hf_config_class(const struct hf_config *config);

/* hf_index — model.safetensors.index.json: the file of each tensor.
 *
 * A pure function of (bytes, size). File names that pass are plain names, so no index leads out of
 * its folder. hf.c checks that the files hold the listed tensors when they are opened. It must not
 * know files. */

struct hf_index_row {
    const char *name; /* in the spelling of the files */
    int file_i;
};

struct hf_index {
    struct hf_index_row *row; /* by name, ascending */
    int rows_n;
    const char **file; /* ascending, each once */
    int files_n;
    double total_bytes; /* bytes of all tensors, "total_size"; -1: absent */
    cJSON *document;    /* holds the strings */
};

/* hf_index_parse — parses the index. `what` names the bytes in messages (ST_BAD_DATA). Refuses,
 * with its name, a tensor listed twice and a file that is not a plain name ending in
 * ".safetensors"; refuses an empty list. */
enum status hf_index_parse(const char *bytes, size_t n, const char *what, struct hf_index *out);
void hf_index_free(struct hf_index *index); /* accepts a zeroed struct; may be called twice */
/* hf_index_find — returns the row of a tensor; NULL: it is not listed. */
const struct hf_index_row *hf_index_find(const struct hf_index *index, const char *name);

/* hf_rope — reads and writes the rotary positions of a config.json: "rope_parameters" of
 * transformers 5, and the older "rope_theta", "rope_scaling", "rotary_pct", "rotary_emb_base".
 *
 * Defaults and precedence are the same as in transformers 5. Must not know the rest of the
 * document. */

/* hf_rope_read — fills config->rope; arch, context and head_dim are set. ST_BAD_DATA: a kind of
 * scaling that is not computed, or a number that is out of range. */
enum status hf_rope_read(const cJSON *root, struct hf_config *config);
/* hf_rope_write — appends both forms, which transformers 4 and 5 read as the same numbers. */
void hf_rope_write(const struct hf_config *config, struct text *out);
/* hf_rope_add_number — appends `"key": value` with all digits that are needed to read it back:
 * "1.0", not "1". */
void hf_rope_add_number(struct text *out, const char *key, double value);

#endif
