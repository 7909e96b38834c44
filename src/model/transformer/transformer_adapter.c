/* transformer_adapter — adapters of linear layers (LoRA, Hu et al. 2021), forward and backward.
 *
 * A layer's output gets u·Bᵀ, with u = (alpha/r)·x·Aᵀ. u is computed again in the backward pass:
 * its product is small, and keeping u would need memory for each layer. With a tensor axis either A
 * or B is cut as the layer's matrix is, and the sums that follow the layer's products add up the
 * adapter's summands. It must not know the order of a block. */
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

/* Returns the rows (N,r) of a module in `low`. */
static struct tensor low_of(const struct pass *p, const struct transformer_adapter *a, int module)
{
    return tensor_at(transformer_acts(p)->low, module * p->b * p->t * a->r);
}

/* Multiplies by alpha/r the columns of each module in low_all, to rows of their own in `low`; or
 * the other way round. */
static enum status scale_modules(const struct pass *p, const struct transformer_adapter *a,
                                 bool is_back)
{
    const int64_t r = a->r, all = a->modules * r;
    for (int i = 0; i < a->modules; i++) {
        const struct tensor low = low_of(p, a, i),
                            columns = tensor_at(transformer_acts(p)->low_all, i * r);
        TRY(p->op->copy_2d(
            p->stream, &(struct copy_2d){.y = is_back ? columns : low,
                                         .x = is_back ? low : columns,
                                         .rows = p->b * p->t,
                                         .columns = r,
                                         .y_stride = is_back ? all : r,
                                         .x_stride = is_back ? r : all,
                                         .scale = (float)(p->dims->adapter.alpha / (double)r)}));
    }
    return ST_OK;
}

/* Computes u of all modules, in `low`. */
static enum status compute_low(const struct pass *p, const struct transformer_adapter *a,
                               struct tensor x)
{
    const struct matmul_fwd product = {.y = transformer_acts(p)->low_all,
                                       .x = x,
                                       .w = value_of(p, a->a),
                                       .n = p->b * p->t,
                                       .in = a->in,
                                       .out = a->modules * a->r,
                                       .layout = MATMUL_LAYOUT_OI};
    TRY(p->op->matmul_fwd(p->stream, &product));
    return scale_modules(p, a, false);
}

enum status transformer_adapter_fwd(const struct pass *p, int block, enum transformer_layer layer,
                                    struct tensor y, int64_t y_stride, struct tensor x)
{
    const struct transformer_adapter a = transformer_params_adapter(p->dims, block, layer);
    if (a.modules == 0)
        return ST_OK;
    TRY(compute_low(p, &a, x));
    for (int64_t i = 0, at = 0; i < a.modules; at += a.out[i++]) {
        const struct tensor module = tensor_at(y, at);
        TRY(p->op->matmul_fwd(p->stream, &(struct matmul_fwd){.y = module,
                                                              .residual = module,
                                                              .x = low_of(p, &a, (int)i),
                                                              .w = value_of(p, a.b[i]),
                                                              .n = p->b * p->t,
                                                              .in = a.r,
                                                              .out = a.out[i],
                                                              .y_stride = y_stride,
                                                              .layout = MATMUL_LAYOUT_OI}));
    }
    return ST_OK;
}

/* Computes the gradient of module i's B from u, and then, in the place of u, its gradient before
 * the factor. dy: rows of the module's output. */
static enum status module_bwd(const struct pass *p, const struct transformer_adapter *a, int i,
                              struct tensor dy, int64_t dy_stride)
{
    const struct tensor low = low_of(p, a, i);
    TRY(p->op->matmul_bwd_w(p->stream, &(struct matmul_bwd_w){.dw = grad_of(p, a->b[i]),
                                                              .x = low,
                                                              .dy = dy,
                                                              .n = p->b * p->t,
                                                              .in = a->r,
                                                              .out = a->out[i],
                                                              .dy_stride = dy_stride,
                                                              .layout = MATMUL_LAYOUT_OI,
                                                              .accumulate = p->accumulate}));
    return p->op->matmul_bwd_x(p->stream, &(struct matmul_bwd_x){.dx = low,
                                                                 .dy = dy,
                                                                 .w = value_of(p, a->b[i]),
                                                                 .n = p->b * p->t,
                                                                 .in = a->r,
                                                                 .out = a->out[i],
                                                                 .dy_stride = dy_stride,
                                                                 .layout = MATMUL_LAYOUT_OI});
}

enum status transformer_adapter_bwd_w(const struct pass *p, int block, enum transformer_layer layer,
                                      struct tensor x, struct tensor dy)
{
    const struct transformer_adapter a = transformer_params_adapter(p->dims, block, layer);
    const int64_t stride = transformer_params_linear(p->dims, block, layer).out;
    if (a.modules == 0)
        return ST_OK;
    TRY(compute_low(p, &a, x));
    for (int64_t i = 0, at = 0; i < a.modules; at += a.out[i++])
        TRY(module_bwd(p, &a, (int)i, tensor_at(dy, at), stride));
    TRY(scale_modules(p, &a, true));
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
