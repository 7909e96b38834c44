/* plan_machine_product — rates of products in the shapes of a transformer's linear layers. A GPU's
 * are by FLOPs. On a CPU they are by rows and widths: packing a matrix, and storing a result, take
 * the longer beside the FLOPs the fewer rows or the narrower a layer is; and a product with a
 * vocabulary has rows so long that each of them lies on pages of its own. */
#include "plan/plan_machine_inside.h"

#define BIG_RUN 8   /* slices: a larger size would take too long */
#define BIG_HEAD 40 /* and of heads, in which many models spend half of a step */
#define SIZES(of) (int)(sizeof of / sizeof of[0])

/* A layer of `in` and `out`, on n rows. */
struct product_size {
    int64_t n, in, out;
};

/* What is run at a size: it takes its arguments from memory that has turns, and `run` is NULL to
 * learn how much. flops: as many as n · in · out has. */
struct product_run;
typedef enum status product_work(struct plan_machine_taken *t, const struct product_run *r,
                                 const struct op_table *run);
struct product_run {
    struct product_size size;
    enum dtype dtype;
    product_work *work;
    double flops;
    const struct plan_machine_turns *turns;
};

static enum status run_products(const struct plan_machine *m, const void *args)
{
    const struct product_run *r = args;
    struct plan_machine_taken t = plan_machine_turn_next(r->turns);
    return r->work(&t, r, dev_op(m->config->dev));
}

/* ---- what is run ---- */

/* The products of a layer's backward pass. */
static enum status run_backward(struct stream *s, const struct op_table *run,
                                const struct matmul_bwd_x *x, const struct matmul_bwd_w *w)
{
    TRY(run->matmul_bwd_x(s, x));
    return run->matmul_bwd_w(s, w);
}

/* work_layer — the three products of one layer. */
static enum status work_layer(struct plan_machine_taken *t, const struct product_run *r,
                              const struct op_table *run)
{
    int64_t n = r->size.n, in = r->size.in, o = r->size.out;
    struct tensor x = plan_machine_turn_take(t, n * in, r->dtype),
                  y = plan_machine_turn_take(t, n * o, r->dtype),
                  w = plan_machine_turn_take_shared(t, in * o, r->dtype),
                  dw = plan_machine_turn_take_shared(t, in * o, DTYPE_F32);
    const struct matmul_fwd fwd = {.y = y, .x = x, .w = w, .n = n, .in = in, .out = o};
    const struct matmul_bwd_x bwd_x = {.dx = x, .dy = y, .w = w, .n = n, .in = in, .out = o};
    const struct matmul_bwd_w bwd_w = {
        .dw = dw, .x = x, .dy = y, .n = n, .in = in, .out = o, .accumulate = true};
    if (!run)
        return ST_OK;
    TRY(run->matmul_fwd(t->m->stream, &fwd));
    return run_backward(t->m->stream, run, &bwd_x, &bwd_w);
}

/* A block's two layers, in → out → in, with what a block does in the same operations. */
struct mlp {
    struct matmul_fwd fwd[2];
    struct matmul_bwd_x bwd_x[2];
    struct matmul_bwd_w bwd_w[2];
};

