/* transformer — the operations that all its files use, the embedding, and the order of a block's
 * halves.
 *
 * The halves of a block are in transformer_attn.c and transformer_mlp.c, what follows the last
 * block in transformer_head_lm.c and transformer_head_qa.c, tensor parallelism in
 * transformer_tensor.c, context parallelism in transformer_context.c, memory in
 * transformer_plan.c, the table of parameters in transformer_params.c. */
#include "model/transformer/transformer.h"

#include "base/assert.h"
#include "base/rand.h"

/* ---- architectures ---- */

const struct transformer_arch *transformer_arch(enum model_arch arch)
{
    static const struct transformer_arch *const row[MODEL_ARCH_N] = {
        [MODEL_ARCH_GPT2] = &gpt2_arch,    [MODEL_ARCH_LLAMA] = &llama_arch,
        [MODEL_ARCH_QWEN2] = &qwen_2_arch, [MODEL_ARCH_QWEN3] = &qwen_3_arch,
        [MODEL_ARCH_NEOX] = &neox_arch,
    };
    return row[arch];
}

enum status transformer_arch_check(const struct model_dims *dims, const char *setting,
                                   int64_t value, int64_t want, const char *why)
{
    if (value == want)
        return ST_OK;
    return FAIL(ST_BAD_SETTING, "%s is %lld, but %s needs %lld (%s); leave %s out", setting,
                (long long)value, transformer_arch(dims->arch)->name, (long long)want, why,
                setting);
}

static const struct param *param_of(const struct pass *p, int param)
{
    ASSERTF(param >= 0 && param < p->table->params_n, "param %d of %d", param, p->table->params_n);
    return &p->table->param[param];
}

struct tensor transformer_w(const struct pass *p, int param)
{
    return param < 0 ? (struct tensor){0} : tensor_at(p->params, param_of(p, param)->offset);
}

struct tensor transformer_dw(const struct pass *p, int param)
{
    if (param < 0)
        return (struct tensor){0};
    const struct param *at = param_of(p, param);
    return tensor_at(p->grads, p->grad_table ? p->grad_table->param[param].offset : at->offset);
}

struct tensor transformer_dw_vocab(const struct pass *p)
{
    return p->token_grad.data ? p->token_grad
                              : transformer_dw(p, transformer_params_vocab(p->dims));
}

struct dropout transformer_dropout(const struct pass *p, int block,
                                   enum transformer_dropout_place place, int64_t sample_elems)
{
    int64_t layer = place == TRANSFORMER_DROPOUT_EMBED ? 0 : model_layer(p->dims, block);
    if (!p->want_grad || p->dropout <= 0)
        return (struct dropout){0};
    return (struct dropout){.p = p->dropout,
                            .seed = p->dropout_seed,
                            .stream = RAND_STREAM(DROPOUT, layer * 4 + (int)place),
                            .offset = (uint64_t)(p->sample_first * sample_elems)};
}

enum status transformer_branch_grad(const struct pass *p, int block,
                                    enum transformer_dropout_place place, struct tensor *out)
{
    int64_t sample_elems = transformer_context_tokens(p) * p->dims->embed;
    struct dropout dropout = transformer_dropout(p, block, place, sample_elems);
    struct drop drop = {
        .y = transformer_acts(p)->y, .x = transformer_acts(p)->dx, .dropout = dropout};
    if (dropout.p <= 0)
        return transformer_tensor_gather(p, drop.x, out);
    TRY(transformer_context_drop(p, drop));
    return transformer_tensor_gather(p, drop.y, out);
}

/* ---- norm ---- */

static enum norm_kind kind_of(const struct pass *p)
{
    return p->dims->features.norm == MODEL_NORM_RMS ? NORM_KIND_RMS : NORM_KIND_LAYER;
}

/* bias_of — the number of a norm's bias; -1: RMSNorm has none. */
static int bias_of(const struct pass *p, int param)
{
    return p->dims->features.norm == MODEL_NORM_LAYER ? param + 1 : -1;
}

