/* block_mlp — the second half of a block: out = mid + drop(gelu(ln_2(mid)·Wfc + b)·Wo + b), and its adjoint.
 *
 * Must not know which of its activations were kept and which it is asked to write again (acts.h). */
#include "model/gpt2.h"

static struct tensor out_of(const struct pass *p, int block)
{
    return block + 1 < p->dims->layers ? p->acts->block[block + 1].x : p->acts->out;
}

/* ln_2 and the first product. With gelu its output goes to wide, without only `pre` is written. */
static enum status expand(const struct pass *p, int block, bool with_gelu)
{
    const struct acts_block *a = &p->acts->block[block];
    int64_t c = p->dims->embed;
    struct matmul_fwd fc = {.y = a->pre, .x = p->acts->y, .w = gpt2_block(p, block, GPT2_ROW_FC_W).w,
                            .b = gpt2_block(p, block, GPT2_ROW_FC_B).w, .n = p->b * p->t, .in = c, .out = 4 * c,
                            .layout = MATMUL_LAYOUT_IO};
    if (with_gelu) {
        fc.y = p->acts->wide;
        fc.pre = p->want_grad ? a->pre : (struct tensor){0};
        fc.act = MATMUL_ACT_GELU;
    }
    TRY(gpt2_norm(p, p->acts->y, a->ln2_mean, a->ln2_rstd, a->mid, gpt2_block(p, block, GPT2_ROW_LN2_W),
                  gpt2_block(p, block, GPT2_ROW_LN2_B)));
    return p->op->matmul_fwd(p->stream, &fc);
}

enum status block_mlp_fwd(const struct pass *p, int block)
{
    const struct acts_block *a = &p->acts->block[block];
    int64_t c = p->dims->embed;
    TRY(expand(p, block, true));
    return p->op->matmul_fwd(
        p->stream, &(struct matmul_fwd){.y = out_of(p, block), .x = p->acts->wide, .w = gpt2_block(p, block, GPT2_ROW_MLP_W).w,
                                        .b = gpt2_block(p, block, GPT2_ROW_MLP_B).w, .residual = a->mid, .n = p->b * p->t,
                                        .in = 4 * c, .out = c, .layout = MATMUL_LAYOUT_IO,
                                        .dropout = gpt2_dropout(p, block, GPT2_PLACE_MLP, p->t * c)});
}

/* From dx, the gradient of the block's output, to the gradient of `pre` in wide, which holds gelu(pre) before. */
static enum status contract_bwd(const struct pass *p, int block)
{
    const struct acts_block *a = &p->acts->block[block];
    int64_t n = p->b * p->t, c = p->dims->embed;
    struct tensor wide = p->acts->wide, dout;
    struct gpt2_param w = gpt2_block(p, block, GPT2_ROW_MLP_W), b = gpt2_block(p, block, GPT2_ROW_MLP_B);
    TRY(gpt2_branch(p, block, GPT2_PLACE_MLP, &dout));
    TRY(p->op->gelu_fwd(p->stream, &(struct gelu_fwd){.y = wide, .x = a->pre, .n = n * 4 * c}));
    TRY(p->op->matmul_bwd_w(p->stream, &(struct matmul_bwd_w){.dw = w.dw, .db = b.dw, .x = wide, .dy = dout, .n = n,
                                                              .in = 4 * c, .out = c, .layout = MATMUL_LAYOUT_IO,
                                                              .accumulate = p->accumulate}));
    return p->op->matmul_bwd_x(p->stream, &(struct matmul_bwd_x){.dx = wide, .dy = dout, .w = w.w, .pre = a->pre, .n = n,
                                                                 .in = 4 * c, .out = c, .layout = MATMUL_LAYOUT_IO});
}

enum status block_mlp_bwd(const struct pass *p, int block)
{
    const struct acts_block *a = &p->acts->block[block];
    struct tensor y = p->acts->y, wide = p->acts->wide, none = {0};
    int64_t n = p->b * p->t, c = p->dims->embed;
    struct gpt2_param w = gpt2_block(p, block, GPT2_ROW_FC_W), b = gpt2_block(p, block, GPT2_ROW_FC_B);
    struct gpt2_param nw = gpt2_block(p, block, GPT2_ROW_LN2_W), nb = gpt2_block(p, block, GPT2_ROW_LN2_B);
    if (p->recompute == MODEL_RECOMPUTE_BLOCK)
        TRY(expand(p, block, false));
    TRY(contract_bwd(p, block));
    TRY(gpt2_norm(p, y, none, none, a->mid, nw, nb));
    TRY(p->op->matmul_bwd_w(p->stream, &(struct matmul_bwd_w){.dw = w.dw, .db = b.dw, .x = y, .dy = wide, .n = n, .in = c,
                                                              .out = 4 * c, .layout = MATMUL_LAYOUT_IO,
                                                              .accumulate = p->accumulate}));
    TRY(p->op->matmul_bwd_x(p->stream, &(struct matmul_bwd_x){.dx = y, .dy = wide, .w = w.w, .n = n, .in = c, .out = 4 * c,
                                                              .layout = MATMUL_LAYOUT_IO}));
    return gpt2_norm_bwd(p, y, a->mid, a->ln2_mean, a->ln2_rstd, nw, nb, true);
}
