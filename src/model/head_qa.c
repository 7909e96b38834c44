/* head_qa — final LayerNorm, two logits a position (start and end of the answer), their cross-entropies and gradients.
 *
 * There is no vocabulary product, so nothing here writes wte's gradient (param.h: grad_is_added). */
#include "model/gpt2.h"

enum status head_qa_run(const struct pass *p)
{
    const struct model_acts *a = p->acts;
    int64_t n = p->b * p->t, c = p->dims->embed;
    struct tensor logits = a->wide;
    struct gpt2_param nw = gpt2_end(p, GPT2_END_LNF_W), nb = gpt2_end(p, GPT2_END_LNF_B);
    struct gpt2_param w = gpt2_end(p, GPT2_END_QA_W), b = gpt2_end(p, GPT2_END_QA_B);
    TRY(gpt2_norm(p, a->y, a->lnf_mean, a->lnf_rstd, a->out, nw, nb));
    TRY(p->op->matmul_fwd(p->stream, &(struct matmul_fwd){.y = logits, .x = a->y, .w = w.w, .b = b.w, .n = n, .in = c, .out = 2,
                                                          .layout = MATMUL_LAYOUT_OI}));
    TRY(p->op->qa_xent(p->stream, &(struct qa_xent){.losses = p->losses, .dlogits = p->want_grad ? logits : (struct tensor){0},
                                                    .logits = logits, .starts = p->starts, .ends = p->ends, .b = p->b,
                                                    .t = p->t, .scale_start = p->scale, .scale_end = p->scale_end}));
    if (!p->want_grad)
        return ST_OK;
    TRY(p->op->matmul_bwd_w(p->stream, &(struct matmul_bwd_w){.dw = w.dw, .db = b.dw, .x = a->y, .dy = logits, .n = n, .in = c,
                                                              .out = 2, .layout = MATMUL_LAYOUT_OI,
                                                              .accumulate = p->accumulate}));
    TRY(p->op->matmul_bwd_x(p->stream, &(struct matmul_bwd_x){.dx = a->y, .dy = logits, .w = w.w, .n = n, .in = c, .out = 2,
                                                              .layout = MATMUL_LAYOUT_OI}));
    return gpt2_norm_bwd(p, a->y, a->out, a->lnf_mean, a->lnf_rstd, nw, nb, false);
}