enum status transformer_norm(const struct pass *p, int param, struct tensor y, struct tensor mean,
                             struct tensor rstd, struct tensor x)
{
    int64_t first;
    struct norm_fwd norm = {.y = y,
                            .mean = mean,
                            .rstd = rstd,
                            .x = x,
                            .w = transformer_w(p, param),
                            .b = transformer_w(p, bias_of(p, param)),
                            .n = transformer_tensor_own_rows(p, &first),
                            .c = p->dims->embed,
                            .eps = (float)model_norm_eps(p->dims),
                            .kind = kind_of(p)};
    return p->op->norm_fwd(p->stream, &norm);
}

enum status transformer_norm_again(const struct pass *p, int block, int param, struct tensor y,
                                   struct tensor x)
{
    struct tensor none = {0};
    if (transformer_recompute(p, block) == MODEL_RECOMPUTE_NONE)
        return ST_OK;
    return transformer_norm(p, param, y, none, none, x);
}

enum status transformer_norm_bwd(const struct pass *p, int param, struct norm_bwd how)
{
    int64_t first;
    how.dw = transformer_dw(p, param);
    how.db = transformer_dw(p, bias_of(p, param));
    how.w = transformer_w(p, param);
    how.n = transformer_tensor_own_rows(p, &first);
    how.c = p->dims->embed;
    how.kind = kind_of(p);
    how.accumulate = p->accumulate;
    return p->op->norm_bwd(p->stream, &how);
}

/* ---- linear layers ---- */

static enum matmul_layout layout_of(const struct pass *p)
{
    return transformer_arch(p->dims->arch)->layout;
}

enum status transformer_linear(const struct pass *p, int block, enum transformer_layer layer,
                               struct matmul_fwd how)
{
    struct transformer_linear l = transformer_params_linear(p->dims, block, layer);
    how.w = transformer_w(p, l.w);
    how.b = transformer_w(p, l.b);
    how.n = p->b * p->t;
    how.in = l.in;
    how.out = l.out;
    how.layout = layout_of(p);
    return p->op->matmul_fwd(p->stream, &how);
}

enum status transformer_linear_sum(const struct pass *p, int block, enum transformer_layer layer,
                                   struct tensor y, struct tensor x)
{
    struct transformer_linear l = transformer_params_linear(p->dims, block, layer);
    struct matmul_fwd product = {.y = y,
                                 .x = x,
                                 .w = transformer_w(p, l.w),
                                 .n = p->b * p->t,
                                 .in = l.in,
                                 .out = l.out,
                                 .layout = layout_of(p)};
    return p->op->matmul_fwd(p->stream, &product);
}

enum status transformer_linear_bwd_w(const struct pass *p, int block, enum transformer_layer layer,
                                     struct tensor x, struct tensor dy)
{
    struct transformer_linear l = transformer_params_linear(p->dims, block, layer);
    struct matmul_bwd_w product = {.dw = transformer_dw(p, l.w),
                                   .db = transformer_dw(p, l.b),
                                   .x = x,
                                   .dy = dy,
                                   .n = p->b * p->t,
                                   .in = l.in,
                                   .out = l.out,
                                   .layout = layout_of(p),
                                   .accumulate = p->accumulate};
    return p->op->matmul_bwd_w(p->stream, &product);
}

enum status transformer_linear_bwd_x(const struct pass *p, int block, enum transformer_layer layer,
                                     struct tensor dx, struct tensor dy, struct tensor pre)
{
    struct transformer_linear l = transformer_params_linear(p->dims, block, layer);
    struct matmul_bwd_x product = {.dx = dx,
                                   .dy = dy,
                                   .w = transformer_w(p, l.w),
                                   .pre = pre,
                                   .n = p->b * p->t,
                                   .in = l.in,
                                   .out = l.out,
                                   .layout = layout_of(p)};
    return p->op->matmul_bwd_x(p->stream, &product);
}

/* ---- units ---- */

/* wpe_of — the number of the learned positions; -1: there are none. */
static int wpe_of(const struct pass *p)
{
    return p->dims->features.position == MODEL_POSITION_LEARNED ? TRANSFORMER_WPE : -1;
}

