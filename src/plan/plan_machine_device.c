/* plan_machine_device — the device's operations in the shapes of a transformer, at sizes from those
 * that fit into a cache to those that take a slice each. */
#include "base/memory.h"
#include "dev/op_cost.h"
#include "plan/plan_machine_inside.h"

#define MIB ((int64_t)1 << 20)
#define MEMORY_LEAST (2 * MIB) /* within the smallest budget */
#define SHARED_MOST (64 * MIB) /* more than caches hold */
#define ATTENTION_ELEMS 512    /* of all heads */
#define ATTENTION_WIDTH 64
#define ATTENTION_TOKENS 256
#define SHARE_LEAST 1e-6
#define MEMORY_SHARE_LEAST 1e-3
#define BIG_RUN 8 /* slices: a larger size would take too long */

/* ---- memory for arguments ---- */

struct taken {
    const struct plan_machine *m;
    int64_t at, shared_at;
};

static int64_t round_up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

static struct tensor take(struct taken *t, int64_t elems, enum dtype dtype)
{
    struct tensor out = {t->m->memory + t->at, dtype};
    t->at += round_up(elems * (int64_t)dtype_bytes(dtype));
    return out;
}

/* take_shared — of what travels between workers: parameters and gradients. On a CPU it lies in
 * memory that they share, whose pages are small. */
static struct tensor take_shared(struct taken *t, int64_t elems, enum dtype dtype)
{
    struct tensor out = {t->m->shared + t->shared_at, dtype};
    if (!t->m->shared || t->m->cluster->is_gpu)
        return take(t, elems, dtype);
    t->shared_at += round_up(elems * (int64_t)dtype_bytes(dtype));
    return out;
}

/* fits — and holds small numbers. */
static bool fits(const struct taken *t)
{
    const struct plan_machine *m = t->m;
    return t->at <= m->bytes && t->shared_at <= m->shared_bytes &&
           dev_fill(m->stream, m->memory, 0x3c, (size_t)t->at) == ST_OK &&
           dev_fill(m->stream, m->shared, 0x3c, (size_t)t->shared_at) == ST_OK;
}

/* ---- products ---- */

/* The three products of a linear layer in a step. */
struct products {
    struct matmul_fwd fwd;
    struct matmul_bwd_x bwd_x;
    struct matmul_bwd_w bwd_w;
};

static enum status run_products(const struct plan_machine *m, const void *args)
{
    const struct products *p = args;
    const struct op_table *op = dev_op(m->config->dev);
    TRY(op->matmul_fwd(m->stream, &p->fwd));
    TRY(op->matmul_bwd_x(m->stream, &p->bwd_x));
    return op->matmul_bwd_w(m->stream, &p->bwd_w);
}

/* Rows and widths, with FLOPs that grow. The largest products of a model on a CPU are those with a
 * vocabulary, which are narrow and move much memory. */
struct product_size {
    int64_t n, in, out;
};
static const struct product_size small_sizes[] = {{64, 32, 128},    {128, 64, 256},
                                                  {256, 128, 512},  {256, 256, 1024},
                                                  {256, 512, 2048}, {512, 768, 3072}},
                                 cpu_sizes[] = {{512, 128, 32768}},
                                 gpu_sizes[] = {{1024, 1024, 4096},
                                                {1024, 2048, 8192},
                                                {2048, 4096, 16384},
                                                {8192, 4096, 16384},
                                                {8192, 8192, 32768}};
#define SIZES(of) (int)(sizeof of / sizeof of[0])

/* size_at — number i of the device's sizes; NULL: there are no more. */
static const struct product_size *size_at(const struct plan_machine *m, int i)
{
    int small = SIZES(small_sizes), more = i - small;
    if (i < small)
        return &small_sizes[i];
    if (m->cluster->is_gpu)
        return more < SIZES(gpu_sizes) ? &gpu_sizes[more] : NULL;
    return more < SIZES(cpu_sizes) ? &cpu_sizes[more] : NULL;
}

