/* rope_freq — the inverse frequencies of rotary positions, scaled for contexts longer than a model
 * was trained for. A pure function of the dimensions, with the formulas and the f32 arithmetic of
 * transformers (modeling_rope_utils). It must not know positions or tensors. */
#ifndef CONVOY_MODEL_ROPE_FREQ_H
#define CONVOY_MODEL_ROPE_FREQ_H

#include "kernels/rope.h"
#include "model/model.h"

/* rope_freq — writes the frequencies of rotated/2 pairs, the rest 0. Returns what cosines and sines
 * are multiplied by: 1, or YaRN's attention factor. */
float rope_freq(const struct model_rope *rope, int64_t rotated, float out[ROPE_FREQ_MAX]);

#endif
