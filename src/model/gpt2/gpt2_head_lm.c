/* gpt2_head_lm — final LayerNorm, vocabulary product with the tied token embedding, cross-entropy,
 * and their gradients.
 *
 * Works on chunks of logits_rows rows: product, loss and gradient in place, then both gradient
 * products while the chunk is in cache. ln_f's output stays in y; the rows of a chunk are replaced
 * by their gradient once the weight gradient has been taken from them. Writes dwte unless
 * accumulating; embed_bwd adds to it. */
#include "model/gpt2/gpt2.h"

#include "base/assert.h"

/* n rows of y with the token embedding (V,C), to logits with rows `stride` apart. */
static enum status vocab_product(const struct pass *p, struct tensor logits, struct tensor y,
                                 int64_t n, int64_t stride)
{
    struct matmul_fwd product = {.y = logits,
                                 .x = y,
                                 .w = gpt2_w(p, GPT2_WTE),
                                 .n = n,
                                 .in = p->dims->embed,
                                 .out = p->dims->vocab,
                                 .y_stride = stride,
                                 .layout = MATMUL_LAYOUT_OI};
    return p->op->matmul_fwd(p->stream, &product);
}

static enum status chunk_run(const struct pass *p, int64_t first, int64_t n, bool is_last)
{
    int64_t c = p->dims->embed, v = p->dims->vocab, stride = gpt2_acts(p)->logits_stride;
    struct tensor y = tensor_at(gpt2_acts(p)->y, first * c), logits = gpt2_acts(p)->wide;
    struct xent xent = {.logits = logits,
                        .losses = tensor_at(p->losses, first),
                        .targets = tensor_at(p->targets, first),
                        .n = n,
                        .v = v,
                        .stride = stride,
                        .scale = p->scale,
                        .want_grad = p->want_grad};
    struct matmul_bwd_w bwd_w = {.dw = gpt2_dw(p, GPT2_WTE),
                                 .x = y,
                                 .dy = logits,
                                 .n = n,
                                 .in = c,
                                 .out = v,
                                 .dy_stride = stride,
                                 .layout = MATMUL_LAYOUT_OI,
                                 .accumulate = p->accumulate || first > 0};
    struct matmul_bwd_x bwd_x = {.dx = y,
                                 .dy = logits,
                                 .w = gpt2_w(p, GPT2_WTE),
                                 .n = n,
                                 .in = c,
                                 .out = v,
                                 .dy_stride = stride,
                                 .layout = MATMUL_LAYOUT_OI};
    TRY(vocab_product(p, logits, y, n, stride));
    TRY(p->op->xent(p->stream, &xent));
    if (!p->want_grad)
        return ST_OK;
    TRY(p->op->matmul_bwd_w(p->stream, &bwd_w));
    if (is_last && p->embedding_grad_ready)
        TRY(p->embedding_grad_ready(p->embedding_grad_ready_arg));
    return p->op->matmul_bwd_x(p->stream, &bwd_x);
}

enum status gpt2_head_lm_run(const struct pass *p)
{
    const struct gpt2_acts *a = gpt2_acts(p);
    int64_t n = p->b * p->t;
    int norm = gpt2_end_param(p, GPT2_END_LNF);
    TRY(gpt2_norm(p, norm, a->y, a->lnf_mean, a->lnf_rstd, a->out));
    for (int64_t first = 0; first < n; first += a->logits_rows) {
        int64_t rows = n - first < a->logits_rows ? n - first : a->logits_rows;
        TRY(chunk_run(p, first, rows, first + rows == n));
    }
    return p->want_grad ? gpt2_norm_bwd(p, norm, a->y, a->out, a->lnf_mean, a->lnf_rstd, false)
                        : ST_OK;
}

enum status gpt2_head_lm_logits(const struct pass *p, int64_t row, struct tensor out)
{
    ASSERTF(row >= 0 && row < p->b * p->t, "row %lld of %lld", (long long)row,
            (long long)(p->b * p->t));
    struct pass one = *p; /* a pass of a single row */
    struct tensor none = {0};
    one.b = one.t = 1;
    TRY(gpt2_norm(&one, gpt2_end_param(p, GPT2_END_LNF), gpt2_acts(p)->y, none, none,
                  tensor_at(gpt2_acts(p)->out, row * p->dims->embed)));
    return vocab_product(p, out, gpt2_acts(p)->y, 1, p->dims->vocab);
}
