/* architectures — a tiny model of each architecture and part, with odd sizes, for tests that hold
 * for all of them. GPT-2 has its own cases. */
#ifndef CONVOY_TESTS_ARCHITECTURES_H
#define CONVOY_TESTS_ARCHITECTURES_H

#include "model/model.h"

#define ARCHITECTURES_ROPE(share) \
    .position = MODEL_POSITION_ROPE, .rope.theta = 10000, .rope.fraction = share
#define ARCHITECTURES_RMS .norm = MODEL_NORM_RMS, .mlp = MODEL_MLP_SWIGLU, ARCHITECTURES_ROPE(1)

static const struct model_dims architectures[] = {
    {.name = "llama",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 2,
     .heads = 3,
     .kv_heads = 1,
     .head_dim = 6,
     .embed = 15,
     .ffn = 13,
     .vocab = 37,
     .parts = {ARCHITECTURES_RMS, .bias = MODEL_BIAS_NONE, .is_untied = true}},
    {.name = "llama 3.2",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 3,
     .heads = 2,
     .embed = 12,
     .ffn = 7,
     .vocab = 37,
     .norm_eps = 1e-6,
     .parts = {ARCHITECTURES_RMS, .bias = MODEL_BIAS_NONE, .rope.kind = MODEL_ROPE_KIND_LLAMA3,
               .rope.factor = 8, .rope.low_freq_factor = 1, .rope.high_freq_factor = 4,
               .rope.original_context = 32}},
    {.name = "llama with biases",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 2,
     .heads = 2,
     .kv_heads = 1,
     .embed = 12,
     .ffn = 11,
     .vocab = 37,
     .parts = {ARCHITECTURES_RMS, .bias = MODEL_BIAS_ALL}},
    {.name = "qwen2",
     .arch = MODEL_ARCH_QWEN2,
     .layers = 2,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 4,
     .embed = 14,
     .ffn = 9,
     .vocab = 37,
     .parts = {ARCHITECTURES_RMS, .bias = MODEL_BIAS_QKV}},
    {.name = "qwen3",
     .arch = MODEL_ARCH_QWEN3,
     .layers = 2,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 6,
     .embed = 13,
     .ffn = 11,
     .vocab = 37,
     .parts = {ARCHITECTURES_RMS, .bias = MODEL_BIAS_NONE, .has_qk_norm = true, .is_untied = true,
               .rope.kind = MODEL_ROPE_KIND_YARN, .rope.factor = 4, .rope.beta_fast = 32,
               .rope.beta_slow = 1, .rope.original_context = 64}},
    {.name = "neox",
     .arch = MODEL_ARCH_NEOX,
     .layers = 3,
     .heads = 3,
     .embed = 24,
     .ffn = 25,
     .vocab = 37,
     .parts = {ARCHITECTURES_ROPE(0.25), .mlp = MODEL_MLP_GELU_ERF, .is_parallel = true,
               .is_untied = true}},
    {.name = "neox, serial",
     .arch = MODEL_ARCH_NEOX,
     .layers = 2,
     .heads = 2,
     .embed = 12,
     .vocab = 37,
     .parts = {ARCHITECTURES_ROPE(1), .is_untied = true}},
};
#define ARCHITECTURES_N ((int)(sizeof architectures / sizeof *architectures))

#endif
