/* neox — GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023). Names, presets, and the
 * settings that it allows; the block is GPT-2's. A row has q, k and v head by head, as in its
 * files. */
#include "model/transformer/transformer_arch.h"

#define NEOX_FEATURES(kind, with_parallel, share)                                     \
    .norm = MODEL_NORM_LAYER, .mlp = kind, .bias = MODEL_BIAS_ALL,                    \
    .position = MODEL_POSITION_ROPE, .is_parallel = with_parallel, .is_untied = true, \
    .rope.theta = 10000, .rope.fraction = share
#define NEOX_PRESET(n, l, h, c, v, kind, with_parallel, share)                                    \
    {                                                                                             \
        .name = n, .arch = MODEL_ARCH_NEOX, .layers = l, .heads = h, .embed = c, .context = 2048, \
        .vocab = v, .features = {                                                                 \
            NEOX_FEATURES(kind, with_parallel, share)                                             \
        }                                                                                         \
    }
#define PYTHIA(n, l, h, c, v) NEOX_PRESET(n, l, h, c, v, MODEL_MLP_GELU_ERF, true, 0.25)

/* Pythia: dimensions from their config.json. gpt-neox: 2-7B.yml and 20B.yml of the GPT-NeoX
 * library, whose GELU has the tanh form. 2-7B.yml rotates all elements of a head and has serial
 * residuals. */
static const struct model_dims presets[] = {
    PYTHIA("pythia-70m", 6, 8, 512, 50304),
    PYTHIA("pythia-160m", 12, 12, 768, 50304),
    PYTHIA("pythia-410m", 24, 16, 1024, 50304),
    PYTHIA("pythia-1b", 16, 8, 2048, 50304),
    PYTHIA("pythia-1.4b", 24, 16, 2048, 50304),
    PYTHIA("pythia-2.8b", 32, 32, 2560, 50304),
    PYTHIA("pythia-6.9b", 32, 32, 4096, 50432),
    PYTHIA("pythia-12b", 36, 40, 5120, 50688),
    NEOX_PRESET("gpt-neox-2.7b", 32, 32, 2560, 50304, MODEL_MLP_GELU_TANH, false, 1),
    NEOX_PRESET("gpt-neox-20b", 44, 64, 6144, 50432, MODEL_MLP_GELU_TANH, true, 0.25)};

static enum status check(const struct model_dims *dims)
{
    TRY(transformer_arch_check(dims, "KV_HEADS", model_kv_heads(dims), dims->heads,
                               "its files have no field for another"));
    return transformer_arch_check(dims, "HEAD_DIM", model_head_dim(dims), dims->embed / dims->heads,
                                  "EMBED divided by HEADS");
}

const struct transformer_arch neox_arch = {
    .name = "gpt_neox",
    .layout = MATMUL_LAYOUT_OI,
    .heads = ATTENTION_LAYOUT_HEADS,
    .block_fwd = gpt2_block_fwd,
    .block_bwd = gpt2_block_bwd,
    .features = {NEOX_FEATURES(MODEL_MLP_GELU_ERF, true, 0.25)},
    .embed = "embed_in.weight",
    .norm = "final_layer_norm.weight",
    .norm_bias = "final_layer_norm.bias",
    .head = "embed_out.weight",
    .block = "layers.%d.",
    .row = {{TRANSFORMER_PARAM_NORM1, "input_layernorm.weight"},
            {TRANSFORMER_PARAM_NORM1_BIAS, "input_layernorm.bias"},
            {TRANSFORMER_PARAM_QKV, "attention.query_key_value.weight"},
            {TRANSFORMER_PARAM_QKV_BIAS, "attention.query_key_value.bias"},
            {TRANSFORMER_PARAM_ATT, "attention.dense.weight"},
            {TRANSFORMER_PARAM_ATT_BIAS, "attention.dense.bias"},
            {TRANSFORMER_PARAM_NORM2, "post_attention_layernorm.weight"},
            {TRANSFORMER_PARAM_NORM2_BIAS, "post_attention_layernorm.bias"},
            {TRANSFORMER_PARAM_UP, "mlp.dense_h_to_4h.weight"},
            {TRANSFORMER_PARAM_UP_BIAS, "mlp.dense_h_to_4h.bias"},
            {TRANSFORMER_PARAM_DOWN, "mlp.dense_4h_to_h.weight"},
            {TRANSFORMER_PARAM_DOWN_BIAS, "mlp.dense_4h_to_h.bias"}},
    .preset = presets,
    .presets_n = sizeof presets / sizeof *presets,
    .check = check,
};
