/* gpt2 — GPT-2 as Hugging Face computes it (Radford et al. 2019): names, presets, and what it
 * allows. The computation is transformer/. Linear weights are (in,out), as Hugging Face's Conv1D
 * keeps them. */
#include "model/transformer/transformer_arch.h"

#define PRESET(n, l, h, c)                                                              \
    {                                                                                   \
        .name = n, .layers = l, .heads = h, .embed = c, .context = 1024, .vocab = 50257 \
    }
/* What later models of this size are made of: tokens go further with them (Jordan et al. 2024). */
#define MODERN                                                                        \
    {                                                                                 \
        .mlp = MODEL_MLP_RELU2, .position = MODEL_POSITION_ROPE, .rope.theta = 10000, \
        .rope.fraction = 1, .has_qk_norm = true, .is_untied = true, .logit_cap = 15,  \
        .has_zero_init = true                                                         \
    }
#define PRESET_MODERN(n, l, h, c)                                                        \
    {                                                                                    \
        .name = n, .layers = l, .heads = h, .embed = c, .context = 1024, .vocab = 50257, \
        .features = MODERN                                                               \
    }
static const struct model_dims presets[] = {PRESET("gpt2-nano", 4, 4, 128),
                                            PRESET("gpt2-mini", 6, 6, 384),
                                            PRESET("gpt2", 12, 12, 768),
                                            PRESET("gpt2-medium", 24, 16, 1024),
                                            PRESET("gpt2-large", 36, 20, 1280),
                                            PRESET("gpt2-xl", 48, 25, 1600),
                                            PRESET_MODERN("gpt2-modern-nano", 4, 4, 128),
                                            PRESET_MODERN("gpt2-modern-mini", 6, 6, 384),
                                            PRESET_MODERN("gpt2-modern", 12, 12, 768)};

static enum status check(const struct model_dims *dims)
{
    const char *why = "its files have no field for another";
    TRY(transformer_arch_check(dims, "KV_HEADS", model_kv_heads(dims), dims->heads, why));
    TRY(transformer_arch_check(dims, "HEAD_DIM", model_head_dim(dims), dims->embed / dims->heads,
                               "EMBED divided by HEADS"));
    return transformer_arch_check(dims, "FFN", model_ffn(dims), 4 * dims->embed, "4 times EMBED");
}

const struct transformer_arch gpt2_arch = {
    .name = "gpt2",
    .layout = MATMUL_LAYOUT_IO,
    .has_qa = true,
    .embed = "wte.weight",
    .positions = "wpe.weight",
    .norm = "ln_f.weight",
    .norm_bias = "ln_f.bias",
    .head = "lm_head.weight",
    .block = "h.%d.",
    .row = {{TRANSFORMER_PARAM_NORM1, "ln_1.weight"},
            {TRANSFORMER_PARAM_NORM1_BIAS, "ln_1.bias"},
            {TRANSFORMER_PARAM_QKV, "attn.c_attn.weight"},
            {TRANSFORMER_PARAM_QKV_BIAS, "attn.c_attn.bias"},
            {TRANSFORMER_PARAM_Q_NORM, "attn.q_norm.weight"},
            {TRANSFORMER_PARAM_K_NORM, "attn.k_norm.weight"},
            {TRANSFORMER_PARAM_ATT, "attn.c_proj.weight"},
            {TRANSFORMER_PARAM_ATT_BIAS, "attn.c_proj.bias"},
            {TRANSFORMER_PARAM_NORM2, "ln_2.weight"},
            {TRANSFORMER_PARAM_NORM2_BIAS, "ln_2.bias"},
            {TRANSFORMER_PARAM_UP, "mlp.c_fc.weight"},
            {TRANSFORMER_PARAM_UP_BIAS, "mlp.c_fc.bias"},
            {TRANSFORMER_PARAM_DOWN, "mlp.c_proj.weight"},
            {TRANSFORMER_PARAM_DOWN_BIAS, "mlp.c_proj.bias"}},
    .preset = presets,
    .presets_n = sizeof presets / sizeof *presets,
    .check = check,
};