/* make_products — false: there is no memory for them. */
static bool make_products(const struct plan_machine *m, const struct product_size *s,
                          enum dtype dtype, struct products *out)
{
    struct taken t = {.m = m};
    struct tensor x = take(&t, s->n * s->in, dtype), y = take(&t, s->n * s->out, dtype),
                  w = take_shared(&t, s->in * s->out, dtype),
                  dw = take_shared(&t, s->in * s->out, DTYPE_F32);
    *out = (struct products){
        {.y = y, .x = x, .w = w, .n = s->n, .in = s->in, .out = s->out},
        {.dx = x, .dy = y, .w = w, .n = s->n, .in = s->in, .out = s->out},
        {.dw = dw, .x = x, .dy = y, .n = s->n, .in = s->in, .out = s->out, .accumulate = true}};
    return fits(&t);
}

static void add_point(struct plan_share *share, double size, double rate)
{
    share->point[share->n].size = size;
    share->point[share->n++].share = rate;
}

/* within — a share that a file may hold, however disturbed its measurement was. */
static double within(double share, double least)
{
    return share < least ? least : share < 1 ? share : 1;
}

/* set_peak — the data sheet's, or the best that was measured; points become shares of it. */
static double set_peak(double sheet, struct plan_share *share)
{
    double best = sheet;
    for (int i = 0; i < share->n; i++)
        best = share->point[i].share > best ? share->point[i].share : best;
    for (int i = 0; i < share->n; i++)
        share->point[i].share = within(share->point[i].share / best, SHARE_LEAST);
    return best;
}

/* measure_product — the rate at a size; 0: no memory. is_last: a larger one would take too long. */
static enum status measure_product(const struct plan_machine *m, const struct product_size *size,
                                   enum dtype dtype, double *rate_out, bool *is_last)
{
    struct products p;
    double seconds, flops = 2.0 * (double)size->n * (double)size->in * (double)size->out;
    *rate_out = 0;
    if (!make_products(m, size, dtype, &p))
        return ST_OK;
    TRY(plan_machine_time(m, run_products, &p, &seconds));
    *rate_out = 3 * flops / seconds;
    *is_last = seconds > BIG_RUN * m->slice;
    return ST_OK;
}

/* measure_products — in two rounds, of which the better counts: another process disturbs all of a
 * measurement easily, but not two that are apart. */
static enum status measure_products(struct plan_machine *m, enum dtype dtype,
                                    struct plan_share *share)
{
    const struct product_size *size;
    bool is_last = false;
    for (int i = 0; !is_last && (size = size_at(m, i)) != NULL; i++) {
        double rate;
        TRY(measure_product(m, size, dtype, &rate, &is_last));
        if (rate > 0)
            add_point(share, 2.0 * (double)size->n * (double)size->in * (double)size->out, rate);
    }
    for (int i = 0; i < share->n; i++) {
        double rate;
        TRY(measure_product(m, size_at(m, i), dtype, &rate, &is_last));
        share->point[i].share = rate > share->point[i].share ? rate : share->point[i].share;
    }
    return ST_OK;
}

static enum status measure_all_products(struct plan_machine *m)
{
    struct plan_cluster *c = m->cluster;
    enum plan_precision wide = m->info.is_tf32 ? PLAN_PRECISION_TF32 : PLAN_PRECISION_F32;
    TRY(measure_products(m, DTYPE_F32, &c->product[wide]));
    c->peak[wide] = set_peak(m->cluster->is_gpu ? m->info.peak_flops : 0, &c->product[wide]);
    if (!m->cluster->is_gpu)
        return ST_OK;
    TRY(measure_products(m, DTYPE_BF16, &c->product[PLAN_PRECISION_BF16]));
    c->peak[PLAN_PRECISION_BF16] =
        set_peak(m->info.peak_flops_16, &c->product[PLAN_PRECISION_BF16]);
    return ST_OK;
}

/* ---- attention ---- */

