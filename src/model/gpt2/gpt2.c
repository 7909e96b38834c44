/* gpt2 — GPT-2 as Hugging Face computes it (Radford et al. 2019): its block, names, presets, and
 * the settings that it allows. Linear weights are (in,out), as Hugging Face's Conv1D keeps them.
 *
 *   mid  = x + attention(norm1(x))
 *   next = mid + mlp(norm2(mid))
 *
 * The functions called are in transformer/transformer.h; they read and write the tensors of a block
 * in struct transformer_acts_block. */
#include "model/transformer/transformer.h"

/* ---- activation ---- */

/* Products have the tanh form of GELU in their epilogue, and no other activation. An adapter's
 * output is added before the activation. */
static bool is_fused(const struct pass *p)
{
    return p->dims->features.mlp == MODEL_MLP_GELU_TANH && p->dims->adapter.r == 0;
}

static bool is_square(const struct pass *p) { return p->dims->features.mlp == MODEL_MLP_RELU2; }

static enum gelu_kind gelu_of(const struct pass *p)
{
    return p->dims->features.mlp == MODEL_MLP_GELU_TANH ? GELU_KIND_TANH : GELU_KIND_ERF;
}

/* Computes act = gelu(pre), or relu(pre)² in later models. */
static enum status apply_activation(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = transformer_kept(p, block);
    int64_t n = p->b * p->t * model_ffn(p->dims);
    struct relu2_fwd relu2 = {.y = a->act, .x = a->pre, .n = n};
    struct gelu_fwd gelu = {.y = a->act, .x = a->pre, .n = n, .kind = gelu_of(p)};
    return is_square(p) ? p->op->relu2_fwd(p->stream, &relu2) : p->op->gelu_fwd(p->stream, &gelu);
}

/* Computes the gradient of pre, in wide, from dact. */
static enum status activate_bwd(const struct pass *p, int block)
{
    const struct transformer_acts *m = transformer_acts(p);
    int64_t n = p->b * p->t * model_ffn(p->dims);
    struct tensor pre = m->block[block].pre;
    struct relu2_bwd relu2 = {.dx = m->wide, .dy = m->dact, .x = pre, .n = n};
    struct gelu_bwd gelu = {.dx = m->wide, .dy = m->dact, .x = pre, .n = n, .kind = gelu_of(p)};
    return is_square(p) ? p->op->relu2_bwd(p->stream, &relu2) : p->op->gelu_bwd(p->stream, &gelu);
}

/* ---- forward ---- */

/* Computes att = softmax(q·k/√D)·v, with [q k v] = norm1(x)·Wqkv + b; later models rotate q and
 * k. */
static enum status compute_attention(const struct pass *p, int block)
{
    TRY(transformer_norm_qkv(p, block));
    TRY(transformer_rotate(p, transformer_qkv(p, block), false));
    return transformer_attention(p, block);
}

/* Computes act = gelu(pre), with pre = norm2(mid)·Wup + b. */
static enum status project_up(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = transformer_kept(p, block);
    struct matmul_fwd fused = {.y = a->act, .act = MATMUL_ACT_GELU}, plain = {.y = a->pre};
    if (p->want_grad)
        fused.pre = a->pre;
    TRY(transformer_norm_linear(p, block, &a->norm2, TRANSFORMER_LAYER_UP,
                                is_fused(p) ? fused : plain));
    return is_fused(p) ? ST_OK : apply_activation(p, block);
}

enum status gpt2_block_fwd(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = transformer_kept(p, block);
    TRY(compute_attention(p, block));
    TRY(transformer_linear_residual(p, block, TRANSFORMER_LAYER_ATT, a->mid, a->att, a->x));
    TRY(project_up(p, block));
    return transformer_linear_residual(p, block, TRANSFORMER_LAYER_DOWN, a->next, a->act, a->mid);
}

/* ---- backward: dx of the plan, the gradient of next, becomes the gradient of x ---- */

enum status gpt2_block_bwd(const struct pass *p, int block)
{
    const struct transformer_acts *m = transformer_acts(p);
    const struct transformer_acts_block *a = &m->block[block];
    struct tensor none = {0}, pre = is_fused(p) ? a->pre : none;
    TRY(transformer_keep_or_recompute(p, block, compute_attention, apply_activation));
    TRY(transformer_linear_residual_bwd(p, block, TRANSFORMER_LAYER_DOWN, m->dact, a->act, pre));
    TRY(is_fused(p) ? ST_OK : activate_bwd(p, block));
    TRY(transformer_norm_linear_bwd(p, block, &a->norm2, TRANSFORMER_LAYER_UP, m->dmid, m->dx));
    TRY(transformer_linear_residual_bwd(p, block, TRANSFORMER_LAYER_ATT, m->datt, a->att, none));
    TRY(transformer_attention_bwd(p, block));
    TRY(transformer_rotate(p, m->wide, true));
    return transformer_norm_qkv_bwd(p, block);
}

/* ---- names and presets ---- */

#define PRESET(n, l, h, c)                                                              \
    {                                                                                   \
        .name = n, .layers = l, .heads = h, .embed = c, .context = 1024, .vocab = 50257 \
    }
/* Features of later models of this size, which learn more from each token (Jordan et al. 2024). */
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
    .block_fwd = gpt2_block_fwd,
    .block_bwd = gpt2_block_bwd,
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
