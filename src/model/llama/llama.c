/* llama — Llama 2 and 3.x (Touvron et al. 2023, Dubey et al. 2024), and models that compute the
 * same: Mistral without a window, SmolLM2. Its block, names, presets.
 *
 *   mid  = x + attention(rms_norm1(x))
 *   next = mid + (silu(gate) · up)·Wdown, with [gate up] = rms_norm2(mid)·W
 *
 * The functions called are in transformer/transformer.h; they read and write the tensors of a block
 * in struct transformer_acts_block. */
#include "model/transformer/transformer.h"

/* ---- forward ---- */

/* Computes att = softmax(q·k/√D)·v, with [q k v] = norm1(x)·Wqkv, and q and k rotated by their
 * positions. */
static enum status compute_attention(const struct pass *p, int block)
{
    TRY(transformer_norm_qkv(p, block));
    TRY(transformer_rotate(p, transformer_qkv(p, block), false));
    return transformer_attention(p, block);
}

/* Computes act = silu(gate) · up, with pre = [gate up]. */
static enum status apply_swiglu(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = transformer_kept(p, block);
    struct swiglu_fwd swiglu = {
        .y = a->act, .gu = a->pre, .n = p->b * p->t, .f = model_ffn(p->dims)};
    return p->op->swiglu_fwd(p->stream, &swiglu);
}

enum status llama_block_fwd(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = transformer_kept(p, block);
    struct matmul_fwd gate_up = {.y = a->pre};
    TRY(compute_attention(p, block));
    TRY(transformer_linear_residual(p, block, TRANSFORMER_LAYER_ATT, a->mid, a->att, a->x));
    TRY(transformer_norm_linear(p, block, &a->norm2, TRANSFORMER_LAYER_UP, gate_up));
    TRY(apply_swiglu(p, block));
    return transformer_linear_residual(p, block, TRANSFORMER_LAYER_DOWN, a->next, a->act, a->mid);
}

/* ---- backward: dx of the plan, the gradient of next, becomes the gradient of x ---- */

/* Computes the gradients of gate and up, in wide, from dact. */
static enum status swiglu_bwd(const struct pass *p, int block)
{
    const struct transformer_acts *m = transformer_acts(p);
    struct swiglu_bwd swiglu = {.dgu = m->wide,
                                .dy = m->dact,
                                .gu = m->block[block].pre,
                                .n = p->b * p->t,
                                .f = model_ffn(p->dims)};
    return p->op->swiglu_bwd(p->stream, &swiglu);
}

enum status llama_block_bwd(const struct pass *p, int block)
{
    const struct transformer_acts *m = transformer_acts(p);
    const struct transformer_acts_block *a = &m->block[block];
    struct tensor none = {0};
    TRY(transformer_keep_or_recompute(p, block, compute_attention, apply_swiglu));
    TRY(transformer_linear_residual_bwd(p, block, TRANSFORMER_LAYER_DOWN, m->dact, a->act, none));
    TRY(swiglu_bwd(p, block));
    TRY(transformer_norm_linear_bwd(p, block, &a->norm2, TRANSFORMER_LAYER_UP, m->dmid, m->dx));
    TRY(transformer_linear_residual_bwd(p, block, TRANSFORMER_LAYER_ATT, m->datt, a->att, none));
    TRY(transformer_attention_bwd(p, block));
    TRY(transformer_rotate(p, m->wide, true));
    return transformer_norm_qkv_bwd(p, block);
}

/* ---- names and presets ---- */

#define LLAMA_FEATURES(base, is_own_head)                                          \
    .norm = MODEL_NORM_RMS, .mlp = MODEL_MLP_SWIGLU, .bias = MODEL_BIAS_NONE,      \
    .position = MODEL_POSITION_ROPE, .is_untied = is_own_head, .rope.theta = base, \
    .rope.fraction = 1
/* Llama 3.1 and later stretch the frequencies of 8192 tokens. */
#define LLAMA3_SCALING(times)                                                             \
    .rope.kind = MODEL_ROPE_KIND_LLAMA3, .rope.factor = times, .rope.low_freq_factor = 1, \
    .rope.high_freq_factor = 4, .rope.original_context = 8192

/* Dimensions from their config.json. llama-toy: the model of the tensor-parallel example of
 * PyTorch. */
