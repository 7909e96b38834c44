/* block_attn — the first half of a block: mid = x + drop(attention(ln_1(x)·Wqkv + b)·Wo + b), and its adjoint.
 *
 * Must not know which of its activations were kept and which it is asked to write again (acts.h). */
#include "model/gpt2.h"

/* ln_1, qkv and attention's output: what RECOMPUTE=attention does twice. */
static enum status attend(const struct pass *p, int block)
{
    const struct acts_block *a = &p->acts->block[block];
    struct tensor y = p->acts->y;
    int64_t n = p->b * p->t, c = p->dims->embed, h = p->dims->heads;
    TRY(gpt2_norm(p, y, a->ln1_mean, a->ln1_rstd, a->x, gpt2_block(p, block, GPT2_ROW_LN1_W),
                  gpt2_block(p, block, GPT2_ROW_LN1_B)));
    TRY(p->op->matmul_fwd(p->stream, &(struct matmul_fwd){.y = a->qkv, .x = y, .w = gpt2_block(p, block, GPT2_ROW_QKV_W).w,
                                                          .b = gpt2_block(p, block, GPT2_ROW_QKV_B).w, .n = n, .in = c,
                                                          .out = 3 * c, .layout = MATMUL_LAYOUT_IO}));
    return p->op->attention_fwd(
        p->stream, &(struct attention_fwd){.out = a->att, .lse = a->lse, .qkv = a->qkv, .mask = p->mask, .b = p->b, .t = p->t,
                                           .h = h, .d = c / h,
                                           .dropout = gpt2_dropout(p, block, GPT2_PLACE_PROBS, h * p->t * p->t)});
}

enum status block_attn_fwd(const struct pass *p, int block)
{
    const struct acts_block *a = &p->acts->block[block];
    int64_t c = p->dims->embed;
    TRY(attend(p, block));
    return p->op->matmul_fwd(
        p->stream, &(struct matmul_fwd){.y = a->mid, .x = a->att, .w = gpt2_block(p, block, GPT2_ROW_ATT_W).w,
                                        .b = gpt2_block(p, block, GPT2_ROW_ATT_B).w, .residual = a->x, .n = p->b * p->t,
                                        .in = c, .out = c, .layout = MATMUL_LAYOUT_IO,
                                        .dropout = gpt2_dropout(p, block, GPT2_PLACE_ATT, p->t * c)});
}

/* From dx, the gradient of mid, to dqkv at the front of wide; attention's own gradient uses wide's last quarter. */
static enum status attend_bwd(const struct pass *p, int block, struct tensor dqkv)
{
    const struct acts_block *a = &p->acts->block[block];
    int64_t n = p->b * p->t, c = p->dims->embed, h = p->dims->heads;
    struct tensor dout, datt = tensor_at(dqkv, 3 * n * c);
    struct gpt2_param w = gpt2_block(p, block, GPT2_ROW_ATT_W), b = gpt2_block(p, block, GPT2_ROW_ATT_B);
    TRY(gpt2_branch(p, block, GPT2_PLACE_ATT, &dout));
    TRY(p->op->matmul_bwd_w(p->stream, &(struct matmul_bwd_w){.dw = w.dw, .db = b.dw, .x = a->att, .dy = dout, .n = n, .in = c,
                                                              .out = c, .layout = MATMUL_LAYOUT_IO,
                                                              .accumulate = p->accumulate}));
    TRY(p->op->matmul_bwd_x(p->stream, &(struct matmul_bwd_x){.dx = datt, .dy = dout, .w = w.w, .n = n, .in = c, .out = c,
                                                              .layout = MATMUL_LAYOUT_IO}));
    return p->op->attention_bwd(
        p->stream, &(struct attention_bwd){.dqkv = dqkv, .dout = datt, .out = a->att, .qkv = a->qkv, .lse = a->lse,
                                           .mask = p->mask, .b = p->b, .t = p->t, .h = h, .d = c / h,
                                           .dropout = gpt2_dropout(p, block, GPT2_PLACE_PROBS, h * p->t * p->t)});
}

enum status block_attn_bwd(const struct pass *p, int block)
{
    const struct acts_block *a = &p->acts->block[block];
    struct tensor y = p->acts->y, dqkv = p->acts->wide;
    int64_t n = p->b * p->t, c = p->dims->embed;
    struct gpt2_param w = gpt2_block(p, block, GPT2_ROW_QKV_W), b = gpt2_block(p, block, GPT2_ROW_QKV_B);
    struct gpt2_param nw = gpt2_block(p, block, GPT2_ROW_LN1_W), nb = gpt2_block(p, block, GPT2_ROW_LN1_B);
    struct tensor none = {0};
    if (p->recompute == MODEL_RECOMPUTE_ATTENTION)
        TRY(attend(p, block));
    TRY(attend_bwd(p, block, dqkv));
    TRY(gpt2_norm(p, y, none, none, a->x, nw, nb));
    TRY(p->op->matmul_bwd_w(p->stream, &(struct matmul_bwd_w){.dw = w.dw, .db = b.dw, .x = y, .dy = dqkv, .n = n, .in = c,
                                                              .out = 3 * c, .layout = MATMUL_LAYOUT_IO,
                                                              .accumulate = p->accumulate}));
    TRY(p->op->matmul_bwd_x(p->stream, &(struct matmul_bwd_x){.dx = y, .dy = dqkv, .w = w.w, .n = n, .in = c, .out = 3 * c,
                                                              .layout = MATMUL_LAYOUT_IO}));
    return gpt2_norm_bwd(p, y, a->x, a->ln1_mean, a->ln1_rstd, nw, nb, true);
}
