/* plan_machine_device — the device's operations in the shapes of a transformer, from sizes that fit
 * into a cache to sizes that need a slice each.
 *
 * Products of a GPU are measured by FLOPs, products of a CPU by rows and widths. On a CPU, packing
 * a matrix and storing a result need more time relative to the FLOPs if a layer has fewer rows or
 * is narrower; and in a product with a vocabulary, rows are so long that each lies on separate
 * pages. */
#include "dev/op_cost.h"
#include "measure/measure_product.h"
#include "measure/measure_ranks.h"
#include "plan/plan_machine.h"

#define MIB ((int64_t)1 << 20)
#define MEMORY_LEAST (2 * MIB)  /* within the smallest budget */
#define SHARED_MOST (256 * MIB) /* more than caches hold */
#define ATTENTION_ELEMS 512     /* elements of all heads together */
#define ATTENTION_WIDTH 64
#define ATTENTION_TOKENS 256
#define MEMORY_SHARE_LEAST 1e-3
#define SIZES(of) (int)(sizeof of / sizeof of[0])
#define BIG_RUN 8   /* slices: a larger size would need too long */
#define BIG_HEAD 40 /* the same for heads, in which many models spend half of a step */
#define SHARE_LEAST 1e-6

/* ---- rates as shares of a peak ---- */

static void add_point(struct plan_share *share, double size, double rate)
{
    share->point[share->n].size = size;
    share->point[share->n++].share = rate;
}

/* Limits a share to the range of a file, even if its measurement was disturbed. */
static double clamp_share(double share, double least)
{
    return share < least ? least : share < 1 ? share : 1;
}

/* Returns the largest rate, at least `best`. */
static double best_of(const struct plan_share *share, double best)
{
    for (int i = 0; i < share->n; i++)
        best = share->point[i].share > best ? share->point[i].share : best;
    return best;
}

/* Makes shares of `best` from the rates. */
static void normalize_shares(struct plan_share *share, double best)
{
    for (int i = 0; i < share->n; i++)
        share->point[i].share = clamp_share(share->point[i].share / best, SHARE_LEAST);
}

/* Makes shares of the peak, which is the data sheet's or the largest rate, and returns it. */
static double divide_by_peak(double sheet, struct plan_share *share)
{
    const double best = best_of(share, sheet);
    normalize_shares(share, best);
    return best;
}

/* ---- attention ---- */

struct attention_run {
    int64_t tokens, d;
    enum dtype dtype;
    struct measure_turns turns;
};

struct attention {
    struct attention_fwd fwd;
    struct attention_bwd bwd;
};

static void lay_attention(struct measure_args *t, const struct attention_run *r,
                          struct attention *out)
{
    const int64_t h = ATTENTION_ELEMS / r->d, row = 3 * h * r->d, elems = r->tokens * h * r->d;
    const enum dtype dtype = r->dtype;
    struct tensor qkv = measure_memory_alloc(t, r->tokens * row, dtype),
                  dqkv = measure_memory_alloc(t, r->tokens * row, dtype),
                  y = measure_memory_alloc(t, elems, dtype),
                  dy = measure_memory_alloc(t, elems, dtype),
                  lse = measure_memory_alloc(t, r->tokens * h, DTYPE_F32);
    *out = (struct attention){
        {.out = y, .lse = lse, .qkv = qkv, .b = 1, .t = r->tokens, .h = h, .hk = h, .d = r->d},
        {.dqkv = dqkv,
         .dout = dy,
         .out = y,
         .qkv = qkv,
         .lse = lse,
         .b = 1,
         .t = r->tokens,
         .h = h,
         .hk = h,
         .d = r->d}};
}

static enum status run_attention(void *arg)
{
    struct attention_run *r = arg;
    struct measure_args t = measure_memory_next(&r->turns);
    const struct op_table *op = dev_op(t.memory->dev);
    struct attention a;
    lay_attention(&t, r, &a);
    TRY(op->attention_fwd(t.memory->stream, &a.fwd));
    return op->attention_bwd(t.memory->stream, &a.bwd);
}

/* Sets *rate_out to FLOP/s of attention, forward and backward together; 0: there is not enough
 * memory. */
