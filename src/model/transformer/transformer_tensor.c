/* transformer_tensor — tensor parallelism: where a pass gathers rows before a product, and adds the
 * sums of all ranks after one. Without an axis the rows are all there and nothing is done. It must
 * not know how the ranks communicate (struct model_axis).
 *
 * Sequence parallelism (Korthikanti et al. 2022): norms, dropout and residuals are computed on own
 * rows alone, and gathering with adding up moves as much as adding up on all ranks would. */
#include "base/assert.h"
#include "model/transformer/transformer.h"

int64_t transformer_tensor_own_rows(const struct pass *p, int64_t *first)
{
    int64_t n = p->b * p->t;
    *first = 0;
    if (!p->tensor)
        return n;
    ASSERTF(n % p->tensor->parts == 0, "%lld rows in %d parts", (long long)n, p->tensor->parts);
    n /= p->tensor->parts;
    *first = n * p->tensor->part;
    return n;
}

int64_t transformer_tensor_vocab_most(const struct model_dims *dims)
{
    int64_t parts = dims->shard.tensor_ranks > 1 ? dims->shard.tensor_ranks : 1,
            most = (dims->vocab + parts - 1) / parts;
    return (most + TRANSFORMER_SHARE_ELEMS - 1) / TRANSFORMER_SHARE_ELEMS * TRANSFORMER_SHARE_ELEMS;
}

static int64_t full_elems(const struct pass *p) { return p->b * p->t * p->dims->embed; }

enum status transformer_tensor_gather(const struct pass *p, struct tensor own, struct tensor *out)
{
    const struct model_axis *axis = p->tensor;
    *out = own;
    if (!axis)
        return ST_OK;
    *out = transformer_acts(p)->rows;
    return axis->gather(axis->arg, p->stream, *out, own, full_elems(p));
}

struct tensor transformer_tensor_full(const struct pass *p)
{
    return p->tensor ? transformer_acts(p)->rows : transformer_acts(p)->y;
}

enum status transformer_tensor_scatter(const struct pass *p)
{
    const struct transformer_acts *m = transformer_acts(p);
    const struct model_axis *axis = p->tensor;
    return axis ? axis->scatter_sum(axis->arg, p->stream, m->y, m->rows, full_elems(p)) : ST_OK;
}

/* ---- branches ---- */

enum status transformer_tensor_branch(const struct pass *p, int block, enum transformer_layer layer,
                                      struct matmul_fwd how)
{
    const struct transformer_acts *m = transformer_acts(p);
    if (!p->tensor && !(p->context && how.dropout.p > 0)) /* a product drops neighbours alone */
        return transformer_linear(p, block, layer, how);
    struct branch_add add = {
        .y = how.y,
        .x = m->y,
        .b = transformer_w(p, transformer_params_linear(p->dims, block, layer).b),
        .residual = how.residual,
        .dropout = how.dropout};
    TRY(transformer_linear_sum(p, block, layer, transformer_tensor_full(p), how.x));
    TRY(transformer_tensor_scatter(p));
    return transformer_context_branch_add(p, add);
}

enum status transformer_tensor_input_grad(const struct pass *p, int block,
                                          enum transformer_layer layer, struct tensor dy)
{
    struct tensor none = {0};
    TRY(transformer_linear_bwd_x(p, block, layer, transformer_tensor_full(p), dy, none));
    return transformer_tensor_scatter(p);
}

/* ---- embedding ---- */

/* Own rows of the vocabulary for all rows of the pass; one rank adds the positions. Dropout comes
 * after the sum. */
enum status transformer_tensor_embed_fwd(const struct pass *p, struct embed_fwd embed)
{
    const struct transformer_acts *m = transformer_acts(p);
    struct drop drop = {.y = embed.x, .x = m->y, .dropout = embed.dropout};
    struct tensor none = {0};
    model_vocab_shard(p->dims, &embed.first, &embed.rows);
    embed.x = m->rows;
    embed.wpe = p->tensor->part == 0 ? embed.wpe : none;
    embed.dropout = (struct dropout){0};
    TRY(transformer_context_embed_fwd(p, &embed));
    TRY(transformer_tensor_scatter(p));
    return transformer_context_drop(p, drop);
}

enum status transformer_tensor_embed_bwd(const struct pass *p, struct embed_bwd embed)
{
    model_vocab_shard(p->dims, &embed.first, &embed.rows);
    embed.dropout = (struct dropout){0};
    TRY(transformer_branch_grad(p, 0, TRANSFORMER_DROPOUT_EMBED, &embed.dx));
    return transformer_context_embed_bwd(p, &embed);
}
