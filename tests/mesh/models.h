/* models — for tests: shards of models whose matrices are cut. */
#ifndef CONVOY_TESTS_MODELS_H
#define CONVOY_TESTS_MODELS_H

#include "model/model.h"

/* clang-format off */
#define MODELS_ROPE .position = MODEL_POSITION_ROPE, .rope.theta = 10000, .rope.fraction = 1
#define MODELS_LLAMA \
    MODELS_ROPE, .norm = MODEL_NORM_RMS, .mlp = MODEL_MLP_SWIGLU, .bias = MODEL_BIAS_NONE
#define MODELS_GPT2 {.name = "gpt2", .layers = 2, .heads = 4, .embed = 48, .vocab = 211}
/* Fewer key heads than ranks, and a vocabulary that is cut unevenly. */
#define MODELS_QWEN_ONE \
    {.name = "qwen3, 4 heads, 1 key head", .arch = MODEL_ARCH_QWEN3, .layers = 2, .heads = 4, \
     .kv_heads = 1, .head_dim = 6, .embed = 32, .ffn = 12, .vocab = 37, \
     .features = {MODELS_LLAMA, .has_qk_norm = true}}
/* clang-format on */

#endif
