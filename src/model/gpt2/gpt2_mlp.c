/* gpt2_mlp — the second half of a block: out = mid + drop(gelu(ln_2(mid)·Wfc + b)·Wo + b), and its
 * backward. It must not know which activations were kept and which are computed again
 * (gpt2_acts.h). */
#include "model/gpt2/gpt2.h"

static struct tensor out_of(const struct pass *p, int block)
{
    return block + 1 < p->dims->layers ? gpt2_acts(p)->block[block + 1].x : gpt2_acts(p)->out;
}

/* ln_2 and the first product: with_gelu writes gelu, and pre for backward; else pre alone. */
static enum status expand(const struct pass *p, int block, bool with_gelu)
{
    const struct gpt2_acts_block *a = &gpt2_acts(p)->block[block];
    struct tensor none = {0};
    struct matmul_fwd how = {.y = a->pre, .x = a->ln2};
    if (with_gelu)
        how = (struct matmul_fwd){
            .y = a->gelu, .pre = p->want_grad ? a->pre : none, .x = a->ln2, .act = MATMUL_ACT_GELU};
    TRY(gpt2_norm(p, gpt2_param(block, GPT2_PARAM_LN2), a->ln2, a->ln2_mean, a->ln2_rstd, a->mid));
    return gpt2_linear(p, gpt2_param(block, GPT2_PARAM_FC), how);
}

enum status gpt2_mlp_fwd(const struct pass *p, int block)
{
    struct matmul_fwd how = {.y = out_of(p, block),
                             .x = gpt2_acts(p)->block[block].gelu,
                             .residual = gpt2_acts(p)->block[block].mid,
                             .dropout =
                                 gpt2_dropout(p, block, GPT2_DROPOUT_MLP, p->t * p->dims->embed)};
    TRY(expand(p, block, true));
    return gpt2_linear(p, gpt2_param(block, GPT2_PARAM_MLP), how);
}

/* gelu_again — gelu(pre) for the backward pass, unless it was kept. */
static enum status gelu_again(const struct pass *p, const struct gpt2_acts_block *a)
{
    struct gelu_fwd gelu = {.y = a->gelu, .x = a->pre, .n = p->b * p->t * 4 * p->dims->embed};
    return p->recompute == MODEL_RECOMPUTE_NONE ? ST_OK : p->op->gelu_fwd(p->stream, &gelu);
}

/* dx, the gradient of the block's output, to the gradient of `pre` in wide; `gelu`, which may lie
 * there too, is read before. */
static enum status contract_bwd(const struct pass *p, int block)
{
    const struct gpt2_acts_block *a = &gpt2_acts(p)->block[block];
    struct tensor wide = gpt2_acts(p)->wide, dout;
    int proj = gpt2_param(block, GPT2_PARAM_MLP);
    TRY(gpt2_branch_grad(p, block, GPT2_DROPOUT_MLP, &dout));
    TRY(gelu_again(p, a));
    TRY(gpt2_linear_bwd_w(p, proj, a->gelu, dout));
    return gpt2_linear_bwd_x(p, proj, wide, dout, a->pre);
}

enum status gpt2_mlp_bwd(const struct pass *p, int block)
{
    const struct gpt2_acts_block *a = &gpt2_acts(p)->block[block];
    struct tensor y = gpt2_acts(p)->y, wide = gpt2_acts(p)->wide, none = {0};
    int norm = gpt2_param(block, GPT2_PARAM_LN2), fc = gpt2_param(block, GPT2_PARAM_FC);
    if (p->recompute == MODEL_RECOMPUTE_BLOCK)
        TRY(expand(p, block, false));
    TRY(contract_bwd(p, block));
    TRY(gpt2_norm_again(p, norm, a->ln2, a->mid));
    TRY(gpt2_linear_bwd_w(p, fc, a->ln2, wide));
    TRY(gpt2_linear_bwd_x(p, fc, y, wide, none));
    return gpt2_norm_bwd(p, norm, y, a->mid, a->ln2_mean, a->ln2_rstd, true);
}
