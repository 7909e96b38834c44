/* transformer_mlp — the second half of a block: out = mid + drop(act(norm(x)·Wup + b)·Wdown + b),
 * and its backward; x is mid, or, with parallel residuals, the block's input. It must not know
 * which activations were kept and which are computed again (transformer.h). */
#include "model/transformer/transformer.h"

static int norm_of(const struct pass *p, int block)
{
    return transformer_params_at(p->dims, block, TRANSFORMER_PARAM_NORM2);
}

/* input_of — what the half's norm reads. */
static struct tensor input_of(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = &transformer_acts(p)->block[block];
    return p->dims->features.is_parallel ? a->x : a->mid;
}

static bool has_square(const struct pass *p) { return p->dims->features.mlp == MODEL_MLP_RELU2; }

static bool has_gate(const struct pass *p) { return p->dims->features.mlp == MODEL_MLP_SWIGLU; }

static enum gelu_kind gelu_of(const struct pass *p)
{
    return p->dims->features.mlp == MODEL_MLP_GELU_ERF ? GELU_KIND_ERF : GELU_KIND_TANH;
}

/* activate — act from pre. */
static enum status activate(const struct pass *p, const struct transformer_acts_block *a)
{
    int64_t n = p->b * p->t, f = model_ffn(p->dims);
    struct swiglu_fwd swiglu = {.y = a->act, .gu = a->pre, .n = n, .f = f};
    struct relu2_fwd relu2 = {.y = a->act, .x = a->pre, .n = n * f};
    struct gelu_fwd gelu = {.y = a->act, .x = a->pre, .n = n * f, .kind = gelu_of(p)};
    if (has_square(p))
        return p->op->relu2_fwd(p->stream, &relu2);
    return has_gate(p) ? p->op->swiglu_fwd(p->stream, &swiglu) : p->op->gelu_fwd(p->stream, &gelu);
}

/* is_fused — products have GELU's tanh form in their epilogue, and no other activation. */
static bool is_fused(const struct pass *p) { return p->dims->features.mlp == MODEL_MLP_GELU_TANH; }

/* The norm and the first product: with_act writes act, and pre for backward; else pre alone. */
static enum status expand(const struct pass *p, int block, bool with_act)
{
    const struct transformer_acts_block *a = &transformer_acts(p)->block[block];
    struct tensor none = {0};
    struct matmul_fwd how = {.y = a->pre};
    if (with_act && is_fused(p))
        how = (struct matmul_fwd){
            .y = a->act, .pre = p->want_grad ? a->pre : none, .act = MATMUL_ACT_GELU};
    TRY(transformer_norm(p, norm_of(p, block), a->norm2, a->norm2_mean, a->norm2_rstd,
                         input_of(p, block)));
    TRY(transformer_tensor_gather(p, a->norm2, &how.x));
    TRY(transformer_linear(p, block, TRANSFORMER_LAYER_UP, how));
    return with_act && !is_fused(p) ? activate(p, a) : ST_OK;
}

enum status transformer_mlp_fwd(const struct pass *p, int block)
{
    int64_t sample_elems = transformer_context_tokens(p) * p->dims->embed;
    struct matmul_fwd how = {
        .y = (block + 1 < p->dims->layers ? transformer_acts(p)->block[block + 1].x
                                          : transformer_acts(p)->out),
        .x = transformer_acts(p)->block[block].act,
        .residual = transformer_acts(p)->block[block].mid,
        .dropout = transformer_dropout(p, block, TRANSFORMER_DROPOUT_MLP, sample_elems)};
    TRY(expand(p, block, true));
    return transformer_tensor_branch(p, block, TRANSFORMER_LAYER_DOWN, how);
}

/* activate_bwd — the gradient of act to that of pre, at the start of wide. */
static enum status activate_bwd(const struct pass *p, const struct transformer_acts_block *a,
                                struct tensor dact)
{
    int64_t n = p->b * p->t, f = model_ffn(p->dims);
    struct tensor wide = transformer_acts(p)->wide;
    struct swiglu_bwd swiglu = {.dgu = wide, .dy = dact, .gu = a->pre, .n = n, .f = f};
    struct relu2_bwd relu2 = {.dx = wide, .dy = dact, .x = a->pre, .n = n * f};
    struct gelu_bwd gelu = {.dx = wide, .dy = dact, .x = a->pre, .n = n * f, .kind = gelu_of(p)};
    if (has_square(p))
        return p->op->relu2_bwd(p->stream, &relu2);
    return has_gate(p) ? p->op->swiglu_bwd(p->stream, &swiglu) : p->op->gelu_bwd(p->stream, &gelu);
}

/* contract_bwd — dx, the gradient of the block's output, to the gradient of pre at the start of
 * wide; the gradient of act takes the place that act has there if it was not kept. */
static enum status contract_bwd(const struct pass *p, int block)
{
    const struct transformer_acts_block *a = &transformer_acts(p)->block[block];
    struct tensor none = {0}, dout, dact = transformer_acts(p)->dact;
    TRY(transformer_branch_grad(p, block, TRANSFORMER_DROPOUT_MLP, &dout));
    if (a->recompute != MODEL_RECOMPUTE_NONE)
        TRY(activate(p, a));
    TRY(transformer_linear_bwd_w(p, block, TRANSFORMER_LAYER_DOWN, a->act, dout));
    TRY(transformer_linear_bwd_x(p, block, TRANSFORMER_LAYER_DOWN, dact, dout,
                                 is_fused(p) ? a->pre : none));
    return is_fused(p) ? ST_OK : activate_bwd(p, a, dact);
}

enum status transformer_mlp_bwd(const struct pass *p, int block)
{
    const struct transformer_acts *m = transformer_acts(p);
    const struct transformer_acts_block *a = &m->block[block];
    struct tensor all, x = input_of(p, block);
    if (a->recompute == MODEL_RECOMPUTE_BLOCK)
        TRY(expand(p, block, false));
    TRY(contract_bwd(p, block));
    TRY(transformer_norm_again(p, block, norm_of(p, block), a->norm2, x));
    TRY(transformer_tensor_gather(p, a->norm2, &all));
    TRY(transformer_linear_bwd_w(p, block, TRANSFORMER_LAYER_UP, all, m->wide));
    TRY(transformer_tensor_input_grad(p, block, TRANSFORMER_LAYER_UP, m->wide));
    return transformer_norm_bwd(
        p, norm_of(p, block),
        (struct norm_bwd){.dx = p->dims->features.is_parallel ? m->dmid : m->dx,
                          .dy = m->y,
                          .x = x,
                          .mean = a->norm2_mean,
                          .rstd = a->norm2_rstd,
                          .dresidual = m->dx});
}
