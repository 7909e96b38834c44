/* hf_config — reads and writes a Hugging Face folder's config.json, and writes its
 * generation_config.json.
 *
 * Pure functions between text and struct hf_config. It must not know files or weights. */
#ifndef CONVOY_FORMAT_HF_CONFIG_H
#define CONVOY_FORMAT_HF_CONFIG_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"
#include "format/hf.h"

/* hf_config_parse — refuses what is not GPT-2, as hf.h says; `what` names the bytes in messages
 * (ST_BAD_DATA). */
enum status hf_config_parse(const char *bytes, size_t n, const char *what, struct hf_config *out);
/* hf_config_write — appends every field of transformers' GPT2Config to *out. dropout in [0, 1). The
 * caller checks out->overflow. */
void hf_config_write(const struct hf_config *config, double dropout, struct text *out);
void hf_config_write_generation(const struct hf_config *config, struct text *out);

/* hf_config_class — public for tests: the class of transformers that loads the model. */
const char *hf_config_class(const struct hf_config *config);

#endif
