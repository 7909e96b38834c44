/* plan_machine_device — the device's operations in the shapes of a transformer, at sizes from those
 * that fit into a cache to those that take a slice each. */
#include "base/memory.h"
#include "dev/op_cost.h"
#include "plan/plan_machine_inside.h"

#define MIB ((int64_t)1 << 20)
#define MEMORY_LEAST (2 * MIB)  /* within the smallest budget */
#define SHARED_MOST (256 * MIB) /* more than caches hold */
#define ATTENTION_ELEMS 512     /* of all heads */
#define ATTENTION_WIDTH 64
#define ATTENTION_TOKENS 256
#define MEMORY_SHARE_LEAST 1e-3
#define ZEROS 16384 /* rows of targets */
#define SIZES(of) (int)(sizeof of / sizeof of[0])
#define BIG_RUN 8 /* slices: a larger size would take too long */

/* ---- memory for arguments ---- */

/* fill_all — with small numbers. */
static enum status fill_all(const struct plan_machine *m)
{
    TRY(dev_fill(m->stream, m->memory, 0x3c, (size_t)m->bytes));
    return m->shared ? dev_fill(m->stream, m->shared, 0x3c, (size_t)m->shared_bytes) : ST_OK;
}

/* ---- attention ---- */

struct attention_run {
    int64_t tokens, d;
    const struct plan_machine_turns *turns;
};

struct attention {
    struct attention_fwd fwd;
    struct attention_bwd bwd;
};

