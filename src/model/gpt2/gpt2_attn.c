/* gpt2_attn — the first half of a block: mid = x + drop(attention(ln_1(x)·Wqkv + b)·Wo + b), and
 * its backward. It must not know which activations were kept and which are computed again
 * (gpt2_acts.h). */
#include "model/gpt2/gpt2.h"

#include "base/assert.h"

/* ln_1, qkv and attention's output: what RECOMPUTE=attention computes twice. */
static enum status attend(const struct pass *p, int block)
{
    const struct gpt2_acts_block *a = &gpt2_acts(p)->block[block];
    int64_t h = p->dims->heads, d = p->dims->embed / h;
    struct attention_fwd attention = {
        .out = a->att,
        .lse = a->lse,
        .qkv = a->qkv,
        .mask = p->mask,
        .b = p->b,
        .t = p->t,
        .h = h,
        .hk = h,
        .d = d,
        .dropout = gpt2_dropout(p, block, GPT2_DROPOUT_PROBS, h * p->t * p->t)};
    ASSERTF(p->past == 0 || p->b * p->t == 1, "past %lld b %lld t %lld", (long long)p->past,
            (long long)p->b, (long long)p->t);
    struct attention_decode last = {
        .out = a->att, .qkv = a->qkv, .b = 1, .t = p->past + 1, .h = h, .hk = h, .d = d};
    struct tensor rows = tensor_at(a->qkv, p->past * 3 * p->dims->embed);
    TRY(gpt2_norm(p, gpt2_param(block, GPT2_PARAM_LN1), a->ln1, a->ln1_mean, a->ln1_rstd, a->x));
    TRY(gpt2_linear(p, gpt2_param(block, GPT2_PARAM_QKV),
                    (struct matmul_fwd){.y = rows, .x = a->ln1}));
    return p->past > 0 ? p->op->attention_decode(p->stream, &last)
                       : p->op->attention_fwd(p->stream, &attention);
}

enum status gpt2_attn_fwd(const struct pass *p, int block)
{
    const struct gpt2_acts_block *a = &gpt2_acts(p)->block[block];
    struct dropout dropout = gpt2_dropout(p, block, GPT2_DROPOUT_ATT, p->t * p->dims->embed);
    TRY(attend(p, block));
    return gpt2_linear(
        p, gpt2_param(block, GPT2_PARAM_ATT),
        (struct matmul_fwd){.y = a->mid, .x = a->att, .residual = a->x, .dropout = dropout});
}

/* dx, the gradient of mid, to dqkv in the first three quarters of wide; the last quarter holds the
 * gradient of attention's output. */
static enum status attend_bwd(const struct pass *p, int block, struct tensor dqkv)
{
    const struct gpt2_acts_block *a = &gpt2_acts(p)->block[block];
    int64_t h = p->dims->heads, d = p->dims->embed / h;
    int proj = gpt2_param(block, GPT2_PARAM_ATT);
    struct tensor none = {0}, dout, datt = tensor_at(dqkv, p->b * p->t * 3 * h * d);
    struct attention_bwd attention = {
        .dqkv = dqkv,
        .dout = datt,
        .out = a->att,
        .qkv = a->qkv,
        .lse = a->lse,
        .mask = p->mask,
        .b = p->b,
        .t = p->t,
        .h = h,
        .hk = h,
        .d = d,
        .dropout = gpt2_dropout(p, block, GPT2_DROPOUT_PROBS, h * p->t * p->t)};
    TRY(gpt2_branch_grad(p, block, GPT2_DROPOUT_ATT, &dout));
    TRY(gpt2_linear_bwd_w(p, proj, a->att, dout));
    TRY(gpt2_linear_bwd_x(p, proj, datt, dout, none));
    return p->op->attention_bwd(p->stream, &attention);
}

enum status gpt2_attn_bwd(const struct pass *p, int block)
{
    const struct gpt2_acts_block *a = &gpt2_acts(p)->block[block];
    struct tensor y = gpt2_acts(p)->y, dqkv = gpt2_acts(p)->wide, none = {0};
    int norm = gpt2_param(block, GPT2_PARAM_LN1), qkv = gpt2_param(block, GPT2_PARAM_QKV);
    if (p->recompute == MODEL_RECOMPUTE_ATTENTION)
        TRY(attend(p, block));
    TRY(attend_bwd(p, block, dqkv));
    TRY(gpt2_norm_again(p, norm, a->ln1, a->x));
    TRY(gpt2_linear_bwd_w(p, qkv, a->ln1, dqkv));
    TRY(gpt2_linear_bwd_x(p, qkv, y, dqkv, none));
    return gpt2_norm_bwd(p, norm, y, a->x, a->ln1_mean, a->ln1_rstd, true);
}
