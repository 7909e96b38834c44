/* hf_rope — reads and writes the rotary positions of a config.json: "rope_parameters" of
 * transformers 5, and the older "rope_theta", "rope_scaling", "rotary_pct", "rotary_emb_base".
 *
 * Defaults and precedence are those of transformers 5. Must not know the rest of the document. */
#ifndef CONVOY_FORMAT_HF_ROPE_H
#define CONVOY_FORMAT_HF_ROPE_H

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "format/hf.h"

/* hf_rope_read — fills config->rope; arch, context and head_dim are set. ST_BAD_DATA names a kind
 * of scaling that is not computed, or a number that is out of range. */
enum status hf_rope_read(const cJSON *root, struct hf_config *config);
/* hf_rope_write — appends both forms, which give the same numbers to transformers 4 and 5. */
void hf_rope_write(const struct hf_config *config, struct text *out);
/* hf_rope_add_number — `"key": value` with as many digits as it takes to read it back: "1.0", not
 * "1". */
void hf_rope_add_number(struct text *out, const char *key, double value);

#endif
