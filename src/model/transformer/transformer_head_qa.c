/* transformer_head_qa — final norm, two logits per position (start and end of the answer), their
 * cross-entropies and gradients. No product writes the token embedding's gradient (param.h:
 * grad_is_added). Every rank that shares matrices computes everything after the norm, so the
 * gradient of the norm's output is complete and own rows of it are used without a sum. Every rank
 * that shares samples gathers the logits of all positions and computes the losses. */
#include "model/transformer/transformer.h"

#include "base/assert.h"

enum status transformer_head_qa_run(const struct pass *p)
{
    const struct transformer_acts *a = transformer_acts(p);
    int64_t n = p->b * p->t, c = p->dims->embed;
    int qa = transformer_params_qa(p->dims);
    struct tensor logits = transformer_has_all_tokens(p) ? a->wide : a->kv, none = {0}, y = a->rows;
    struct matmul_fwd fwd = {.y = transformer_own_spans(p, logits),
                             .x = y,
                             .w = transformer_w(p, qa),
                             .b = transformer_w(p, qa + 1),
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
                           .t = transformer_tokens(p),
                           .scale_start = p->scale,
                           .scale_end = p->scale_end};
    struct matmul_bwd_w bwd_w = {.dw = transformer_dw(p, qa),
                                 .db = transformer_dw(p, qa + 1),
                                 .x = y,
                                 .n = n,
                                 .in = c,
                                 .out = 2,
                                 .layout = MATMUL_LAYOUT_OI,
                                 .accumulate = p->accumulate};
    struct matmul_bwd_x bwd_x = {
        .dx = y, .w = transformer_w(p, qa), .n = n, .in = c, .out = 2, .layout = MATMUL_LAYOUT_OI};
    TRY(transformer_norm_fwd(p, &a->norm));
    TRY(transformer_all_gather_rows(p, a->y, &y));
    TRY(p->op->matmul_fwd(p->stream, &fwd));
    TRY(transformer_all_gather_spans(p, logits));
    TRY(p->op->qa_xent(p->stream, &xent));
    if (!p->want_grad)
        return ST_OK;
    TRY(transformer_slice_spans(p, logits, &bwd_w.dy));
    bwd_x.dy = bwd_w.dy;
    TRY(p->op->matmul_bwd_w(p->stream, &bwd_w));
    TRY(p->op->matmul_bwd_x(p->stream, &bwd_x));
    int64_t first;
    (void)transformer_own_rows(p, &first);
    return transformer_norm_bwd(p, &a->norm, tensor_at(y, first * c), a->dx, none);
}

enum status transformer_head_qa_logits(const struct pass *p, int64_t row, struct tensor out)
{
    int qa = transformer_params_qa(p->dims);
    struct transformer_norm norm = transformer_acts(p)->norm;
    struct matmul_fwd product = {.y = transformer_own_spans(p, out),
                                 .w = transformer_w(p, qa),
                                 .b = transformer_w(p, qa + 1),
                                 .n = p->b * p->t,
                                 .in = p->dims->embed,
                                 .out = 2,
                                 .layout = MATMUL_LAYOUT_OI};
    ASSERTF(row == 0, "row %lld: all rows are made at once", (long long)row);
    norm.mean = norm.rstd = (struct tensor){0};
    TRY(transformer_norm_fwd(p, &norm));
    TRY(transformer_all_gather_rows(p, norm.y, &product.x));
    TRY(p->op->matmul_fwd(p->stream, &product));
    return transformer_all_gather_spans(p, out);
}
