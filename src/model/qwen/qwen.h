/* qwen — Qwen2 and Qwen2.5 (biases of q, k and v) and Qwen3 (norms of the heads of q and k), dense
 * models (Yang et al. 2024, 2025). Names, presets; for src/model only. The computation is
 * transformer/. */
#ifndef CONVOY_MODEL_QWEN_H
#define CONVOY_MODEL_QWEN_H

#include "model/transformer/transformer_arch.h"

extern const struct transformer_arch qwen_2_arch, qwen_3_arch;

#endif