struct attention {
    struct attention_fwd fwd;
    struct attention_bwd bwd;
};

static enum status run_attention(const struct plan_machine *m, const void *args)
{
    const struct attention *a = args;
    TRY(dev_op(m->config->dev)->attention_fwd(m->stream, &a->fwd));
    return dev_op(m->config->dev)->attention_bwd(m->stream, &a->bwd);
}

static bool make_attention(const struct plan_machine *m, int64_t tokens, int64_t d,
                           struct attention *out)
{
    struct taken t = {.m = m};
    const int64_t h = ATTENTION_ELEMS / d, row = 3 * h * d;
    struct tensor qkv = take(&t, tokens * row, m->dtype), dqkv = take(&t, tokens * row, m->dtype),
                  y = take(&t, tokens * h * d, m->dtype), dy = take(&t, tokens * h * d, m->dtype),
                  lse = take(&t, tokens * h, DTYPE_F32);
    *out = (struct attention){
        {.out = y, .lse = lse, .qkv = qkv, .b = 1, .t = tokens, .h = h, .hk = h, .d = d},
        {.dqkv = dqkv,
         .dout = dy,
         .out = y,
         .qkv = qkv,
         .lse = lse,
         .b = 1,
         .t = tokens,
         .h = h,
         .hk = h,
         .d = d}};
    return fits(&t);
}

/* attention_rate — FLOP/s, forward and backward together. */
static enum status attention_rate(const struct plan_machine *m, const struct attention *a,
                                  double *rate_out, double *flops_out, double *seconds_out)
{
    struct op_cost fwd, bwd;
    op_cost(OP_KIND_attention_fwd, &a->fwd, &fwd);
    op_cost(OP_KIND_attention_bwd, &a->bwd, &bwd);
    *flops_out = (double)(fwd.flops + bwd.flops);
    TRY(plan_machine_time(m, run_attention, a, seconds_out));
    *rate_out = *flops_out / *seconds_out;
    return ST_OK;
}

/* measure_attention_width — with as many FLOPs in heads of other widths. Points are shares of the
 * fastest. */
static enum status measure_attention_width(struct plan_machine *m)
{
    static const int64_t widths[] = {32, 64, 128};
    struct plan_share *share = &m->cluster->attention_width;
    struct attention a;
    double flops, seconds;
    for (int i = m->cluster->is_gpu; i < SIZES(widths); i++) { /* a GPU's begin with 64 */
        if (!make_attention(m, ATTENTION_TOKENS, widths[i], &a))
            break;
        add_point(share, (double)widths[i], 0);
        TRY(attention_rate(m, &a, &share->point[share->n - 1].share, &flops, &seconds));
    }
    (void)set_peak(0, share);
    return ST_OK;
}

/* measure_attention — a point lies between the FLOPs of forward and of backward. */
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
        struct attention a;
        double rate, flops, seconds;
        if (!make_attention(m, tokens, ATTENTION_WIDTH, &a))
            break;
        TRY(attention_rate(m, &a, &rate, &flops, &seconds));
        add_point(share, flops / 2, within(rate / peak, SHARE_LEAST));
        if (seconds > BIG_RUN * m->slice)
            break;
    }
    return ST_OK;
}

/* ---- memory ---- */

static enum status run_adamw(const struct plan_machine *m, const void *args)
{
    return dev_op(m->config->dev)->adamw(m->stream, args);
}

static enum status run_copy(const struct plan_machine *m, const void *args)
{
    const struct adamw *a = args;
    return dev_copy(m->stream, a->p.data, a->g.data, (size_t)a->spans->elems * sizeof(float));
}

static bool make_adamw(const struct plan_machine *m, int64_t elems, struct adamw *out,
                       struct optim_span *span)
{
    struct taken t = {.m = m};
    *span = (struct optim_span){.elems = elems};
    *out = (struct adamw){.spans = span,
                          .spans_n = 1,
                          .lr = 1e-9,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .step = 2};
    out->p = take(&t, elems, DTYPE_F32);
    out->g = take_shared(&t, elems, DTYPE_F32);
    out->m = take(&t, elems, DTYPE_F32);
    out->v = take(&t, elems, DTYPE_F32);
    out->grad_scale = take(&t, 2, DTYPE_F64);
    return fits(&t);
}

