/* qwen — Qwen2 and Qwen2.5 (biases of q, k and v) and Qwen3 (norms of the heads of q and k),
 * dense models (Yang et al. 2024, 2025). Names and presets; the block is Llama's. */
#include "model/transformer/transformer_arch.h"

#define QWEN_FEATURES(biases, norms)                                              \
    .norm = MODEL_NORM_RMS, .mlp = MODEL_MLP_SWIGLU, .bias = biases,              \
    .position = MODEL_POSITION_ROPE, .has_qk_norm = norms, .rope.theta = 1000000, \
    .rope.fraction = 1
#define QWEN2_FEATURES QWEN_FEATURES(MODEL_BIAS_QKV, false)
#define QWEN3_FEATURES QWEN_FEATURES(MODEL_BIAS_NONE, true)

/* Dimensions from their config.json. */
static const struct model_dims presets_2[] = {{.name = "qwen2.5-0.5b",
                                               .arch = MODEL_ARCH_QWEN2,
                                               .layers = 24,
                                               .heads = 14,
                                               .kv_heads = 2,
                                               .embed = 896,
                                               .context = 32768,
                                               .vocab = 151936,
                                               .ffn = 4864,
                                               .norm_eps = 1e-6,
                                               .features = {QWEN2_FEATURES}}};
static const struct model_dims presets_3[] = {{.name = "qwen3-0.6b",
                                               .arch = MODEL_ARCH_QWEN3,
                                               .layers = 28,
                                               .heads = 16,
                                               .kv_heads = 8,
                                               .head_dim = 128,
                                               .embed = 1024,
                                               .context = 40960,
                                               .vocab = 151936,
                                               .ffn = 3072,
                                               .norm_eps = 1e-6,
                                               .features = {QWEN3_FEATURES}}};

#define QWEN_ARCH(number, list, its_features)                                                     \
    {                                                                                             \
        .name = number, .layout = MATMUL_LAYOUT_OI, .block_fwd = llama_block_fwd,                 \
        .block_bwd = llama_block_bwd, .features = {its_features}, .embed = "embed_tokens.weight", \
        .norm = "norm.weight", .head = "lm_head.weight", .block = "layers.%d.",                   \
        .row = {{TRANSFORMER_PARAM_NORM1, "input_layernorm.weight"},                              \
                {TRANSFORMER_PARAM_Q, "self_attn.q_proj.weight"},                                 \
                {TRANSFORMER_PARAM_K, "self_attn.k_proj.weight"},                                 \
                {TRANSFORMER_PARAM_V, "self_attn.v_proj.weight"},                                 \
                {TRANSFORMER_PARAM_Q_BIAS, "self_attn.q_proj.bias"},                              \
                {TRANSFORMER_PARAM_K_BIAS, "self_attn.k_proj.bias"},                              \
                {TRANSFORMER_PARAM_V_BIAS, "self_attn.v_proj.bias"},                              \
                {TRANSFORMER_PARAM_Q_NORM, "self_attn.q_norm.weight"},                            \
                {TRANSFORMER_PARAM_K_NORM, "self_attn.k_norm.weight"},                            \
                {TRANSFORMER_PARAM_ATT, "self_attn.o_proj.weight"},                               \
                {TRANSFORMER_PARAM_NORM2, "post_attention_layernorm.weight"},                     \
                {TRANSFORMER_PARAM_GATE, "mlp.gate_proj.weight"},                                 \
                {TRANSFORMER_PARAM_UP, "mlp.up_proj.weight"},                                     \
                {TRANSFORMER_PARAM_DOWN, "mlp.down_proj.weight"}},                                \
        .preset = list, .presets_n = sizeof list / sizeof *list,                                  \
    }
const struct transformer_arch qwen_2_arch = QWEN_ARCH("qwen2", presets_2, QWEN2_FEATURES);
const struct transformer_arch qwen_3_arch = QWEN_ARCH("qwen3", presets_3, QWEN3_FEATURES);
