/* transformer_linear — norms and linear layers of a block, forward and backward, with the rows that
 * tensor parallelism exchanges before and after them. It must not know how ranks communicate.
 *
 * Megatron's pair of products (Shoeybi et al. 2019): the first product of a branch has some columns
 * of its weights, the last one the same rows of its own, and only after that the ranks' sums are
 * added. Sequence parallelism (Korthikanti et al. 2022): norms, dropout and residuals are computed
 * on own rows only, so all rows are gathered before the first product and the sums are scattered
 * after the last one. Together these send as many bytes as one all-reduce. */
#include "base/assert.h"
#include "base/rand.h"
#include "model/transformer/transformer.h"

/* ---- rows ---- */

int64_t transformer_own_rows(const struct pass *p, int64_t *first)
{
    int64_t all = p->b * p->t, n = all / p->tensor->ranks;
    ASSERTF(n * p->tensor->ranks == all, "%lld rows on %d ranks", (long long)all, p->tensor->ranks);
    *first = n * p->tensor->at;
    return n;
}

bool transformer_has_all_rows(const struct pass *p)
{
    int64_t first;
    return transformer_own_rows(p, &first) == p->b * p->t;
}

enum status transformer_all_gather_rows(const struct pass *p, struct tensor own, struct tensor *all)
{
    *all = transformer_acts(p)->rows;
    return p->tensor->gather(p->tensor->arg, p->stream, own, all, p->b * p->t * p->dims->embed);
}

enum status transformer_reduce_scatter_rows(const struct pass *p)
{
    const struct transformer_acts *m = transformer_acts(p);
    return p->tensor->scatter_sum(p->tensor->arg, p->stream, m->y, m->rows,
                                  p->b * p->t * p->dims->embed);
}

/* ---- dropout ---- */

struct dropout transformer_dropout(const struct pass *p, int block,
                                   enum transformer_dropout_site site, int64_t sample_elems)
{
    int64_t layer = site == TRANSFORMER_DROPOUT_EMBED ? 0 : model_layer(p->dims, block);
    if (!p->want_grad || p->dropout <= 0)
        return (struct dropout){0};
    return (struct dropout){.p = p->dropout,
                            .seed = p->dropout_seed,
                            .stream = RAND_STREAM(DROPOUT, layer * 4 + (int)site),
                            .offset = (uint64_t)(p->sample_first * sample_elems)};
}

struct dropout transformer_row_dropout(const struct pass *p, int block,
                                       enum transformer_dropout_site site)
{
    return transformer_dropout(p, block, site, transformer_tokens(p) * p->dims->embed);
}

enum status transformer_branch_grad(const struct pass *p, int block,
                                    enum transformer_dropout_site site, struct tensor *out)
{
    struct drop drop = {.y = transformer_acts(p)->y,
                        .x = transformer_acts(p)->dx,
                        .dropout = transformer_row_dropout(p, block, site)};
    if (drop.dropout.p <= 0)
        return transformer_all_gather_rows(p, drop.x, out);
    TRY(transformer_drop(p, drop));
    return transformer_all_gather_rows(p, drop.y, out);
}

/* ---- norm ---- */

static enum norm_kind kind_of(const struct pass *p)
{
    return p->dims->features.norm == MODEL_NORM_RMS ? NORM_KIND_RMS : NORM_KIND_LAYER;
}

/* Returns the number of a norm's bias; -1: RMSNorm has none. */
static int bias_of(const struct pass *p, int w)
{
    return p->dims->features.norm == MODEL_NORM_LAYER ? w + 1 : -1;
}

enum status transformer_norm_fwd(const struct pass *p, const struct transformer_norm *norm)
{
    int64_t first;
    struct norm_fwd fwd = {.y = norm->y,
                           .mean = norm->mean,
                           .rstd = norm->rstd,
                           .x = norm->x,
                           .w = transformer_w(p, norm->w),
                           .b = transformer_w(p, bias_of(p, norm->w)),
                           .n = transformer_own_rows(p, &first),
                           .c = p->dims->embed,
                           .eps = (float)model_norm_eps(p->dims),
                           .kind = kind_of(p)};
    return p->op->norm_fwd(p->stream, &fwd);
}