/* measure_memory — the optimiser, and a copy of parameters, over as much as there is, which caches
 * do not hold, or as takes a slice. */
static enum status measure_memory(struct plan_machine *m, double *adamw_out)
{
    struct optim_span span;
    struct adamw a;
    struct op_cost cost;
    double seconds = 0, copy = 0;
    for (int64_t elems = 1 << 16; make_adamw(m, elems, &a, &span); elems *= 4) {
        op_cost(OP_KIND_adamw, &a, &cost);
        TRY(plan_machine_time(m, run_adamw, &a, &seconds));
        TRY(plan_machine_time(m, run_copy, &a, &copy));
        *adamw_out = (double)(cost.bytes_read + cost.bytes_written) / seconds;
        copy = 8.0 * (double)elems / copy;
        if (seconds > m->slice)
            break;
    }
    m->cluster->memory_bytes_per_second = copy > *adamw_out ? copy : *adamw_out;
    return ST_OK;
}

/* The operations between products, on rows of one block, and a chunk of the head's. */
struct between {
    struct norm_fwd norm_fwd;
    struct norm_bwd norm_bwd;
    struct gelu_fwd gelu;
    struct swiglu_fwd swiglu_fwd;
    struct swiglu_bwd swiglu_bwd;
    struct xent xent;
};
#define BETWEEN_OPS(X)        \
    X(norm_fwd, norm_fwd)     \
    X(norm_bwd, norm_bwd)     \
    X(gelu_fwd, gelu)         \
    X(swiglu_fwd, swiglu_fwd) \
    X(swiglu_bwd, swiglu_bwd) \
    X(xent, xent)

static enum status run_between(const struct plan_machine *m, const void *args)
{
    const struct between *b = args;
#define BETWEEN_RUN(op, field) TRY(dev_op(m->config->dev)->op(m->stream, &b->field));
    BETWEEN_OPS(BETWEEN_RUN)
#undef BETWEEN_RUN
    return ST_OK;
}