static void lay_attention(struct plan_machine_taken *t, const struct attention_run *r,
                          struct attention *out)
{
    const int64_t h = ATTENTION_ELEMS / r->d, row = 3 * h * r->d, elems = r->tokens * h * r->d;
    const enum dtype dtype = t->m->dtype;
    struct tensor qkv = plan_machine_turn_take(t, r->tokens * row, dtype),
                  dqkv = plan_machine_turn_take(t, r->tokens * row, dtype),
                  y = plan_machine_turn_take(t, elems, dtype),
                  dy = plan_machine_turn_take(t, elems, dtype),
                  lse = plan_machine_turn_take(t, r->tokens * h, DTYPE_F32);
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

static enum status run_attention(const struct plan_machine *m, const void *args)
{
    const struct attention_run *r = args;
    struct plan_machine_taken t = plan_machine_turn_next(r->turns);
    struct attention a;
    lay_attention(&t, r, &a);
    TRY(dev_op(m->config->dev)->attention_fwd(m->stream, &a.fwd));
    return dev_op(m->config->dev)->attention_bwd(m->stream, &a.bwd);
}

/* attention_rate — FLOP/s, forward and backward together; 0: there is no memory. */
static enum status attention_rate(const struct plan_machine *m, int64_t tokens, int64_t d,
                                  double *rate_out, double *flops_out, double *seconds_out)
{
    struct plan_machine_taken t = {.m = m};
    struct plan_machine_turns turns;
    struct attention_run r = {tokens, d, &turns};
    struct attention a;
    struct op_cost fwd, bwd;
    int64_t at = 0;
    *rate_out = 0;
    lay_attention(&t, &r, &a);
    if (!plan_machine_turn_open(&t, &at, &turns))
        return ST_OK;
    op_cost(OP_KIND_attention_fwd, &a.fwd, &fwd);
    op_cost(OP_KIND_attention_bwd, &a.bwd, &bwd);
    *flops_out = (double)(fwd.flops + bwd.flops);
    TRY(plan_machine_time(m, run_attention, &r, seconds_out));
    *rate_out = *flops_out / *seconds_out;
    return ST_OK;
}

/* measure_attention_width — with as many FLOPs in heads of other widths. Points are shares of the
 * fastest. */
static enum status measure_attention_width(struct plan_machine *m)
{
    static const int64_t widths[] = {32, 64, 128};
    struct plan_share *share = &m->cluster->attention_width;
    double rate, flops, seconds;
    for (int i = m->cluster->is_gpu; i < SIZES(widths); i++) { /* a GPU's begin with 64 */
        TRY(attention_rate(m, ATTENTION_TOKENS, widths[i], &rate, &flops, &seconds));
        if (rate == 0)
            break;
        plan_machine_share_add(share, (double)widths[i], rate);
    }
    (void)plan_machine_share_peak(0, share);
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
        double rate, flops, seconds;
        TRY(attention_rate(m, tokens, ATTENTION_WIDTH, &rate, &flops, &seconds));
        if (rate == 0)
            break;
        plan_machine_share_add(share, flops / 2,
                               plan_machine_share_within(rate / peak, PLAN_MACHINE_SHARE_LEAST));
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

/* make_adamw — false: there is no memory. */
static bool make_adamw(const struct plan_machine *m, int64_t elems, struct adamw *out,
                       struct optim_span *span)
{
    struct plan_machine_taken t = {.m = m};
    *span = (struct optim_span){.elems = elems};
    *out = (struct adamw){.spans = span,
                          .spans_n = 1,
                          .lr = 1e-9,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .step = 2};
    out->p = plan_machine_turn_take(&t, elems, DTYPE_F32);
    out->g = plan_machine_turn_take_shared(&t, elems, DTYPE_F32);
    out->m = plan_machine_turn_take(&t, elems, DTYPE_F32);
    out->v = plan_machine_turn_take(&t, elems, DTYPE_F32);
    out->grad_scale = plan_machine_turn_take(&t, 2, DTYPE_F64);
    return t.at <= m->bytes && t.shared_at <= m->shared_bytes;
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

/* The operations between products, on rows of one block, a chunk of the head's, and the gradients
 * of as many parameters. */
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
    const struct plan_machine_turns *turns;
};

static void lay_between(struct plan_machine_taken *t, const struct between_run *r,
                        struct between *out)
{
    const struct plan_machine *m = t->m;
    const enum dtype dtype = m->dtype;
    int64_t n = r->n, c = r->c, f = 4 * c, v = 16 * c;
    struct tensor x = plan_machine_turn_take(t, n * c, dtype),
                  y = plan_machine_turn_take(t, n * c, dtype),
                  up = plan_machine_turn_take(t, 2 * n * f, dtype),
                  act = plan_machine_turn_take(t, n * f, dtype),
                  logits = plan_machine_turn_take(t, n * v, dtype),
                  grads = plan_machine_turn_take(t, n * f, DTYPE_F32),
                  w = plan_machine_turn_take(t, c, dtype),
                  dw = plan_machine_turn_take(t, c, DTYPE_F32),
                  db = plan_machine_turn_take(t, c, DTYPE_F32),
                  mean = plan_machine_turn_take(t, n, DTYPE_F32),
                  rstd = plan_machine_turn_take(t, n, DTYPE_F32),
                  losses = plan_machine_turn_take(t, n, DTYPE_F32),
                  sum = plan_machine_turn_take(t, 1, DTYPE_F64), targets = {m->zeros, DTYPE_I32};
    *out = (struct between){
        .norm_fwd = {y, mean, rstd, x, w, w, n, c, 1e-5f, NORM_KIND_LAYER},
        .norm_bwd = {x, dw, db, y, x, mean, rstd, w, {0}, n, c, true, NORM_KIND_LAYER},
        .gelu = {.y = act, .x = up, .n = n * f},
        .swiglu_fwd = {.y = act, .gu = up, .n = n, .f = f},
        .swiglu_bwd = {.dgu = up, .dy = act, .gu = up, .n = n, .f = f},
        .xent = {logits, losses, targets, n, v, v, 1e-3f, true, 0},
        .sumsq = {.out = sum, .x = grads, .n = n * f}};
}

static enum status run_between(const struct plan_machine *m, const void *args)
{
    const struct between_run *r = args;
    struct plan_machine_taken t = plan_machine_turn_next(r->turns);
    struct between b;
    lay_between(&t, r, &b);
#define BETWEEN_RUN(op, field) TRY(dev_op(m->config->dev)->op(m->stream, &b.field));
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

/* time_between — bytes_out 0: there is no memory. */
static enum status time_between(const struct plan_machine *m, int64_t n, int64_t c,
                                double *bytes_out, double *seconds_out)
{
    struct plan_machine_taken t = {.m = m};
    struct plan_machine_turns turns;
    struct between_run r = {n, c, &turns};
    struct between b;
    int64_t at = 0;
    lay_between(&t, &r, &b);
    *bytes_out = 0;
    if (n > ZEROS || !plan_machine_turn_open(&t, &at, &turns))
        return ST_OK;
    *bytes_out = bytes_between(&b);
    return plan_machine_time(m, run_between, &r, seconds_out);
}

/* measure_between — of as many rows as a block has in training, or as take a slice. */
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

/* measure_launch — operations on a single row. */
static enum status measure_launch(struct plan_machine *m)
{
    double bytes, seconds;
    TRY(time_between(m, 1, 16, &bytes, &seconds));
#define BETWEEN_COUNT(op, field) +1
    if (bytes > 0)
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
    c->optimizer_share =
        plan_machine_share_within(adamw / c->memory_bytes_per_second, MEMORY_SHARE_LEAST);
    c->memory_share =
        plan_machine_share_within(between / c->memory_bytes_per_second, MEMORY_SHARE_LEAST);
    return measure_launch(m);
}

/* ---- all ---- */

/* memory_bytes — the same on all ranks, whatever each finds free; less of a small budget. */
static enum status memory_bytes(const struct plan_machine *m, int64_t *out)
{
    int64_t most = (m->cluster->is_gpu ? 1024 : 512) * MIB, paid = m->config->budget_ms * MIB / 8,
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

static enum status measure_all(struct plan_machine *m)
{
    TRY(dev_fill(m->stream, m->zeros, 0, ZEROS * sizeof(int32_t)));
    TRY(fill_all(m));
    TRY(measure_rates(m));
    TRY(fill_all(m));
    TRY(plan_machine_product(m));
    TRY(fill_all(m));
    return measure_attention(m);
}

enum status plan_machine_device(struct plan_machine *m)
{
    const size_t zeros = ZEROS * sizeof(int32_t);
    void *data = NULL;
    TRY(memory_bytes(m, &m->bytes));
    TRY(dev_alloc(m->config->dev, (size_t)m->bytes + zeros, &data));
    m->memory = data;
    m->zeros = m->memory + m->bytes;
    enum status st = take_all_shared(m);
    if (st == ST_OK)
        st = measure_all(m);
    dev_free(m->config->dev, data, (size_t)m->bytes + zeros);
    return st;
}