static enum status attention_rate(const struct plan_machine *m, int64_t tokens, int64_t d,
                                  double *rate_out, double *flops_out, double *seconds_out)
{
    struct measure_args t = {.memory = &m->memory};
    struct attention_run r = {.tokens = tokens, .d = d, .dtype = m->dtype};
    struct attention a;
    struct op_cost fwd, bwd;
    *rate_out = 0;
    lay_attention(&t, &r, &a);
    if (!measure_memory_turns(&t, &r.turns))
        return ST_OK;
    op_cost(OP_KIND_attention_fwd, &a.fwd, &fwd);
    op_cost(OP_KIND_attention_bwd, &a.bwd, &bwd);
    *flops_out = (double)(fwd.flops + bwd.flops);
    TRY(plan_machine_time(m, run_attention, &r, seconds_out));
    *rate_out = *flops_out / *seconds_out;
    return ST_OK;
}

/* Measures attention with heads of other widths and the same FLOPs. Points are shares of the
 * fastest. */
static enum status measure_attention_width(struct plan_machine *m)
{
    static const int64_t widths[] = {32, 64, 128};
    struct plan_share *share = &m->cluster->attention_width;
    double rate, flops, seconds;
    for (int i = m->cluster->is_gpu; i < SIZES(widths); i++) { /* widths of a GPU begin with 64 */
        TRY(attention_rate(m, ATTENTION_TOKENS, widths[i], &rate, &flops, &seconds));
        if (rate == 0)
            break;
        add_point(share, (double)widths[i], rate);
    }
    (void)divide_by_peak(0, share);
    return ST_OK;
}

/* Measures attention. A point lies between the FLOPs of forward and of backward. */
static enum status measure_attention(struct plan_machine *m)
{
    struct plan_share *share = &m->cluster->attention;
    enum plan_precision precision = m->cluster->is_gpu ? PLAN_PRECISION_BF16
                                    : m->info.is_tf32  ? PLAN_PRECISION_TF32
                                                       : PLAN_PRECISION_F32;
    TRY(measure_attention_width(m));
    double peak = m->cluster->peak[precision] *
                  plan_cluster_share(&m->cluster->attention_width, ATTENTION_WIDTH);
    for (int64_t tokens = 64; tokens <= 16384; tokens *= 2) {
        double rate, flops, seconds;
        TRY(attention_rate(m, tokens, ATTENTION_WIDTH, &rate, &flops, &seconds));
        if (rate == 0)
            break;
        add_point(share, flops / 2, clamp_share(rate / peak, SHARE_LEAST));
        if (seconds > BIG_RUN * m->slice)
            break;
    }
    return ST_OK;
}

/* ---- memory ---- */

struct adamw_run {
    const struct measure_memory *memory;
    struct adamw adamw;
    struct optim_span span;
};

static enum status run_adamw(void *arg)
{
    const struct adamw_run *r = arg;
    return dev_op(r->memory->dev)->adamw(r->memory->stream, &r->adamw);
}

/* Lays out an update. Returns false if there is not enough memory. */
static bool make_adamw(const struct measure_memory *memory, int64_t elems, struct adamw_run *out)
{
    struct measure_args t = {.memory = memory};
    out->memory = memory;
    out->span = (struct optim_span){.elems = elems};
    out->adamw = (struct adamw){.spans = &out->span,
                                .spans_n = 1,
                                .lr = 1e-9,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .eps = 1e-8,
                                .step = 2};
    out->adamw.p = measure_memory_alloc(&t, elems, DTYPE_F32);
    out->adamw.g = measure_memory_alloc_shared(&t, elems, DTYPE_F32);
    out->adamw.m = measure_memory_alloc(&t, elems, DTYPE_F32);
    out->adamw.v = measure_memory_alloc(&t, elems, DTYPE_F32);
    out->adamw.grad_scale = measure_memory_alloc(&t, 2, DTYPE_F64);
    return t.at <= memory->bytes && t.shared_at <= memory->shared_bytes;
}

/* Measures the optimiser, and a copy of parameters, up to the available memory, which caches do not
 * hold, or up to the size that needs a slice. */
static enum status measure_memory(struct plan_machine *m, double *adamw_out)
{
    struct adamw_run r;
    struct op_cost cost;
    double seconds = 0, copy = 0;
    for (int64_t elems = 1 << 16; make_adamw(&m->memory, elems, &r); elems *= 4) {
        struct measure_memory_run run = {
            .memory = &m->memory, .to = r.adamw.p, .from = r.adamw.g, .elems = elems};
        op_cost(OP_KIND_adamw, &r.adamw, &cost);
        TRY(plan_machine_time(m, run_adamw, &r, &seconds));
        TRY(plan_machine_time(m, measure_memory_copy, &run, &copy));
        *adamw_out = (double)(cost.bytes_read + cost.bytes_written) / seconds;
        copy = 8.0 * (double)elems / copy;
        if (seconds > m->slice)
            break;
    }
    m->cluster->memory_bytes_per_second = copy > *adamw_out ? copy : *adamw_out;
    return ST_OK;
}

