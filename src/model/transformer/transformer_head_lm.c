/* transformer_head_lm — final norm, vocabulary product, cross-entropy, and their gradients. The
 * product's weights are the token embedding, or, untied, weights of their own.
 *
 * Works on chunks of logits_rows rows: product, loss and gradient in place, then both gradient
 * products while the chunk is in cache. All rows of the norm's output are in y or `rows`; the rows
 * of a chunk are replaced by their gradient after the weight gradient was computed from them.
 * Writes the weights' gradient unless accumulating; if they are tied, embed_bwd adds to it.
 *
 * If ranks share the vocabulary the logits are own columns, and are not gathered; three numbers per
 * row are (kernels/xent.h).
 *
 * On GPUs the products have a few columns more (model_vocab_rows). Their weights are zero, so the
 * logits there are zero, and so are both gradients: xent leaves these columns as they are. */
#include "model/transformer/transformer.h"

#include "base/assert.h"
#include "dev/dev.h"

/* Rows of a chunk: the norm's output, later its gradient. */
struct chunk {
    struct tensor y;
    int64_t first, n;
    bool is_last;
};

static int64_t own_vocab(const struct pass *p)
{
    int64_t first, n;
    model_vocab_shard(p->dims, &first, &n);
    return n;
}

/* Multiplies n rows of y with `out` rows of the vocabulary weights, to logits with rows `stride`
 * apart. */
static enum status vocab_product(const struct pass *p, struct tensor logits, struct tensor y,
                                 int64_t n, int64_t out, int64_t stride)
{
    struct matmul_fwd product = {.y = logits,
                                 .x = y,
                                 .w = transformer_w(p, transformer_params_vocab(p->dims)),
                                 .n = n,
                                 .in = p->dims->embed,
                                 .out = out,
                                 .y_stride = stride,
                                 .layout = MATMUL_LAYOUT_OI};
    return p->op->matmul_fwd(p->stream, &product);
}

/* Caps n rows of own columns, if the model has a soft cap. */
static enum status cap_logits(const struct pass *p, struct tensor logits, int64_t n, int64_t stride)
{
    float cap = (float)p->dims->features.logit_cap;
    return cap > 0 ? p->op->softcap(
                         p->stream,
                         &(struct softcap){
                             .x = logits, .n = n, .v = own_vocab(p), .stride = stride, .cap = cap})
                   : ST_OK;
}

/* logits_of_row — computes the logits of one row of y, without the additional columns. */
static enum status logits_of_row(const struct pass *p, struct tensor logits, struct tensor y)
{
    const int64_t v = own_vocab(p);
    TRY(vocab_product(p, logits, y, 1, v, v));
    return cap_logits(p, logits, 1, v);
}

/* Computes the losses of a chunk from three numbers per row of each rank's vocabulary. */
static enum status join_losses(const struct pass *p, const struct chunk *c, struct xent all)
{
    const struct model_axis *axis = p->tensor;
    struct tensor stats = transformer_acts(p)->stats;
    int64_t stride = transformer_acts(p)->stats_stride, v_first, v_n;
    model_vocab_shard(p->dims, &v_first, &v_n);
    struct xent_shard own = {.stats = tensor_at(stats, axis->at * stride),
                             .logits = all.logits,
                             .targets = all.targets,
                             .n = c->n,
                             .v_first = v_first,
                             .v_n = v_n,
                             .stride = all.stride};
    struct xent_join join = {.logits = all.logits,
                             .losses = all.losses,
                             .stats = stats,
                             .targets = all.targets,
                             .n = c->n,
                             .v_first = v_first,
                             .v_n = v_n,
                             .stride = all.stride,
                             .shards = axis->ranks,
                             .stats_stride = stride,
                             .scale = all.scale,
                             .want_grad = all.want_grad,
                             .cap = all.cap,
                             .hits = all.hits};
    TRY(p->op->xent_shard(p->stream, &own));
    /* The size of the exchange depends only on the pass: a short chunk ends with zeros. */
    if (3 * c->n < stride)
        TRY(dev_fill(p->stream, tensor_at(own.stats, 3 * c->n).data, 0,
                     (size_t)(stride - 3 * c->n) * dtype_bytes(stats.dtype)));
    TRY(axis->gather(axis->arg, p->stream, own.stats, &stats, axis->ranks * stride));
    return p->op->xent_join(p->stream, &join);
}

static enum status chunk_bwd(const struct pass *p, const struct chunk *c)
{
    int64_t width = p->dims->embed, out = model_vocab_rows(p->dims),
            stride = transformer_acts(p)->logits_stride;
    struct tensor logits = transformer_acts(p)->wide;
    struct matmul_bwd_w bwd_w = {.dw = transformer_dw_vocab(p),
                                 .x = c->y,
                                 .dy = logits,
                                 .n = c->n,
                                 .in = width,
                                 .out = out,
                                 .dy_stride = stride,
                                 .layout = MATMUL_LAYOUT_OI,
                                 .accumulate = p->accumulate || c->first > 0};
    struct matmul_bwd_x bwd_x = {.dx = c->y,
                                 .dy = logits,
                                 .w = transformer_w(p, transformer_params_vocab(p->dims)),
                                 .n = c->n,
                                 .in = width,
                                 .out = out,
                                 .dy_stride = stride,
                                 .layout = MATMUL_LAYOUT_OI};
    if (p->dims->adapter.r == 0)
        TRY(p->op->matmul_bwd_w(p->stream, &bwd_w));
    if (c->is_last && p->embedding_grad_ready && !p->dims->features.is_untied)
        TRY(p->embedding_grad_ready(p->embedding_grad_ready_arg));
    return p->op->matmul_bwd_x(p->stream, &bwd_x);
}