enum status transformer_norm_bwd(const struct pass *p, const struct transformer_norm *norm,
                                 struct tensor dy, struct tensor dx, struct tensor dresidual)
{
    int64_t first;
    struct norm_bwd bwd = {.dx = dx,
                           .dw = transformer_dw(p, norm->w),
                           .db = transformer_dw(p, bias_of(p, norm->w)),
                           .dy = dy,
                           .x = norm->x,
                           .mean = norm->mean,
                           .rstd = norm->rstd,
                           .w = transformer_w(p, norm->w),
                           .dresidual = dresidual,
                           .n = transformer_own_rows(p, &first),
                           .c = p->dims->embed,
                           .kind = kind_of(p),
                           .accumulate = p->accumulate};
    return p->op->norm_bwd(p->stream, &bwd);
}

/* ---- linear layers ---- */

static enum matmul_layout layout_of(const struct pass *p)
{
    return transformer_arch(p->dims->arch)->layout;
}

/* Computes how.y = how.x·W, with the bias and epilogue of `how`, and adds the adapter's output: an
 * epilogue is linear then. */
static enum status multiply_weights(const struct pass *p, int block, enum transformer_layer layer,
                                    struct matmul_fwd how)
{
    struct transformer_linear l = transformer_params_linear(p->dims, block, layer);
    how.w = transformer_w(p, l.w);
    how.n = p->b * p->t;
    how.in = l.in;
    how.out = l.out;
    how.layout = layout_of(p);
    TRY(p->op->matmul_fwd(p->stream, &how));
    return transformer_adapter_fwd(p, block, layer, how.y, how.y_stride ? how.y_stride : l.out,
                                   how.x);
}

enum status transformer_linear(const struct pass *p, int block, enum transformer_layer layer,
                               struct matmul_fwd how)
{
    how.b = transformer_w(p, transformer_params_linear(p->dims, block, layer).b);
    return multiply_weights(p, block, layer, how);
}

/* Computes the gradients of weights and bias, or, if they are frozen, of the adapter. */
static enum status linear_bwd_w(const struct pass *p, int block, enum transformer_layer layer,
                                struct tensor x, struct tensor dy)
{
    if (p->dims->adapter.r > 0)
        return transformer_adapter_bwd_w(p, block, layer, x, dy);
    struct transformer_linear l = transformer_params_linear(p->dims, block, layer);
    struct matmul_bwd_w product = {.dw = transformer_dw(p, l.w),
                                   .db = transformer_dw(p, l.b),
                                   .x = x,
                                   .dy = dy,
                                   .n = p->b * p->t,
                                   .in = l.in,
                                   .out = l.out,
                                   .layout = layout_of(p),
                                   .accumulate = p->accumulate};
    return p->op->matmul_bwd_w(p->stream, &product);
}

static enum status linear_bwd_x(const struct pass *p, int block, enum transformer_layer layer,
                                struct tensor dx, struct tensor dy, struct tensor pre)
{
    struct transformer_linear l = transformer_params_linear(p->dims, block, layer);
    struct matmul_bwd_x product = {.dx = dx,
                                   .dy = dy,
                                   .w = transformer_w(p, l.w),
                                   .pre = pre,
                                   .n = p->b * p->t,
                                   .in = l.in,
                                   .out = l.out,
                                   .layout = layout_of(p)};
    TRY(p->op->matmul_bwd_x(p->stream, &product));
    return transformer_adapter_bwd_x(p, block, layer, dx);
}

/* ---- the first linear layer of a branch, with its norm ---- */

enum status transformer_norm_linear(const struct pass *p, int block,
                                    const struct transformer_norm *norm,
                                    enum transformer_layer layer, struct matmul_fwd how)
{
    TRY(transformer_norm_fwd(p, norm));
    TRY(transformer_all_gather_rows(p, norm->y, &how.x));
    return transformer_linear(p, block, layer, how);
}

