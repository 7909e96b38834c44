/* gpt2_head_qa — final LayerNorm, two logits a position (start and end of the answer), their
 * cross-entropies and gradients. No product writes wte's gradient (param.h: grad_is_added). */
#include "model/gpt2/gpt2.h"

#include "base/assert.h"

enum status gpt2_head_qa_run(const struct pass *p)
{
    const struct gpt2_acts *a = gpt2_acts(p);
    int64_t n = p->b * p->t, c = p->dims->embed;
    int norm = gpt2_end_param(p, GPT2_END_LNF), qa = gpt2_end_param(p, GPT2_END_QA);
    struct tensor logits = a->wide, none = {0};
    struct matmul_fwd fwd = {.y = logits,
                             .x = a->y,
                             .w = gpt2_w(p, qa),
                             .b = gpt2_w(p, qa + 1),
                             .n = n,
                             .in = c,
                             .out = 2,
                             .layout = MATMUL_LAYOUT_OI};
    struct qa_xent xent = {.losses = p->losses,
                           .dlogits = p->want_grad ? logits : none,
                           .logits = logits,
                           .starts = p->starts,
                           .ends = p->ends,
                           .b = p->b,
                           .t = p->t,
                           .scale_start = p->scale,
                           .scale_end = p->scale_end};
    struct matmul_bwd_w bwd_w = {.dw = gpt2_dw(p, qa),
                                 .db = gpt2_dw(p, qa + 1),
                                 .x = a->y,
                                 .dy = logits,
                                 .n = n,
                                 .in = c,
                                 .out = 2,
                                 .layout = MATMUL_LAYOUT_OI,
                                 .accumulate = p->accumulate};
    struct matmul_bwd_x bwd_x = {.dx = a->y,
                                 .dy = logits,
                                 .w = gpt2_w(p, qa),
                                 .n = n,
                                 .in = c,
                                 .out = 2,
                                 .layout = MATMUL_LAYOUT_OI};
    TRY(gpt2_norm(p, norm, a->y, a->lnf_mean, a->lnf_rstd, a->out));
    TRY(p->op->matmul_fwd(p->stream, &fwd));
    TRY(p->op->qa_xent(p->stream, &xent));
    if (!p->want_grad)
        return ST_OK;
    TRY(p->op->matmul_bwd_w(p->stream, &bwd_w));
    TRY(p->op->matmul_bwd_x(p->stream, &bwd_x));
    return gpt2_norm_bwd(p, norm, a->y, a->out, a->lnf_mean, a->lnf_rstd, false);
}

enum status gpt2_head_qa_logits(const struct pass *p, int64_t row, struct tensor out)
{
    int qa = gpt2_end_param(p, GPT2_END_QA);
    struct tensor none = {0};
    struct matmul_fwd product = {.y = out,
                                 .x = gpt2_acts(p)->y,
                                 .w = gpt2_w(p, qa),
                                 .b = gpt2_w(p, qa + 1),
                                 .n = p->b * p->t,
                                 .in = p->dims->embed,
                                 .out = 2,
                                 .layout = MATMUL_LAYOUT_OI};
    ASSERTF(row == 0, "row %lld: all rows are made at once", (long long)row);
    TRY(gpt2_norm(p, gpt2_end_param(p, GPT2_END_LNF), gpt2_acts(p)->y, none, none,
                  gpt2_acts(p)->out));
    return p->op->matmul_fwd(p->stream, &product);
}