static const struct model_dims presets[] = {
    {.name = "llama-toy",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 2,
     .heads = 16,
     .embed = 256,
     .context = 32768,
     .vocab = 32000,
     .ffn = 768,
     .features = {LLAMA_FEATURES(10000, true)}},
    {.name = "llama-2-7b",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 32,
     .heads = 32,
     .embed = 4096,
     .context = 4096,
     .vocab = 32000,
     .ffn = 11008,
     .features = {LLAMA_FEATURES(10000, true)}},
    {.name = "llama-2-13b",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 40,
     .heads = 40,
     .embed = 5120,
     .context = 4096,
     .vocab = 32000,
     .ffn = 13824,
     .features = {LLAMA_FEATURES(10000, true)}},
    {.name = "llama-2-70b",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 80,
     .heads = 64,
     .kv_heads = 8,
     .embed = 8192,
     .context = 4096,
     .vocab = 32000,
     .ffn = 28672,
     .features = {LLAMA_FEATURES(10000, true)}},
    {.name = "llama-3-8b",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 32,
     .heads = 32,
     .kv_heads = 8,
     .embed = 4096,
     .context = 8192,
     .vocab = 128256,
     .ffn = 14336,
     .features = {LLAMA_FEATURES(500000, true)}},
    {.name = "llama-3-70b",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 80,
     .heads = 64,
     .kv_heads = 8,
     .embed = 8192,
     .context = 8192,
     .vocab = 128256,
     .ffn = 28672,
     .features = {LLAMA_FEATURES(500000, true)}},
    {.name = "llama-3.2-1b",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 16,
     .heads = 32,
     .kv_heads = 8,
     .embed = 2048,
     .context = 131072,
     .vocab = 128256,
     .ffn = 8192,
     .features = {LLAMA_FEATURES(500000, false), LLAMA3_SCALING(32)}},
    {.name = "smollm2-135m",
     .arch = MODEL_ARCH_LLAMA,
     .layers = 30,
     .heads = 9,
     .kv_heads = 3,
     .embed = 576,
     .context = 8192,
     .vocab = 49152,
     .ffn = 1536,
     .features = {LLAMA_FEATURES(100000, false)}},
};

const struct transformer_arch llama_arch = {
    .name = "llama",
    .layout = MATMUL_LAYOUT_OI,
    .block_fwd = llama_block_fwd,
    .block_bwd = llama_block_bwd,
    .features = {LLAMA_FEATURES(10000, true)},
    .embed = "embed_tokens.weight",
    .norm = "norm.weight",
    .head = "lm_head.weight",
    .block = "layers.%d.",
    .row = {{TRANSFORMER_PARAM_NORM1, "input_layernorm.weight"},
            {TRANSFORMER_PARAM_Q, "self_attn.q_proj.weight"},
            {TRANSFORMER_PARAM_K, "self_attn.k_proj.weight"},
            {TRANSFORMER_PARAM_V, "self_attn.v_proj.weight"},
            {TRANSFORMER_PARAM_Q_BIAS, "self_attn.q_proj.bias"},
            {TRANSFORMER_PARAM_K_BIAS, "self_attn.k_proj.bias"},
            {TRANSFORMER_PARAM_V_BIAS, "self_attn.v_proj.bias"},
            {TRANSFORMER_PARAM_ATT, "self_attn.o_proj.weight"},
            {TRANSFORMER_PARAM_ATT_BIAS, "self_attn.o_proj.bias"},
            {TRANSFORMER_PARAM_NORM2, "post_attention_layernorm.weight"},
            {TRANSFORMER_PARAM_GATE, "mlp.gate_proj.weight"},
            {TRANSFORMER_PARAM_UP, "mlp.up_proj.weight"},
            {TRANSFORMER_PARAM_GATE_BIAS, "mlp.gate_proj.bias"},
            {TRANSFORMER_PARAM_UP_BIAS, "mlp.up_proj.bias"},
            {TRANSFORMER_PARAM_DOWN, "mlp.down_proj.weight"},
            {TRANSFORMER_PARAM_DOWN_BIAS, "mlp.down_proj.bias"}},
    .preset = presets,
    .presets_n = sizeof presets / sizeof *presets,
};
