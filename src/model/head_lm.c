/* head_lm — final LayerNorm, the vocabulary product with the tied token embedding, cross-entropy, and all their gradients.
 *
 * Logits exist for acts->logits_rows rows at a time: product, loss and gradient in place, then both gradient products while the
 * chunk is near. ln_f's output stays in y; each chunk's rows are replaced by their own gradient once their
 * weight gradient is taken. Writes dwte first (accumulate off); embed_bwd adds to it. */
#include "model/gpt2.h"

#include "base/must.h"

static enum status vocab_product(const struct pass *p, struct tensor logits, struct tensor y, int64_t n, int64_t stride)
{
    return p->op->matmul_fwd(p->stream, &(struct matmul_fwd){.y = logits, .x = y, .w = gpt2_at(p, GPT2_WTE).w, .n = n,
                                                             .in = p->dims->embed, .out = p->dims->vocab, .y_stride = stride,
                                                             .layout = MATMUL_LAYOUT_OI});
}

static enum status chunk_run(const struct pass *p, int64_t first, int64_t n)
{
    int64_t c = p->dims->embed, v = p->dims->vocab, stride = p->acts->logits_stride;
    struct tensor y = tensor_at(p->acts->y, first * c), logits = p->acts->wide;
    struct gpt2_param wte = gpt2_at(p, GPT2_WTE);
    TRY(vocab_product(p, logits, y, n, stride));
    TRY(p->op->xent(p->stream, &(struct xent){.logits = logits, .losses = tensor_at(p->losses, first),
                                              .targets = tensor_at(p->targets, first), .n = n, .v = v, .stride = stride,
                                              .scale = p->scale, .want_grad = p->want_grad}));
    if (!p->want_grad)
        return ST_OK;
    TRY(p->op->matmul_bwd_w(p->stream, &(struct matmul_bwd_w){.dw = wte.dw, .x = y, .dy = logits, .n = n, .in = c, .out = v,
                                                              .dy_stride = stride, .layout = MATMUL_LAYOUT_OI,
                                                              .accumulate = p->accumulate || first > 0}));
    return p->op->matmul_bwd_x(p->stream, &(struct matmul_bwd_x){.dx = y, .dy = logits, .w = wte.w, .n = n, .in = c, .out = v,
                                                                 .dy_stride = stride, .layout = MATMUL_LAYOUT_OI});
}

enum status head_lm_run(const struct pass *p)
{
    const struct model_acts *a = p->acts;
    struct gpt2_param w = gpt2_end(p, GPT2_END_LNF_W), b = gpt2_end(p, GPT2_END_LNF_B);
    int64_t n = p->b * p->t;
    TRY(gpt2_norm(p, a->y, a->lnf_mean, a->lnf_rstd, a->out, w, b));
    for (int64_t first = 0; first < n; first += a->logits_rows) {
        int64_t rows = n - first < a->logits_rows ? n - first : a->logits_rows;
        TRY(chunk_run(p, first, rows));
    }
    return p->want_grad ? gpt2_norm_bwd(p, a->y, a->out, a->lnf_mean, a->lnf_rstd, w, b, false) : ST_OK;
}

enum status head_lm_logits(const struct pass *p, int64_t row, struct tensor out)
{
    int64_t c = p->dims->embed;
    ASSERTF(row >= 0 && row < p->b * p->t, "row %lld of %lld", (long long)row, (long long)(p->b * p->t));
    TRY(p->op->norm_fwd(p->stream, &(struct norm_fwd){.y = p->acts->y, .x = tensor_at(p->acts->out, row * c),
                                                      .w = gpt2_end(p, GPT2_END_LNF_W).w, .b = gpt2_end(p, GPT2_END_LNF_B).w,
                                                      .n = 1, .c = c, .eps = GPT2_EPS}));
    return vocab_product(p, out, p->acts->y, 1, p->dims->vocab);
}
