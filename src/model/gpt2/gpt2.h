/* gpt2 — GPT-2 as Hugging Face computes it (Radford et al. 2019): names, presets, and what it
 * allows; for src/model only. The computation is transformer/. */
#ifndef CONVOY_MODEL_GPT2_H
#define CONVOY_MODEL_GPT2_H

#include "model/transformer/transformer_arch.h"

extern const struct transformer_arch gpt2_arch;

#endif
