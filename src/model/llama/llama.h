/* llama — Llama 2 and 3.x (Touvron et al. 2023, Dubey et al. 2024), and what computes the same:
 * Mistral without a window, SmolLM2. Names, presets; for src/model only. The computation is
 * transformer/. */
#ifndef CONVOY_MODEL_LLAMA_H
#define CONVOY_MODEL_LLAMA_H

#include "model/transformer/transformer_arch.h"

extern const struct transformer_arch llama_arch;

#endif