/* The operations between products, on rows of one block, on a chunk of the head, and on the
 * gradients of the same number of parameters. */
struct between {
    struct norm_fwd norm_fwd;
    struct norm_bwd norm_bwd;
    struct gelu_fwd gelu;
    struct swiglu_fwd swiglu_fwd;
    struct swiglu_bwd swiglu_bwd;
    struct xent xent;
    struct sumsq sumsq;
};
#define BETWEEN_OPS(X)        \
    X(norm_fwd, norm_fwd)     \
    X(norm_bwd, norm_bwd)     \
    X(gelu_fwd, gelu)         \
    X(swiglu_fwd, swiglu_fwd) \
    X(swiglu_bwd, swiglu_bwd) \
    X(xent, xent)             \
    X(sumsq, sumsq)

struct between_run {
    int64_t n, c;
    enum dtype dtype;
    struct measure_turns turns;
};

static void lay_between(struct measure_args *t, const struct between_run *r, struct between *out)
{
    const enum dtype dtype = r->dtype;
    int64_t n = r->n, c = r->c, f = 4 * c, v = 16 * c;
    struct tensor x = measure_memory_alloc(t, n * c, dtype),
                  y = measure_memory_alloc(t, n * c, dtype),
                  up = measure_memory_alloc(t, 2 * n * f, dtype),
                  act = measure_memory_alloc(t, n * f, dtype),
                  logits = measure_memory_alloc(t, n * v, dtype),
                  grads = measure_memory_alloc(t, n * f, DTYPE_F32),
                  w = measure_memory_alloc(t, c, dtype), dw = measure_memory_alloc(t, c, DTYPE_F32),
                  db = measure_memory_alloc(t, c, DTYPE_F32),
                  mean = measure_memory_alloc(t, n, DTYPE_F32),
                  rstd = measure_memory_alloc(t, n, DTYPE_F32),
                  losses = measure_memory_alloc(t, n, DTYPE_F32),
                  sum = measure_memory_alloc(t, 1, DTYPE_F64),
                  targets = {t->memory->zeros, DTYPE_I32};
    *out = (struct between){
        .norm_fwd = {y, mean, rstd, x, w, w, n, c, 1e-5f, NORM_KIND_LAYER},
        .norm_bwd = {x, dw, db, y, x, mean, rstd, w, {0}, n, c, true, NORM_KIND_LAYER},
        .gelu = {.y = act, .x = up, .n = n * f},
        .swiglu_fwd = {.y = act, .gu = up, .n = n, .f = f},
        .swiglu_bwd = {.dgu = up, .dy = act, .gu = up, .n = n, .f = f},
        .xent = {logits, losses, targets, n, v, v, 1e-3f, true, 0, {0}},
        .sumsq = {.out = sum, .x = grads, .n = n * f}};
}

static enum status run_between(void *arg)
{
    struct between_run *r = arg;
    struct measure_args t = measure_memory_next(&r->turns);
    struct between b;
    lay_between(&t, r, &b);
#define BETWEEN_RUN(op, field) TRY(dev_op(t.memory->dev)->op(t.memory->stream, &b.field));
    BETWEEN_OPS(BETWEEN_RUN)
#undef BETWEEN_RUN
    return ST_OK;
}