/* make_rope — the table of rotations of this pass's positions in a sample, for all its blocks. */
static enum status make_rope(const struct pass *p)
{
    struct rope_table all = {.table = transformer_acts(p)->rope,
                             .rot = transformer_params_rotated(p->dims)};
    struct transformer_rows rows = {0};
    if (p->dims->features.position != MODEL_POSITION_ROPE)
        return ST_OK;
    all.scale = rope_freq(&p->dims->features.rope, all.rot, all.freq);
    while (transformer_context_next(p, p->t, &rows)) {
        struct rope_table run = all;
        run.table = tensor_at(all.table, rows.first * all.rot);
        run.first = p->past + rows.index;
        run.t = rows.n;
        TRY(p->op->rope_table(p->stream, &run));
    }
    return ST_OK;
}

static enum status embed_fwd(const struct pass *p)
{
    int64_t c = p->dims->embed, sample_elems = transformer_context_tokens(p) * c;
    struct embed_fwd embed = {
        .x = transformer_acts(p)->block[0].x,
        .tokens = p->tokens,
        .wte = transformer_w(p, TRANSFORMER_WTE),
        .wpe = tensor_at(transformer_w(p, wpe_of(p)), p->past * c),
        .n = p->b * p->t,
        .t = p->t,
        .c = c,
        .dropout = transformer_dropout(p, 0, TRANSFORMER_DROPOUT_EMBED, sample_elems)};
    TRY(make_rope(p));
    if (p->dims->shard.lacks_embed)
        return ST_OK;
    return p->tensor ? transformer_tensor_embed_fwd(p, embed)
                     : transformer_context_embed_fwd(p, &embed);
}

static enum status embed_bwd(const struct pass *p)
{
    const struct model_dims *d = p->dims;
    int64_t sample_elems = transformer_context_tokens(p) * d->embed;
    struct embed_bwd embed = {
        .dwte = (p->lacks_token_grad  ? (struct tensor){0}
                 : p->token_grad.data ? p->token_grad
                                      : transformer_dw(p, TRANSFORMER_WTE)),
        .dwpe = transformer_dw(p, d->shard.lacks_embed ? -1 : wpe_of(p)),
        .dx = transformer_acts(p)->dx,
        .tokens = p->tokens,
        .n = p->b * p->t,
        .t = p->t,
        .c = d->embed,
        .v = d->vocab,
        .context = d->context,
        .accumulate = p->accumulate,
        .dropout = transformer_dropout(p, 0, TRANSFORMER_DROPOUT_EMBED, sample_elems)};
    return p->tensor ? transformer_tensor_embed_bwd(p, embed)
                     : transformer_context_embed_bwd(p, &embed);
}

static enum status block_fwd(const struct pass *p, int block)
{
    TRY(transformer_attn_fwd(p, block));
    return transformer_mlp_fwd(p, block);
}

static enum status block_bwd(const struct pass *p, int block)
{
    /* with parallel residuals the MLP does not read the first half's output */
    if (transformer_recompute(p, block) == MODEL_RECOMPUTE_BLOCK && !p->dims->features.is_parallel)
        TRY(transformer_attn_fwd(p, block));
    TRY(transformer_mlp_bwd(p, block));
    return transformer_attn_bwd(p, block);
}

#define TRANSFORMER_OPS(task)                                                              \
    {                                                                                      \
        .describe = transformer_params_describe, .plan = transformer_plan,                 \
        .plan_kv_cache = transformer_plan_kv_cache,                                        \
        .flops_per_token = transformer_plan_flops_per_token, .embed_fwd = embed_fwd,       \
        .embed_bwd = embed_bwd, .block_fwd = block_fwd, .block_bwd = block_bwd,            \
        .head = transformer_head_##task##_run, .logits = transformer_head_##task##_logits, \
    }
const struct model_ops transformer_lm_ops = TRANSFORMER_OPS(lm),
                       transformer_qa_ops = TRANSFORMER_OPS(qa);