static struct mlp take_mlp(struct plan_machine_taken *t, const struct product_run *r)
{
    int64_t n = r->size.n, in = r->size.in, o = r->size.out;
    struct tensor x = plan_machine_turn_take(t, n * in, r->dtype),
                  y = plan_machine_turn_take(t, n * in, r->dtype),
                  pre = plan_machine_turn_take(t, n * o, r->dtype),
                  act = plan_machine_turn_take(t, n * o, r->dtype),
                  w = plan_machine_turn_take_shared(t, 2 * in * o, r->dtype),
                  dw = plan_machine_turn_take_shared(t, 2 * in * o, DTYPE_F32),
                  down = tensor_at(w, in * o), d_down = tensor_at(dw, in * o);
    return (struct mlp){
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

/* work_mlp — the backward pass of a block comes long after its forward pass, in another turn. */
static enum status work_mlp(struct plan_machine_taken *t, const struct product_run *r,
                            const struct op_table *run)
{
    struct mlp mlp = take_mlp(t, r);
    for (int i = 0; run && i < 2; i++)
        TRY(run->matmul_fwd(t->m->stream, &mlp.fwd[i]));
    if (!run)
        return ST_OK;
    struct plan_machine_taken other = plan_machine_turn_next(r->turns);
    mlp = take_mlp(&other, r);
    for (int i = 1; i >= 0; i--)
        TRY(run_backward(t->m->stream, run, &mlp.bwd_x[i], &mlp.bwd_w[i]));
    return ST_OK;
}

/* Rows of logits begin at whole cache lines, as in training: else AVX2 takes a fifth longer. */
static int64_t logits_stride(const struct product_run *r)
{
    const int64_t line = 128 / (int64_t)dtype_bytes(r->dtype);
    return (r->size.out + line - 1) / line * line;
}

/* work_head — a layer whose `out` is a vocabulary, and the loss between its passes. */
static enum status work_head(struct plan_machine_taken *t, const struct product_run *r,
                             const struct op_table *run)
{
    struct stream *s = t->m->stream;
    int64_t n = r->size.n, in = r->size.in, o = r->size.out, stride = logits_stride(r);
    struct tensor x = plan_machine_turn_take(t, n * in, r->dtype),
                  y = plan_machine_turn_take(t, n * stride, r->dtype),
                  losses = plan_machine_turn_take(t, n, DTYPE_F32),
                  w = plan_machine_turn_take_shared(t, in * o, r->dtype),
                  dw = plan_machine_turn_take_shared(t, in * o, DTYPE_F32);
    const enum matmul_layout layout = MATMUL_LAYOUT_OI; /* of a token embedding */
    const struct matmul_fwd fwd = {
        .y = y, .x = x, .w = w, .n = n, .in = in, .out = o, .y_stride = stride, .layout = layout};
    const struct xent xent = {y, losses, {t->m->zeros, DTYPE_I32}, n, o, stride, 1e-3f, true, 0};
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
    if (!run)
        return ST_OK;
    TRY(run->matmul_fwd(s, &fwd));
    TRY(run->xent(s, &xent));
    return run_backward(s, run, &bwd_x, &bwd_w);
}

/* loss_seconds — of the head's loss, as a plan counts it: what is left is the products' time. */
static double loss_seconds(const struct plan_machine *m, const struct product_run *r)
{
    const struct plan_cluster *c = m->cluster;
    double bytes = 2.0 * (double)r->size.n * (double)r->size.out * (double)dtype_bytes(r->dtype);
    return r->work == work_head ? bytes / (c->memory_bytes_per_second * c->memory_share) : 0;
}

/* ---- the rate at a size ---- */

/* measure_product — rate 0: no memory. is_last: a larger one would take too long. */
static enum status measure_product(const struct plan_machine *m, struct product_run *r,
                                   double *rate_out, bool *is_last)
{
    struct plan_machine_taken t = {.m = m};
    struct plan_machine_turns turns;
    int64_t at = 0;
    double seconds, loss = loss_seconds(m, r),
                    flops = (double)r->size.n * (double)r->size.in * (double)r->size.out * r->flops;
    *rate_out = 0;
    TRY(r->work(&t, r, NULL));
    if (!plan_machine_turn_open(&t, &at, &turns))
        return ST_OK;
    r->turns = &turns;
    TRY(plan_machine_time(m, run_products, r, &seconds));
    *rate_out = flops / (loss < seconds / 2 ? seconds - loss : seconds / 2);
    *is_last = seconds > (r->work == work_head ? BIG_HEAD : BIG_RUN) * m->slice;
    return ST_OK;
}

/* measure_again — what is measured twice counts by its better time: another process disturbs all of
 * a measurement easily, but not two that are apart. */
static enum status measure_again(const struct plan_machine *m, struct product_run *r, double *rate)
{
    bool is_last;
    double again;
    TRY(measure_product(m, r, &again, &is_last));
    *rate = again > *rate ? again : *rate;
    return ST_OK;
}

/* ---- by FLOPs ---- */

static const struct product_size flops_sizes[] = {
    {64, 32, 128},       {128, 64, 256},      {256, 128, 512},    {256, 256, 1024},
    {256, 512, 2048},    {512, 768, 3072},    {1024, 1024, 4096}, {1024, 2048, 8192},
    {2048, 4096, 16384}, {8192, 4096, 16384}, {8192, 8192, 32768}};

static enum status measure_flops(struct plan_machine *m, enum dtype dtype, struct plan_share *share)
{
    struct product_run r = {.dtype = dtype, .work = work_layer, .flops = 6};
    bool is_last = false;
    for (int i = 0; !is_last && i < SIZES(flops_sizes); i++) {
        double rate;
        r.size = flops_sizes[i];
        TRY(measure_product(m, &r, &rate, &is_last));
        if (rate > 0)
            plan_machine_share_add(
                share, 2.0 * (double)r.size.n * (double)r.size.in * (double)r.size.out, rate);
    }
    for (int i = 0; i < share->n; i++) {
        r.size = flops_sizes[i];
        TRY(measure_again(m, &r, &share->point[i].share));
    }
    return ST_OK;
}

/* ---- by rows and widths ---- */

/* Layers of blocks, and heads. */
#define VOCAB 50001
#define ROWS_MOST 4
struct row_sizes {
    int64_t in, out, rows[ROWS_MOST]; /* rows 0: there are no more */
};
static const struct row_sizes block_sizes[] = {{32, 128, {64, 256}},
                                               {128, 512, {64, 128, 256, 1024}},
                                               {512, 2048, {64, 128, 256, 1024}}},
                              wide_sizes[] = {{128, VOCAB, {64, 128, 256, 512}},
                                              {512, VOCAB, {64, 128, 256}}};

static struct product_run run_of(const struct row_sizes *s, int i)
{
    bool is_head = s->out == VOCAB;
    return (struct product_run){.size = {s->rows[i], s->in, s->out},
                                .dtype = DTYPE_F32,
                                .work = is_head ? work_head : work_mlp,
                                .flops = is_head ? 6 : 12};
}

static enum status measure_width(const struct plan_machine *m, const struct row_sizes *s,
                                 struct plan_share *share)
{
    bool is_last = false;
    for (int i = 0; !is_last && i < ROWS_MOST && s->rows[i] > 0; i++) {
        struct product_run r = run_of(s, i);
        double rate;
        TRY(measure_product(m, &r, &rate, &is_last));
        if (rate > 0)
            plan_machine_share_add(share, (double)s->rows[i], rate);
    }
    for (int i = 0; i < share->n; i++) {
        struct product_run r = run_of(s, i);
        TRY(measure_again(m, &r, &share->point[i].share));
    }
    return ST_OK;
}

static enum status measure_rows(struct plan_machine *m, const struct row_sizes *sizes, int n,
                                struct plan_rows *out)
{
    for (int i = 0; i < n; i++) {
        struct plan_rows_width *to = &out->width[out->n];
        to->width = (double)sizes[i].in;
        TRY(measure_width(m, &sizes[i], &to->share));
        out->n += to->share.n > 0;
    }
    return ST_OK;
}

static double best_rows(double best, const struct plan_rows *rows)
{
    for (int i = 0; i < rows->n; i++)
        best = plan_machine_share_best(&rows->width[i].share, best);
    return best;
}
static void divide_rows(struct plan_rows *rows, double best)
{
    for (int i = 0; i < rows->n; i++)
        plan_machine_share_divide(&rows->width[i].share, best);
}

static enum status measure_all_rows(struct plan_machine *m)
{
    struct plan_cluster *c = m->cluster;
    TRY(measure_rows(m, block_sizes, SIZES(block_sizes), &c->product_rows));
    TRY(measure_rows(m, wide_sizes, SIZES(wide_sizes), &c->product_wide));
    double best = best_rows(best_rows(0, &c->product_rows), &c->product_wide);
    divide_rows(&c->product_rows, best);
    divide_rows(&c->product_wide, best);
    c->peak[PLAN_PRECISION_F32] = best;
    return ST_OK;
}

/* ---- all ---- */

enum status plan_machine_product(struct plan_machine *m)
{
    struct plan_cluster *c = m->cluster;
    enum plan_precision wide = m->info.is_tf32 ? PLAN_PRECISION_TF32 : PLAN_PRECISION_F32;
    if (!c->is_gpu)
        return measure_all_rows(m);
    TRY(measure_flops(m, DTYPE_F32, &c->product[wide]));
    c->peak[wide] = plan_machine_share_peak(m->info.peak_flops, &c->product[wide]);
    TRY(measure_flops(m, DTYPE_BF16, &c->product[PLAN_PRECISION_BF16]));
    c->peak[PLAN_PRECISION_BF16] =
        plan_machine_share_peak(m->info.peak_flops_16, &c->product[PLAN_PRECISION_BF16]);
    return ST_OK;
}
