/* neox — GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023). Names, presets, and what it
 * allows; for src/model only. The computation is transformer/. */
#ifndef CONVOY_MODEL_NEOX_H
#define CONVOY_MODEL_NEOX_H

#include "model/transformer/transformer_arch.h"

extern const struct transformer_arch neox_arch;

#endif