enum status transformer_head_lm_run(const struct pass *p)
{
    const struct transformer_acts *a = transformer_acts(p);
    struct tensor y;
    int64_t n = p->b * p->t;
    TRY(transformer_norm_fwd(p, &a->norm));
    TRY(transformer_all_gather_rows(p, a->y, &y));
    for (int64_t first = 0; first < n; first += a->logits_rows) {
        struct chunk chunk = {.y = tensor_at(y, first * p->dims->embed), .first = first};
        chunk.n = n - first < a->logits_rows ? n - first : a->logits_rows;
        chunk.is_last = first + chunk.n == n;
        TRY(vocab_product(p, a->wide, chunk.y, chunk.n, model_vocab_rows(p->dims),
                          a->logits_stride));
        TRY(cap_logits(p, a->wide, chunk.n, a->logits_stride));
        /* Computes a chunk's losses and, in the place of its logits, their gradient. */
        const struct xent xent = {.logits = a->wide,
                                  .losses = tensor_at(p->losses, chunk.first),
                                  .targets = tensor_at(p->targets, chunk.first),
                                  .n = chunk.n,
                                  .v = p->dims->vocab,
                                  .stride = a->logits_stride,
                                  .scale = p->scale,
                                  .want_grad = p->want_grad,
                                  .cap = (float)p->dims->features.logit_cap,
                                  .hits = tensor_at(p->hits, chunk.first)};
        TRY(own_vocab(p) < xent.v ? join_losses(p, &chunk, xent) : p->op->xent(p->stream, &xent));
        TRY(p->want_grad ? chunk_bwd(p, &chunk) : ST_OK);
    }
    if (!p->want_grad)
        return ST_OK;
    TRY(transformer_reduce_scatter_rows(p));
    return transformer_norm_bwd(p, &a->norm, a->y, a->dx, (struct tensor){0});
}

/* Returns the most columns of logits of a rank, rounded up to a share that ranks can exchange. */
static int64_t vocab_most(const struct model_dims *dims)
{
    int64_t ranks = model_tensor_ranks(dims), most = (dims->vocab + ranks - 1) / ranks;
    return (most + TRANSFORMER_SHARE_ELEMS - 1) / TRANSFORMER_SHARE_ELEMS * TRANSFORMER_SHARE_ELEMS;
}

int64_t transformer_head_lm_row_bytes(const struct model_dims *dims)
{
    int64_t first, n;
    model_vocab_shard(dims, &first, &n);
    return n < dims->vocab ? model_tensor_ranks(dims) * vocab_most(dims) * (int64_t)sizeof(float)
                           : 0;
}

/* Computes own columns of one row, then gathers all columns: each rank's columns are in `wide`,
 * padded to the most columns of a rank, and are copied to their columns. */
static enum status gather_logits(const struct pass *p, int64_t row, struct tensor out)
{
    const struct transformer_acts *a = transformer_acts(p);
    const struct model_axis *axis = p->tensor;
    const int64_t each = vocab_most(p->dims);
    struct tensor y, all = {a->wide.data, DTYPE_F32}, own = tensor_at(all, axis->at * each);
    struct transformer_norm norm = a->norm;
    norm.mean = norm.rstd = (struct tensor){0};
    TRY(transformer_norm_fwd(p, &norm));
    TRY(transformer_all_gather_rows(p, a->y, &y));
    TRY(logits_of_row(p, own, tensor_at(y, row * p->dims->embed)));
    TRY(axis->gather(axis->arg, p->stream, own, &all, axis->ranks * each));
    for (int at = 0; at < axis->ranks; at++) {
        struct model_dims dims = *p->dims;
        int64_t first, n;
        dims.shard.tensor_rank = at;
        model_vocab_shard(&dims, &first, &n);
        TRY(dev_copy(p->stream, tensor_at(out, first).data, tensor_at(all, at * each).data,
                     (size_t)n * sizeof(float)));
    }
    return ST_OK;
}

enum status transformer_head_lm_logits(const struct pass *p, int64_t row, struct tensor out)
{
    int64_t rows = p->b * transformer_tokens(p);
    bool is_own;
    ASSERTF(row >= 0 && row < rows, "row %lld of %lld", (long long)row, (long long)rows);
    row = transformer_row_of(p, row, &is_own); /* a rank without the row computes another one */
    if (own_vocab(p) < p->dims->vocab) {
        TRY(gather_logits(p, row, out));
    } else {
        struct pass one = *p; /* a pass of a single row */
        struct transformer_norm norm = transformer_acts(p)->norm;
        one.b = one.t = 1;
        norm.x = tensor_at(norm.x, row * p->dims->embed);
        norm.mean = norm.rstd = (struct tensor){0};
        TRY(transformer_norm_fwd(&one, &norm));
        TRY(logits_of_row(p, out, norm.y));
    }
    return transformer_broadcast(p, out, p->dims->vocab, is_own);
}