static double bytes_between(const struct between *b)
{
    double bytes = 0;
    struct op_cost cost;
#define BETWEEN_COST(op, field)              \
    op_cost(OP_KIND_##op, &b->field, &cost); \
    bytes += (double)(cost.bytes_read + cost.bytes_written);
    BETWEEN_OPS(BETWEEN_COST)
#undef BETWEEN_COST
    return bytes;
}

static bool make_between(const struct plan_machine *m, int64_t n, int64_t c, struct between *out)
{
    struct taken t = {.m = m};
    int64_t f = 4 * c, v = 16 * c;
    struct tensor x = take(&t, n * c, m->dtype), y = take(&t, n * c, m->dtype),
                  up = take(&t, 2 * n * f, m->dtype), act = take(&t, n * f, m->dtype),
                  logits = take(&t, n * v, m->dtype), w = take(&t, c, m->dtype),
                  dw = take(&t, c, DTYPE_F32), db = take(&t, c, DTYPE_F32),
                  mean = take(&t, n, DTYPE_F32), rstd = take(&t, n, DTYPE_F32),
                  losses = take(&t, n, DTYPE_F32), targets = take(&t, n, DTYPE_I32);
    if (!fits(&t) || dev_fill(m->stream, targets.data, 0, (size_t)n * sizeof(int32_t)) != ST_OK)
        return false;
    *out = (struct between){
        .norm_fwd = {y, mean, rstd, x, w, w, n, c, 1e-5f, NORM_KIND_LAYER},
        .norm_bwd = {x, dw, db, y, x, mean, rstd, w, {0}, n, c, true, NORM_KIND_LAYER},
        .gelu = {.y = act, .x = up, .n = n * f},
        .swiglu_fwd = {.y = act, .gu = up, .n = n, .f = f},
        .swiglu_bwd = {.dgu = up, .dy = act, .gu = up, .n = n, .f = f},
        .xent = {logits, losses, targets, n, v, v, 1e-3f, true}};
    return true;
}

/* measure_between — of as many rows as a block has in training, or as take a slice. */
static enum status measure_between(struct plan_machine *m, double *rate_out)
{
    const int64_t c = m->cluster->is_gpu ? 2048 : 512, most = m->cluster->is_gpu ? 8192 : 256;
    struct between b;
    double seconds;
    *rate_out = m->cluster->memory_bytes_per_second;
    for (int64_t n = 16; n <= most && make_between(m, n, c, &b); n *= 4) {
        TRY(plan_machine_time(m, run_between, &b, &seconds));
        *rate_out = bytes_between(&b) / seconds;
        if (seconds > m->slice)
            break;
    }
    return ST_OK;
}

/* measure_launch — operations on a single row. */
static enum status measure_launch(struct plan_machine *m)
{
    struct between b;
    double seconds;
    if (!make_between(m, 1, 16, &b))
        return ST_OK;
    TRY(plan_machine_time(m, run_between, &b, &seconds));
#define BETWEEN_COUNT(op, field) +1
    m->cluster->operation_us = seconds * 1e6 / (0 BETWEEN_OPS(BETWEEN_COUNT));
#undef BETWEEN_COUNT
    return ST_OK;
}

static enum status measure_rates(struct plan_machine *m)
{
    struct plan_cluster *c = m->cluster;
    double adamw = 0, between = 0;
    TRY(measure_memory(m, &adamw));
    TRY(measure_between(m, &between));
    c->optimizer_share = within(adamw / c->memory_bytes_per_second, MEMORY_SHARE_LEAST);
    c->memory_share = within(between / c->memory_bytes_per_second, MEMORY_SHARE_LEAST);
    return measure_launch(m);
}

/* ---- all ---- */

/* memory_bytes — the same on all ranks, whatever each finds free; less of a small budget. */
static enum status memory_bytes(const struct plan_machine *m, int64_t *out)
{
    int64_t most = (m->cluster->is_gpu ? 1024 : 128) * MIB, paid = m->config->budget_ms * MIB / 32,
            share = m->info.free_bytes / 8 / (m->cluster->is_gpu ? 1 : m->cluster->locals);
    most = paid < most ? paid : most;
    most = most > MEMORY_LEAST ? most : MEMORY_LEAST;
    double less = m->info.free_bytes >= 0 && share < most ? -(double)share : -(double)most;
    TRY(plan_machine_time_largest(m, &less));
    *out = (int64_t)-less / 4096 * 4096;
    return *out >= MIB ? ST_OK
                       : FAIL(ST_RETRY,
                              "%lld bytes of memory are too few to measure the machine; end other "
                              "programs",
                              (long long)*out);
}

static enum status take_all_shared(struct plan_machine *m)
{
    void *data = NULL;
    int64_t bytes = m->bytes / 2 < SHARED_MOST ? m->bytes / 2 : SHARED_MOST;
    if (m->ranks == 1)
        return ST_OK;
    TRY(comm_alloc(m->config->comm, bytes, &data));
    m->shared = data;
    m->shared_bytes = bytes;
    return ST_OK;
}

enum status plan_machine_device(struct plan_machine *m)
{
    void *data = NULL;
    TRY(memory_bytes(m, &m->bytes));
    TRY(dev_alloc(m->config->dev, (size_t)m->bytes, &data));
    m->memory = data;
    enum status st = take_all_shared(m);
    if (st == ST_OK)
        st = measure_all_products(m);
    if (st == ST_OK)
        st = measure_attention(m);
    if (st == ST_OK)
        st = measure_rates(m);
    dev_free(m->config->dev, data, (size_t)m->bytes);
    return st;
}
