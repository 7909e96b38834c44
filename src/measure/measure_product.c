/* measure_product — see measure_product.h. */
#include "measure/measure_product.h"

/* Runs the products of a layer's backward pass. */
static enum status run_backward(struct stream *s, const struct op_table *op,
                                const struct matmul_bwd_x *x, const struct matmul_bwd_w *w)
{
    TRY(op->matmul_bwd_x(s, x));
    return op->matmul_bwd_w(s, w);
}

/* Each function below allocates the arguments of one run from t. op NULL: it runs nothing, to
 * measure the memory that a run needs. */

static enum status run_forward(struct measure_args *t, const struct measure_product *p,
                               const struct op_table *op)
{
    struct tensor x = measure_memory_alloc(t, p->n * p->in, p->dtype),
                  y = measure_memory_alloc(t, p->n * p->out, p->dtype),
                  w = measure_memory_alloc_shared(t, p->in * p->out, p->dtype);
    const struct matmul_fwd fwd = {.y = y, .x = x, .w = w, .n = p->n, .in = p->in, .out = p->out};
    return op ? op->matmul_fwd(t->memory->stream, &fwd) : ST_OK;
}

static enum status run_layer(struct measure_args *t, const struct measure_product *p,
                             const struct op_table *op)
{
    int64_t n = p->n, in = p->in, o = p->out;
    struct tensor x = measure_memory_alloc(t, n * in, p->dtype),
                  y = measure_memory_alloc(t, n * o, p->dtype),
                  w = measure_memory_alloc_shared(t, in * o, p->dtype),
                  dw = measure_memory_alloc_shared(t, in * o, DTYPE_F32);
    const struct matmul_fwd fwd = {.y = y, .x = x, .w = w, .n = n, .in = in, .out = o};
    const struct matmul_bwd_x bwd_x = {.dx = x, .dy = y, .w = w, .n = n, .in = in, .out = o};
    const struct matmul_bwd_w bwd_w = {
        .dw = dw, .x = x, .dy = y, .n = n, .in = in, .out = o, .accumulate = true};
    if (!op)
        return ST_OK;
    TRY(op->matmul_fwd(t->memory->stream, &fwd));
    return run_backward(t->memory->stream, op, &bwd_x, &bwd_w);
}

/* A block's two layers, with the epilogues of a block in the same operations. */
struct block {
    struct matmul_fwd fwd[2];
    struct matmul_bwd_x bwd_x[2];
    struct matmul_bwd_w bwd_w[2];
};

static struct block allocate_block(struct measure_args *t, const struct measure_product *p)
{
    int64_t n = p->n, in = p->in, o = p->out;
    struct tensor x = measure_memory_alloc(t, n * in, p->dtype),
                  y = measure_memory_alloc(t, n * in, p->dtype),
                  pre = measure_memory_alloc(t, n * o, p->dtype),
                  act = measure_memory_alloc(t, n * o, p->dtype),
                  w = measure_memory_alloc_shared(t, 2 * in * o, p->dtype),
                  dw = measure_memory_alloc_shared(t, 2 * in * o, DTYPE_F32),
                  down = tensor_at(w, in * o), d_down = tensor_at(dw, in * o);
    return (struct block){
        .fwd = {{.y = act,
                 .pre = pre,
                 .x = x,
                 .w = w,
                 .n = n,
                 .in = in,
                 .out = o,
                 .act = MATMUL_ACT_GELU},
                {.y = y, .residual = x, .x = act, .w = down, .n = n, .in = o, .out = in}},
        .bwd_x = {{.dx = x, .dy = pre, .w = w, .n = n, .in = in, .out = o},
                  {.dx = pre, .dy = y, .w = down, .pre = pre, .n = n, .in = o, .out = in}},
        .bwd_w = {{.dw = dw, .x = x, .dy = pre, .n = n, .in = in, .out = o},
                  {.dw = d_down, .x = act, .dy = y, .n = n, .in = o, .out = in}}};
}

static enum status run_block_forward(struct measure_args *t, const struct measure_product *p,
                                     const struct op_table *op)
{
    const struct block block = allocate_block(t, p);
    for (int i = 0; op && i < 2; i++)
        TRY(op->matmul_fwd(t->memory->stream, &block.fwd[i]));
    return ST_OK;
}

