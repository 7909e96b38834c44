/* transformer_adapter — adapters of linear layers (LoRA, Hu et al. 2021), forward and backward.
 *
 * Adds u·Bᵀ to a layer's output, with u = (alpha/r)·x·Aᵀ. Each block keeps u for its backward pass.
 * With a tensor axis either A or B is cut like the layer's matrix, and the sums that follow the
 * layer's products add up the adapter's summands, too. It must not know the order of a block. */
#include "base/assert.h"
#include "model/transformer/transformer.h"

static struct tensor value_of(const struct pass *p, int param)
{
    return tensor_at(p->adapter.params, p->adapter.table->param[param].offset);
}

static struct tensor grad_of(const struct pass *p, int param)
{
    return tensor_at(p->grads, p->grad_table->param[param].offset);
}

/* Returns the rows (N,r) of a module of a layer in a block: u. */
static struct tensor low_of(const struct pass *p, int block, const struct transformer_adapter *a,
                            int module)
{
    return tensor_at(transformer_kept(p, block)->low[a->adapted],
                     (a->first + module) * p->b * p->t * a->r);
}

/* Returns the rows of a module's gradient. */
static struct tensor dlow_of(const struct pass *p, const struct transformer_adapter *a, int module)
{
    return tensor_at(transformer_acts(p)->dlow, module * p->b * p->t * a->r);
}

/* Copies a module's rows of r elements, x_stride apart, to y, and multiplies them by alpha/r. */
static enum status scale_rows(const struct pass *p, int64_t r, struct tensor y, int64_t y_stride,
                              struct tensor x, int64_t x_stride)
{
    const struct copy_2d copy = {.y = y,
                                 .x = x,
                                 .rows = p->b * p->t,
                                 .columns = r,
                                 .y_stride = y_stride,
                                 .x_stride = x_stride,
                                 .scale = (float)(p->dims->adapter.alpha / (double)r)};
    return p->op->copy_2d(p->stream, &copy);
}

/* Computes u of all modules. */
static enum status compute_low(const struct pass *p, int block, const struct transformer_adapter *a,
                               struct tensor x)
{
    const int64_t all = a->modules * a->r;
    const struct tensor together =
        a->modules > 1 ? transformer_acts(p)->low_all : low_of(p, block, a, 0);
    const struct matmul_fwd product = {.y = together,
                                       .x = x,
                                       .w = value_of(p, a->a),
                                       .n = p->b * p->t,
                                       .in = a->in,
                                       .out = all,
                                       .layout = MATMUL_LAYOUT_OI};
    TRY(p->op->matmul_fwd(p->stream, &product));
    for (int i = 0; i < a->modules; i++)
        TRY(scale_rows(p, a->r, low_of(p, block, a, i), a->r, tensor_at(together, i * a->r), all));
    return ST_OK;
}

enum status transformer_adapter_fwd(const struct pass *p, int block, enum transformer_layer layer,
                                    struct tensor y, int64_t y_stride, struct tensor x)
{
    const struct transformer_adapter a = transformer_params_adapter(p->dims, block, layer);
    if (a.modules == 0)
        return ST_OK;
    TRY(compute_low(p, block, &a, x));
    for (int i = 0; i < a.modules; i++) {
        const struct tensor module = tensor_at(y, a.at[i]);
        TRY(p->op->matmul_fwd(p->stream, &(struct matmul_fwd){.y = module,
                                                              .residual = module,
                                                              .x = low_of(p, block, &a, i),
                                                              .w = value_of(p, a.b[i]),
                                                              .n = p->b * p->t,
                                                              .in = a.r,
                                                              .out = a.out[i],
                                                              .y_stride = y_stride,
                                                              .layout = MATMUL_LAYOUT_OI}));
    }
    return ST_OK;
}

/* Computes the gradient of module i's B from u, and the gradient of u before the factor. dy: rows
 * of the module's output. */
static enum status module_bwd(const struct pass *p, int block, const struct transformer_adapter *a,
                              int i, struct tensor dy, int64_t dy_stride)
{
    TRY(p->op->matmul_bwd_w(p->stream, &(struct matmul_bwd_w){.dw = grad_of(p, a->b[i]),
                                                              .x = low_of(p, block, a, i),
                                                              .dy = dy,
                                                              .n = p->b * p->t,
                                                              .in = a->r,
                                                              .out = a->out[i],
                                                              .dy_stride = dy_stride,
                                                              .layout = MATMUL_LAYOUT_OI,
                                                              .accumulate = p->accumulate}));
    TRY(p->op->matmul_bwd_x(p->stream, &(struct matmul_bwd_x){.dx = dlow_of(p, a, i),
                                                              .dy = dy,
                                                              .w = value_of(p, a->b[i]),
                                                              .n = p->b * p->t,
                                                              .in = a->r,
                                                              .out = a->out[i],
                                                              .dy_stride = dy_stride,
                                                              .layout = MATMUL_LAYOUT_OI}));
    return scale_rows(p, a->r, tensor_at(transformer_acts(p)->low_all, i * a->r), a->modules * a->r,
                      dlow_of(p, a, i), a->r);
}

enum status transformer_adapter_bwd_w(const struct pass *p, int block, enum transformer_layer layer,
                                      struct tensor x, struct tensor dy)
{
    const struct transformer_adapter a = transformer_params_adapter(p->dims, block, layer);
    const int64_t stride = transformer_params_linear(p->dims, block, layer).out;
    if (a.modules == 0)
        return ST_OK;
    for (int i = 0; i < a.modules; i++)
        TRY(module_bwd(p, block, &a, i, tensor_at(dy, a.at[i]), stride));
    return p->op->matmul_bwd_w(p->stream, &(struct matmul_bwd_w){.dw = grad_of(p, a.a),
                                                                 .x = x,
                                                                 .dy = transformer_acts(p)->low_all,
                                                                 .n = p->b * p->t,
                                                                 .in = a.in,
                                                                 .out = a.modules * a.r,
                                                                 .layout = MATMUL_LAYOUT_OI,
                                                                 .accumulate = p->accumulate});
}

enum status transformer_adapter_bwd_x(const struct pass *p, int block, enum transformer_layer layer,
                                      struct tensor dx)
{
    const struct transformer_adapter a = transformer_params_adapter(p->dims, block, layer);
    if (a.modules == 0)
        return ST_OK;
    return p->op->matmul_fwd(p->stream, &(struct matmul_fwd){.y = dx,
                                                             .residual = dx,
                                                             .x = transformer_acts(p)->low_all,
                                                             .w = value_of(p, a.a),
                                                             .n = p->b * p->t,
                                                             .in = a.modules * a.r,
                                                             .out = a.in,
                                                             .layout = MATMUL_LAYOUT_IO});
}