/* Measures the operations between products. bytes_out 0: there is not enough memory. */
static enum status time_between(const struct plan_machine *m, int64_t n, int64_t c,
                                double *bytes_out, double *seconds_out)
{
    struct measure_args t = {.memory = &m->memory};
    struct between_run r = {.n = n, .c = c, .dtype = m->dtype};
    struct between b;
    lay_between(&t, &r, &b);
    *bytes_out = 0;
    if (n > MEASURE_MEMORY_ZEROS || !measure_memory_turns(&t, &r.turns))
        return ST_OK;
    double bytes = 0;
    struct op_cost cost;
#define BETWEEN_COST(op, field)             \
    op_cost(OP_KIND_##op, &b.field, &cost); \
    bytes += (double)(cost.bytes_read + cost.bytes_written);
    BETWEEN_OPS(BETWEEN_COST)
#undef BETWEEN_COST
    *bytes_out = bytes;
    return plan_machine_time(m, run_between, &r, seconds_out);
}

/* Measures them up to the rows that a block has in training, or up to the rows that need a
 * slice. */
static enum status measure_between(struct plan_machine *m, double *rate_out)
{
    const int64_t c = m->cluster->is_gpu ? 2048 : 512, most = m->cluster->is_gpu ? 8192 : 256;
    double bytes, seconds;
    *rate_out = m->cluster->memory_bytes_per_second;
    for (int64_t n = 16; n <= most; n *= 4) {
        TRY(time_between(m, n, c, &bytes, &seconds));
        if (bytes == 0)
            break;
        *rate_out = bytes / seconds;
        if (seconds > m->slice)
            break;
    }
    return ST_OK;
}

/* ---- products ---- */

/* Measures a product. *rate_out: FLOP/s; 0: there is not enough memory. *is_last: a larger size
 * would need too long. */
static enum status measure_product(const struct plan_machine *m, const struct measure_product *p,
                                   double *rate_out, bool *is_last)
{
    struct measure_product_run run;
    /* The planned time of a head's loss; the rest of the time is the products'. */
    const struct plan_cluster *c = m->cluster;
    const double bytes = 2.0 * (double)p->n * (double)p->out * (double)dtype_bytes(p->dtype);
    const double loss = p->kind == MEASURE_PRODUCT_HEAD
                            ? bytes / (c->memory_bytes_per_second * c->memory_share)
                            : 0;
    double seconds;
    *rate_out = 0;
    if (!measure_product_open(p, &m->memory, &run))
        return ST_OK;
    TRY(plan_machine_time(m, measure_product_work, &run, &seconds));
    *rate_out = measure_product_flops(p) / (loss < seconds / 2 ? seconds - loss : seconds / 2);
    *is_last = seconds > (p->kind == MEASURE_PRODUCT_HEAD ? BIG_HEAD : BIG_RUN) * m->slice;
    return ST_OK;
}

/* Measures n products, smallest first, each as a point at size_of. Each product is measured twice
 * and the better time counts: another process easily disturbs a whole measurement, but rarely two
 * that are apart. */
static enum status measure_products(const struct plan_machine *m, const struct measure_product *p,
                                    int n, double (*size_of)(const struct measure_product *p),
                                    struct plan_share *share)
{
    bool is_last = false;
    double rate;
    for (int i = 0; !is_last && i < n; i++) {
        TRY(measure_product(m, &p[i], &rate, &is_last));
        if (rate > 0)
            add_point(share, size_of(&p[i]), rate);
    }
    for (int i = 0; i < share->n; i++) {
        TRY(measure_product(m, &p[i], &rate, &is_last));
        share->point[i].share = rate > share->point[i].share ? rate : share->point[i].share;
    }
    return ST_OK;
}

/* Products of a GPU: rows, in, out. */
static const int64_t layer_sizes[][3] = {
    {64, 32, 128},       {128, 64, 256},      {256, 128, 512},    {256, 256, 1024},
    {256, 512, 2048},    {512, 768, 3072},    {1024, 1024, 4096}, {1024, 2048, 8192},
    {2048, 4096, 16384}, {8192, 4096, 16384}, {8192, 8192, 32768}};

static double size_of_layer(const struct measure_product *p)
{
    return 2.0 * (double)p->n * (double)p->in * (double)p->out;
}

static enum status measure_layers(struct plan_machine *m, enum dtype dtype,
                                  struct plan_share *share)
{
    struct measure_product p[SIZES(layer_sizes)];
    for (int i = 0; i < SIZES(layer_sizes); i++)
        p[i] = (struct measure_product){.kind = MEASURE_PRODUCT_LAYER,
                                        .n = layer_sizes[i][0],
                                        .in = layer_sizes[i][1],
                                        .out = layer_sizes[i][2],
                                        .dtype = dtype};
    TRY(measure_memory_fill(&m->memory, dtype));
    return measure_products(m, p, SIZES(layer_sizes), size_of_layer, share);
}

/* Products of a CPU: blocks and heads of some widths, each on some rows. */
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

static double size_of_rows(const struct measure_product *p) { return (double)p->n; }

static enum status measure_rows(struct plan_machine *m, const struct row_sizes *sizes, int n,
                                struct plan_rows *out)
{
    for (int i = 0; i < n; i++) {
        const struct row_sizes *s = &sizes[i];
        struct plan_rows_width *to = &out->width[out->n];
        struct measure_product p[ROWS_MOST];
        int rows = 0;
        for (; rows < ROWS_MOST && s->rows[rows] > 0; rows++)
            p[rows] = (struct measure_product){.kind = s->out == VOCAB ? MEASURE_PRODUCT_HEAD
                                                                       : MEASURE_PRODUCT_BLOCK,
                                               .n = s->rows[rows],
                                               .in = s->in,
                                               .out = s->out,
                                               .dtype = DTYPE_F32};
        to->width = (double)s->in;
        TRY(measure_products(m, p, rows, size_of_rows, &to->share));
        out->n += to->share.n > 0;
    }
    return ST_OK;
}

static enum status measure_all_rows(struct plan_machine *m)
{
    struct plan_cluster *c = m->cluster;
    struct plan_rows *all[] = {&c->product_rows, &c->product_wide};
    double best = 0;
    TRY(measure_memory_fill(&m->memory, DTYPE_F32));
    TRY(measure_rows(m, block_sizes, SIZES(block_sizes), &c->product_rows));
    TRY(measure_rows(m, wide_sizes, SIZES(wide_sizes), &c->product_wide));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < all[k]->n; i++)
            best = best_of(&all[k]->width[i].share, best);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < all[k]->n; i++)
            normalize_shares(&all[k]->width[i].share, best);
    c->peak[PLAN_PRECISION_F32] = best;
    return ST_OK;
}