static enum status run_head(struct measure_args *t, const struct measure_product *p,
                            const struct op_table *op)
{
    /* Rows of logits begin at whole cache lines, as in training: else AVX2 needs a fifth more. */
    struct stream *s = t->memory->stream;
    int64_t n = p->n, in = p->in, o = p->out, line = 128 / (int64_t)dtype_bytes(p->dtype),
            stride = (p->out + line - 1) / line * line;
    struct tensor x = measure_memory_alloc(t, n * in, p->dtype),
                  y = measure_memory_alloc(t, n * stride, p->dtype),
                  losses = measure_memory_alloc(t, n, DTYPE_F32),
                  w = measure_memory_alloc_shared(t, in * o, p->dtype),
                  dw = measure_memory_alloc_shared(t, in * o, DTYPE_F32);
    const enum matmul_layout layout = MATMUL_LAYOUT_OI; /* layout of a token embedding */
    const struct matmul_fwd fwd = {
        .y = y, .x = x, .w = w, .n = n, .in = in, .out = o, .y_stride = stride, .layout = layout};
    const struct xent xent = {.logits = y,
                              .losses = losses,
                              .targets = {t->memory->zeros, DTYPE_I32},
                              .n = n,
                              .v = o,
                              .stride = stride,
                              .scale = 1e-3f,
                              .want_grad = true};
    const struct matmul_bwd_x bwd_x = {.dx = x,
                                       .dy = y,
                                       .w = w,
                                       .n = n,
                                       .in = in,
                                       .out = o,
                                       .dy_stride = stride,
                                       .layout = layout};
    const struct matmul_bwd_w bwd_w = {.dw = dw,
                                       .x = x,
                                       .dy = y,
                                       .n = n,
                                       .in = in,
                                       .out = o,
                                       .dy_stride = stride,
                                       .layout = layout};
    if (!op)
        return ST_OK;
    TRY(op->matmul_fwd(s, &fwd));
    TRY(op->xent(s, &xent));
    return run_backward(s, op, &bwd_x, &bwd_w);
}

static enum status (*const first_run[])(struct measure_args *t, const struct measure_product *p,
                                        const struct op_table *op) = {
    [MEASURE_PRODUCT_FORWARD] = run_forward,
    [MEASURE_PRODUCT_LAYER] = run_layer,
    [MEASURE_PRODUCT_BLOCK] = run_block_forward,
    [MEASURE_PRODUCT_HEAD] = run_head};

double measure_product_flops(const struct measure_product *product)
{
    static const double each[] = {[MEASURE_PRODUCT_FORWARD] = 2,
                                  [MEASURE_PRODUCT_LAYER] = 6,
                                  [MEASURE_PRODUCT_BLOCK] = 12,
                                  [MEASURE_PRODUCT_HEAD] = 6};
    return each[product->kind] * (double)product->n * (double)product->in * (double)product->out;
}

int64_t measure_product_bytes(const struct measure_product *product)
{
    const struct measure_memory none = {0};
    struct measure_args t = {.memory = &none};
    (void)first_run[product->kind](&t, product, NULL);
    return t.at;
}

bool measure_product_open(const struct measure_product *product,
                          const struct measure_memory *memory, struct measure_product_run *out)
{
    struct measure_args t = {.memory = memory};
    (void)first_run[product->kind](&t, product, NULL);
    out->product = *product;
    return measure_memory_turns(&t, &out->turns);
}

enum status measure_product_work(void *run)
{
    struct measure_product_run *r = run;
    const struct op_table *op = dev_op(r->turns.memory->dev);
    struct measure_args t = measure_memory_next(&r->turns);
    TRY(first_run[r->product.kind](&t, &r->product, op));
    if (r->product.kind != MEASURE_PRODUCT_BLOCK)
        return ST_OK;
    t = measure_memory_next(&r->turns); /* a block's backward pass comes long after its forward */
    const struct block block = allocate_block(&t, &r->product);
    for (int i = 1; i >= 0; i--)
        TRY(run_backward(t.memory->stream, op, &block.bwd_x[i], &block.bwd_w[i]));
    return ST_OK;
}
