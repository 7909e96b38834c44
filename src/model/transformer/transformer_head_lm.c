/* transformer_head_lm — final norm, vocabulary product, cross-entropy, and their gradients. The
 * product's weights are the token embedding, or, untied, weights of their own.
 *
 * Works on chunks of logits_rows rows: product, loss and gradient in place, then both gradient
 * products while the chunk is in cache. The norm's output stays in y; the rows of a chunk are
 * replaced by their gradient once the weight gradient has been taken from them. Writes the weights'
 * gradient unless accumulating; where they are tied, embed_bwd adds to it. */
#include "model/transformer/transformer.h"

#include "base/assert.h"

/* n rows of y with the vocabulary weights (V,C), to logits with rows `stride` apart. */
static enum status vocab_product(const struct pass *p, struct tensor logits, struct tensor y,
                                 int64_t n, int64_t stride)
{
    struct matmul_fwd product = {.y = logits,
                                 .x = y,
                                 .w = transformer_w(p, transformer_params_vocab(p->dims)),
                                 .n = n,
                                 .in = p->dims->embed,
                                 .out = p->dims->vocab,
                                 .y_stride = stride,
                                 .layout = MATMUL_LAYOUT_OI};
    return p->op->matmul_fwd(p->stream, &product);
}

static enum status chunk_run(const struct pass *p, int64_t first, int64_t n, bool is_last)
{
    int64_t c = p->dims->embed, v = p->dims->vocab, stride = transformer_acts(p)->logits_stride;
    struct tensor y = tensor_at(transformer_acts(p)->y, first * c),
                  logits = transformer_acts(p)->wide;
    struct xent xent = {.logits = logits,
                        .losses = tensor_at(p->losses, first),
                        .targets = tensor_at(p->targets, first),
                        .n = n,
                        .v = v,
                        .stride = stride,
                        .scale = p->scale,
                        .want_grad = p->want_grad};
    struct matmul_bwd_w bwd_w = {.dw = transformer_dw(p, transformer_params_vocab(p->dims)),
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
                                 .w = transformer_w(p, transformer_params_vocab(p->dims)),
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
    if (is_last && p->embedding_grad_ready && !p->dims->parts.is_untied)
        TRY(p->embedding_grad_ready(p->embedding_grad_ready_arg));
    return p->op->matmul_bwd_x(p->stream, &bwd_x);
}

enum status transformer_head_lm_run(const struct pass *p)
{
    const struct transformer_acts *a = transformer_acts(p);
    int64_t n = p->b * p->t;
    int norm = transformer_params_end(p->dims);
    TRY(transformer_norm(p, norm, a->y, a->norm_mean, a->norm_rstd, a->out));
    for (int64_t first = 0; first < n; first += a->logits_rows) {
        int64_t rows = n - first < a->logits_rows ? n - first : a->logits_rows;
        TRY(chunk_run(p, first, rows, first + rows == n));
    }
    struct norm_bwd bwd = {
        .dx = a->dx, .dy = a->y, .x = a->out, .mean = a->norm_mean, .rstd = a->norm_rstd};
    return p->want_grad ? transformer_norm_bwd(p, norm, bwd) : ST_OK;
}

enum status transformer_head_lm_logits(const struct pass *p, int64_t row, struct tensor out)
{
    ASSERTF(row >= 0 && row < p->b * p->t, "row %lld of %lld", (long long)row,
            (long long)(p->b * p->t));
    struct pass one = *p; /* a pass of a single row */
    struct tensor none = {0};
    one.b = one.t = 1;
    TRY(transformer_norm(&one, transformer_params_end(p->dims), transformer_acts(p)->y, none, none,
                         tensor_at(transformer_acts(p)->out, row * p->dims->embed)));
    return vocab_product(p, out, transformer_acts(p)->y, 1, p->dims->vocab);
}