static enum status measure_all_products(struct plan_machine *m)
{
    struct plan_cluster *c = m->cluster;
    const enum plan_precision wide = m->info.is_tf32 ? PLAN_PRECISION_TF32 : PLAN_PRECISION_F32;
    if (!c->is_gpu)
        return measure_all_rows(m);
    TRY(measure_layers(m, DTYPE_F32, &c->product[wide]));
    c->peak[wide] = divide_by_peak(m->info.peak_flops, &c->product[wide]);
    TRY(measure_layers(m, DTYPE_BF16, &c->product[PLAN_PRECISION_BF16]));
    c->peak[PLAN_PRECISION_BF16] =
        divide_by_peak(m->info.peak_flops_16, &c->product[PLAN_PRECISION_BF16]);
    return ST_OK;
}

/* ---- all ---- */

/* Allocates the memory that the workers share; on a CPU parameters and gradients lie there. */
static enum status allocate_shared(struct plan_machine *m)
{
    void *data = NULL;
    const int64_t half = m->memory.bytes / 2;
    if (m->ranks == 1)
        return ST_OK;
    m->shared_bytes = half < SHARED_MOST ? half : SHARED_MOST;
    TRY(comm_alloc(m->config->comm, m->shared_bytes, &data));
    m->shared = data;
    if (m->cluster->is_gpu)
        return ST_OK;
    m->memory.shared = m->shared;
    m->memory.shared_bytes = m->shared_bytes;
    return ST_OK;
}

static enum status measure_all(struct plan_machine *m)
{
    TRY(measure_memory_fill(&m->memory, m->dtype));
    struct plan_cluster *c = m->cluster;
    double adamw = 0, between = 0;
    TRY(measure_memory(m, &adamw));
    TRY(measure_between(m, &between));
    c->optimizer_share = clamp_share(adamw / c->memory_bytes_per_second, MEMORY_SHARE_LEAST);
    c->memory_share = clamp_share(between / c->memory_bytes_per_second, MEMORY_SHARE_LEAST);
    /* Operations on a single row. */
    double bytes, seconds;
    TRY(time_between(m, 1, 16, &bytes, &seconds));
#define BETWEEN_COUNT(op, field) +1
    if (bytes > 0)
        m->cluster->operation_us = seconds * 1e6 / (0 BETWEEN_OPS(BETWEEN_COUNT));
#undef BETWEEN_COUNT
    TRY(measure_all_products(m));
    TRY(measure_memory_fill(&m->memory, m->dtype));
    return measure_attention(m);
}

enum status plan_machine_device(struct plan_machine *m)
{
    /* The same on all ranks, whatever memory each finds free; less if the budget is small. */
    int64_t most = (m->cluster->is_gpu ? 1024 : 512) * MIB, paid = m->config->budget_ms * MIB / 8,
            share = m->info.free_bytes / 8 / (m->cluster->is_gpu ? 1 : m->cluster->locals);
    most = paid < most ? paid : most;
    most = most > MEMORY_LEAST ? most : MEMORY_LEAST;
    double less = m->info.free_bytes >= 0 && share < most ? -(double)share : -(double)most;
    TRY(measure_ranks_max(m->config->comm, &less, 1));
    const int64_t bytes = (int64_t)-less / 4096 * 4096;
    if (bytes < MIB)
        return FAIL(ST_RETRY,
                    "%lld bytes of memory are too few to measure the machine; end other programs",
                    (long long)bytes);
    TRY(measure_memory_open(&m->memory, m->config->dev, m->timer.stream, bytes));
    enum status st = allocate_shared(m);
    if (st == ST_OK)
        st = measure_all(m);
    measure_memory_close(&m->memory);
    return st;
}
