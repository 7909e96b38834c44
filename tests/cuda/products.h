/* products — the matrix products of a training step of GPT-2, each form once: what tests describe
 * to NVIDIA's cuBLASLt and `gpu_tests tune` measures. test_products_cuda compares the list with the
 * products that a step asks for. */
#ifndef CONVOY_TESTS_CUDA_PRODUCTS_H
#define CONVOY_TESTS_CUDA_PRODUCTS_H

#include <stdio.h>

#include "dev/blas/form.h"
#include "model/model.h"

#define PRODUCTS_MAX 32

enum product_kind { PRODUCT_FWD, PRODUCT_BWD_X, PRODUCT_BWD_W };

struct product {
    enum product_kind kind;
    char name[64];
    union {
        struct matmul_fwd fwd;
        struct matmul_bwd_x bwd_x;
        struct matmul_bwd_w bwd_w;
    } args;
};

/* at — memory for so many bytes, aligned to 256; NULL: an address that nothing reads. */
struct products_config {
    struct model_dims dims;
    enum dtype dtype;
    int64_t n, logits_rows, logits_stride; /* n: rows of a micro-batch */
    void *(*at)(size_t bytes);
};

struct products {
    struct products_config c;
    struct product list[PRODUCTS_MAX];
    int n;
};

static inline struct tensor products_tensor(const struct products *p, int64_t n, enum dtype dtype)
{
    size_t bytes = (size_t)n * dtype_bytes(dtype);
    return (struct tensor){p->c.at ? p->c.at(bytes) : (void *)(uintptr_t)4096, dtype};
}

static inline struct product *products_next(struct products *p, enum product_kind kind,
                                            const char *name)
{
    struct product *out = &p->list[p->n++];
    *out = (struct product){.kind = kind};
    snprintf(out->name, sizeof out->name, "%s", name);
    return out;
}

/* One matrix of a layer: what it multiplies, and which of the folded operations it has. */
struct products_layer {
    const char *name;
    int64_t rows, in, out, stride;
    enum matmul_layout layout;
    bool has_bias, has_residual, has_gelu, has_gelu_grad;
};

static inline void products_forward(struct products *p, const struct products_layer *l,
                                    const char *what, bool has_gelu, bool has_pre)
{
    const struct tensor none = {0};
    char name[64];
    snprintf(name, sizeof name, "%s %s", l->name, what);
    int64_t out = l->stride ? l->stride : l->out;
    products_next(p, PRODUCT_FWD, name)->args.fwd = (struct matmul_fwd){
        .y = products_tensor(p, l->rows * out, p->c.dtype),
        .pre = has_pre ? products_tensor(p, l->rows * l->out, p->c.dtype) : none,
        .x = products_tensor(p, l->rows * l->in, p->c.dtype),
        .w = products_tensor(p, l->in * l->out, p->c.dtype),
        .b = l->has_bias ? products_tensor(p, l->out, p->c.dtype) : none,
        .residual = l->has_residual ? products_tensor(p, l->rows * l->out, p->c.dtype) : none,
        .n = l->rows,
        .in = l->in,
        .out = l->out,
        .y_stride = l->stride,
        .layout = l->layout,
        .act = has_gelu ? MATMUL_ACT_GELU : MATMUL_ACT_NONE};
}

static inline void products_backward(struct products *p, const struct products_layer *l)
{
    const struct tensor none = {0};
    char name[64];
    int64_t out = l->stride ? l->stride : l->out;
    snprintf(name, sizeof name, "%s dx", l->name);
    products_next(p, PRODUCT_BWD_X, name)->args.bwd_x = (struct matmul_bwd_x){
        .dx = products_tensor(p, l->rows * l->in, p->c.dtype),
        .dy = products_tensor(p, l->rows * out, p->c.dtype),
        .w = products_tensor(p, l->in * l->out, p->c.dtype),
        .pre = l->has_gelu_grad ? products_tensor(p, l->rows * l->in, p->c.dtype) : none,
        .n = l->rows,
        .in = l->in,
        .out = l->out,
        .dy_stride = l->stride,
        .layout = l->layout};
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        snprintf(name, sizeof name, "%s dw%s", l->name, accumulate ? " added" : "");
        products_next(p, PRODUCT_BWD_W, name)->args.bwd_w =
            (struct matmul_bwd_w){.dw = products_tensor(p, l->in * l->out, DTYPE_F32),
                                  .db = l->has_bias ? products_tensor(p, l->out, DTYPE_F32) : none,
                                  .x = products_tensor(p, l->rows * l->in, p->c.dtype),
                                  .dy = products_tensor(p, l->rows * out, p->c.dtype),
                                  .n = l->rows,
                                  .in = l->in,
                                  .out = l->out,
                                  .dy_stride = l->stride,
                                  .layout = l->layout,
                                  .accumulate = accumulate};
    }
}

static inline void products_layer(struct products *p, const struct products_layer *l)
{
    products_forward(p, l, "fwd", l->has_gelu, l->has_gelu);
    if (l->has_gelu) { /* without gradients; and computed again without GELU */
        products_forward(p, l, "eval", true, false);
        products_forward(p, l, "again", false, false);
    }
    products_backward(p, l);
}

/* products_of — those of the layers of a block, and of the head of the task. */
static inline void products_of(const struct products_config *c, struct products *out)
{
    int64_t n = c->n, e = c->dims.embed, rows = c->logits_rows;
    struct model_dims dims = c->dims;
    dims.part.vocab_multiple = MODEL_VOCAB_MULTIPLE_GPU;
    const struct products_layer block[] = {
        {.name = "qkv", .rows = n, .in = e, .out = 3 * e, .has_bias = true},
        {.name = "att", .rows = n, .in = e, .out = e, .has_bias = true, .has_residual = true},
        {.name = "fc", .rows = n, .in = e, .out = 4 * e, .has_bias = true, .has_gelu = true},
        {.name = "mlp",
         .rows = n,
         .in = 4 * e,
         .out = e,
         .has_bias = true,
         .has_residual = true,
         .has_gelu_grad = true}};
    const struct products_layer lm = {.name = "vocabulary",
                                      .rows = rows,
                                      .in = e,
                                      .out = model_vocab_rows(&dims),
                                      .stride = c->logits_stride,
                                      .layout = MATMUL_LAYOUT_OI};
    const struct products_layer qa = {.name = "answers",
                                      .rows = n,
                                      .in = e,
                                      .out = 2,
                                      .has_bias = true,
                                      .layout = MATMUL_LAYOUT_OI};
    out->c = *c;
    out->n = 0;
    for (size_t i = 0; i < sizeof block / sizeof *block; i++)
        products_layer(out, &block[i]);
    products_layer(out, c->dims.task == MODEL_TASK_LM ? &lm : &qa);
}

static inline int products_forms(const struct product *p, bool is_tf32,
                                 struct blas_form out[BLAS_FORMS])
{
    switch (p->kind) {
    case PRODUCT_FWD:
        return blas_form_fwd(is_tf32, &p->args.fwd, out);
    case PRODUCT_BWD_X:
        return blas_form_bwd_x(is_tf32, &p->args.bwd_x, out);
    default:
        return blas_form_bwd_w(is_tf32, &p->args.bwd_w, out);
    }
}

#endif
