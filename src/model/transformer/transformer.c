/* transformer — the architectures, the tensors of parameters, and the embedding. */
#include "model/transformer/transformer.h"

#include "base/assert.h"

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
    if (p->dims->adapter.r > 0) /* a bias has the number after its weight's */
        return tensor_at(transformer_acts(p)->unread, param % 2 * transformer_unread(p->dims));
    return tensor_at(p->grads, p->grad_table ? p->grad_table->param[param].offset : at->offset);
}

struct tensor transformer_dw_vocab(const struct pass *p)
{
    return p->token_grad.data ? p->token_grad
                              : transformer_dw(p, transformer_params_vocab(p->dims));
}

/* ---- units ---- */

/* wpe_of — returns the number of the learned positions; -1: there are none. */
static int wpe_of(const struct pass *p)
{
    return p->dims->features.position == MODEL_POSITION_LEARNED ? TRANSFORMER_WPE : -1;
}

/* Writes the table of rotations of this pass's positions in a sample, for all its blocks. */
static enum status make_rope(const struct pass *p)
{
    struct rope_table all = {.table = transformer_acts(p)->rope,
                             .rot = transformer_params_rotated(p->dims)};
    struct transformer_rows rows = {0};
    if (p->dims->features.position != MODEL_POSITION_ROPE)
        return ST_OK;
    all.scale = rope_freq(&p->dims->features.rope, all.rot, all.freq);
    while (transformer_rows_next(p, p->t, &rows)) {
        struct rope_table run = all;
        run.table = tensor_at(all.table, rows.first * all.rot);
        run.first = p->past + rows.index;
        run.t = rows.n;
        TRY(p->op->rope_table(p->stream, &run));
    }
    return ST_OK;
}

/* Embeds all rows of the pass from own rows of the vocabulary; the first rank adds the positions.
 * Dropout follows the sum. */
static enum status embed_vocab_shard(const struct pass *p, struct embed_fwd embed)
{
    struct drop drop = {.y = embed.x, .x = transformer_acts(p)->y, .dropout = embed.dropout};
    model_vocab_shard(p->dims, &embed.first, &embed.rows);
    embed.x = transformer_acts(p)->rows;
    if (p->tensor->at > 0)
        embed.wpe = (struct tensor){0};
    embed.dropout = (struct dropout){0};
    TRY(transformer_embed_fwd(p, &embed));
    TRY(transformer_reduce_scatter_rows(p));
    return transformer_drop(p, drop);
}

static enum status embed_fwd(const struct pass *p)
{
    int64_t c = p->dims->embed;
    struct embed_fwd embed = {.x = transformer_acts(p)->block[0].x,
                              .tokens = p->tokens,
                              .wte = transformer_w(p, TRANSFORMER_WTE),
                              .wpe = tensor_at(transformer_w(p, wpe_of(p)), p->past * c),
                              .positions = p->positions,
                              .n = p->b * p->t,
                              .t = p->t,
                              .c = c,
                              .dropout = transformer_row_dropout(p, 0, TRANSFORMER_DROPOUT_EMBED)};
    TRY(make_rope(p));
    if (p->dims->shard.lacks_embed)
        return ST_OK;
    return transformer_has_all_rows(p) ? transformer_embed_fwd(p, &embed)
                                       : embed_vocab_shard(p, embed);
}

static enum status embed_bwd(const struct pass *p)
{
    const struct model_dims *d = p->dims;
    if (d->adapter.r > 0)
        return ST_OK;
    struct embed_bwd embed = {.dwte = (p->lacks_token_grad  ? (struct tensor){0}
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
                              .accumulate = p->accumulate};
    if (transformer_has_all_rows(p)) {
        embed.dropout = transformer_row_dropout(p, 0, TRANSFORMER_DROPOUT_EMBED);
    } else {
        model_vocab_shard(d, &embed.first, &embed.rows);
        TRY(transformer_branch_grad(p, 0, TRANSFORMER_DROPOUT_EMBED, &embed.dx));
    }
    return transformer_embed_bwd(p, &embed);
}

static enum status block_fwd(const struct pass *p, int block)
{
    return transformer_arch(p->dims->arch)->block_fwd(p, block);
}

static enum status block_bwd(const struct pass *p, int block)
{
    return transformer_arch(p->dims->arch)->block_bwd(p, block);
}

#define TRANSFORMER_OPS(task)                                                              \
    {                                                                                      \
        .describe = transformer_params_describe,                                           \
        .describe_adapter = transformer_params_describe_adapter, .embed_fwd = embed_fwd,   \
        .embed_bwd = embed_bwd, .block_fwd = block_fwd, .block_bwd = block_bwd,            \
        .head = transformer_head_##task##_run, .logits = transformer_head_##task##_logits, \
    }
const struct model_ops transformer_lm_ops = TRANSFORMER_OPS(lm),
                       transformer_qa_ops = TRANSFORMER_OPS(qa);