enum status transformer_norm_linear_bwd(const struct pass *p, int block,
                                        const struct transformer_norm *norm,
                                        enum transformer_layer layer, struct tensor dx,
                                        struct tensor dresidual)
{
    const struct transformer_acts *m = transformer_acts(p);
    struct transformer_norm again = *norm;
    struct tensor x, none = {0};
    again.mean = again.rstd = none;
    if (m->block[block].recompute != MODEL_RECOMPUTE_NONE)
        TRY(transformer_norm_fwd(p, &again));
    TRY(transformer_all_gather_rows(p, norm->y, &x));
    TRY(linear_bwd_w(p, block, layer, x, m->wide));
    TRY(linear_bwd_x(p, block, layer, m->rows, m->wide, none));
    TRY(transformer_reduce_scatter_rows(p));
    return transformer_norm_bwd(p, norm, m->y, dx, dresidual);
}

/* ---- the last linear layer of a branch, with its residual ---- */

static enum transformer_dropout_site site_of(enum transformer_layer layer)
{
    return layer == TRANSFORMER_LAYER_ATT ? TRANSFORMER_DROPOUT_ATT : TRANSFORMER_DROPOUT_MLP;
}

/* A product adds bias, dropout and residual itself if its sums are complete and the rows that
 * dropout numbers are neighbours. An adapter's output is added before dropout. */
enum status transformer_linear_residual(const struct pass *p, int block,
                                        enum transformer_layer layer, struct tensor y,
                                        struct tensor x, struct tensor residual)
{
    const struct transformer_acts *m = transformer_acts(p);
    struct transformer_linear l = transformer_params_linear(p->dims, block, layer);
    struct dropout dropout = transformer_row_dropout(p, block, site_of(layer));
    struct matmul_fwd all = {.y = y, .x = x, .residual = residual, .dropout = dropout},
                      sum = {.y = m->rows, .x = x};
    struct branch_add add = {
        .y = y, .x = m->y, .b = transformer_w(p, l.b), .residual = residual, .dropout = dropout};
    if (transformer_has_all_rows(p) &&
        (dropout.p <= 0 || (transformer_has_all_tokens(p) && p->dims->adapter.r == 0)))
        return transformer_linear(p, block, layer, all);
    TRY(multiply_weights(p, block, layer, sum));
    TRY(transformer_reduce_scatter_rows(p));
    return transformer_branch_add(p, add);
}

enum status transformer_linear_residual_bwd(const struct pass *p, int block,
                                            enum transformer_layer layer, struct tensor dx,
                                            struct tensor x, struct tensor pre)
{
    struct tensor dout;
    TRY(transformer_branch_grad(p, block, site_of(layer), &dout));
    TRY(linear_bwd_w(p, block, layer, x, dout));
    return linear_bwd_x(p, block, layer, dx, dout, pre);
}

/* ---- keep or recompute ---- */

enum status transformer_keep_or_recompute(const struct pass *p, int block,
                                          transformer_block_fn attend,
                                          transformer_block_fn activate)
{
    const struct transformer_acts_block *a = transformer_kept(p, block);
    if (a->recompute >= MODEL_RECOMPUTE_ATTENTION)
        TRY(attend(p, block));
    /* with parallel residuals the MLP does not read the first half's output */
    if (a->recompute == MODEL_RECOMPUTE_BLOCK && !p->dims->features.is_parallel)
        TRY(transformer_linear_residual(p, block, TRANSFORMER_LAYER_ATT, a->mid, a->att, a->x));
    if (a->recompute == MODEL_RECOMPUTE_BLOCK)
        TRY(transformer_norm_linear(p, block, &a->norm2, TRANSFORMER_LAYER_UP,
                                    (struct matmul_fwd){.y = a->pre}));
    return a->recompute == MODEL_RECOMPUTE_NONE ? ST_OK : activate(p, block);
}
