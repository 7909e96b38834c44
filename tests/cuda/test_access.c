/* What the kernels do to memory, on the emulation with instrumented loads and stores: no races, no
 * reads of unset memory, no more conflicts of banks and sectors than stated, and no more bytes than
 * stated above the least that the contract allows (dev/op_cost.h). */
#include "tests/cuda/access.h"
#include "tests/cuda/access_ceilings.h"

#include "dev/op_cost.h"

static double share(uint64_t all, uint64_t least)
{
    return least ? (double)all / (double)least : 1;
}

/* Up to the second digit behind the point, as the table gives it. */
static bool within(double x, double most) { return x <= most + 0.005; }

static bool check_kernels(const struct run *r, const struct ceiling *most)
{
    struct emu_access_counts c;
    bool is_good = true;
    for (int i = 0; emu_access_kernel(i, &c); i++) {
        double transactions = share(c.transactions, c.transactions_least),
               sectors = share(c.sectors, c.sectors_least);
        print_message("# %s: %s: transactions %.2f, sectors %.2f\n", r->what, c.name, transactions,
                      sectors);
        is_good =
            is_good && within(transactions, most->transactions) && within(sectors, most->sectors);
    }
    return is_good;
}

static bool check_bytes(const struct run *r, const struct ceiling *most, enum op_kind op,
                        const void *args)
{
    struct op_cost cost;
    struct emu_access_moved moved = emu_access_bytes();
    assert_true(op_cost(op, args, &cost));
    double read = share(moved.read, (uint64_t)cost.bytes_read),
           written = share(moved.written, (uint64_t)cost.bytes_written);
    print_message("# %s: reads %.2f, writes %.2f times the least\n", r->what, read, written);
    return within(read, most->read) && within(written, most->written);
}

/* The launch is over: what was seen is compared with the ceilings. */
static void run_end(struct run *r, int rc, enum op_kind op, const void *args)
{
    struct ceiling most = ceiling_of(r->what);
    emu_access_end();
    ct_ok(rc, r->what);
    bool is_good = check_kernels(r, &most) & check_bytes(r, &most, op, args);
    if (!is_good)
        emu_access_explain();
    if (run_free(r) > 0 || !is_good)
        fail_msg("%s: a mistake, or more than transactions %.2f, sectors %.2f, reads %.2f, writes "
                 "%.2f",
                 r->what, most.transactions, most.sectors, most.read, most.written);
}
#define RUN_END(op, a) run_end(&r, op##_cuda(&r.cuda, &(a)), OP_KIND_##op, &(a))

static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F32};
#define EACH_DTYPE(t) for (const enum dtype *t = dtypes; t < dtypes + 2; t++)

/* ---- rows ---- */

TEST(norm)
{
    const int64_t n = 64, c = 768;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("norm_fwd");
        struct norm_fwd a = {.y = OUT("y", n * c, *t),
                             .mean = OUT("mean", n, DTYPE_F32),
                             .rstd = OUT("rstd", n, DTYPE_F32),
                             .x = IN("x", n * c, *t),
                             .w = CACHED("w", c, *t),
                             .b = CACHED("b", c, *t),
                             .n = n,
                             .c = c,
                             .eps = 1e-5f};
        RUN_END(norm_fwd, a);
    }
    EACH_DTYPE(t)
    {
        struct run r = run_begin("norm_bwd");
        struct norm_bwd a = {.dx = OUT("dx", n * c, *t),
                             .dw = OUT("dw", c, DTYPE_F32),
                             .db = OUT("db", c, DTYPE_F32),
                             .dy = IN("dy", n * c, *t),
                             .x = IN("x", n * c, *t),
                             .mean = IN("mean", n, DTYPE_F32),
                             .rstd = IN("rstd", n, DTYPE_F32),
                             .w = CACHED("w", c, *t),
                             .dresidual = IN("dresidual", n * c, *t),
                             .n = n,
                             .c = c};
        RUN_END(norm_bwd, a);
    }
}

TEST(rms)
{
    const int64_t n = 64, c = 768;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("norm_fwd rms");
        struct norm_fwd a = {.y = OUT("y", n * c, *t),
                             .rstd = OUT("rstd", n, DTYPE_F32),
                             .x = IN("x", n * c, *t),
                             .w = CACHED("w", c, *t),
                             .n = n,
                             .c = c,
                             .eps = 1e-5f,
                             .kind = NORM_KIND_RMS};
        RUN_END(norm_fwd, a);
    }
    EACH_DTYPE(t)
    {
        struct run r = run_begin("norm_bwd rms");
        struct norm_bwd a = {.dx = OUT("dx", n * c, *t),
                             .dw = OUT("dw", c, DTYPE_F32),
                             .dy = IN("dy", n * c, *t),
                             .x = IN("x", n * c, *t),
                             .rstd = IN("rstd", n, DTYPE_F32),
                             .w = CACHED("w", c, *t),
                             .dresidual = IN("dresidual", n * c, *t),
                             .n = n,
                             .c = c,
                             .kind = NORM_KIND_RMS};
        RUN_END(norm_bwd, a);
    }
}

/* Eight heads of queries, as Qwen3 has them: nothing between two rows. */
TEST(heads)
{
    const int64_t n = 512, h = 8, d = 128;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("head_norm_fwd");
        struct head_norm_fwd a = {.y = OUT("y", n * h * d, *t),
                                  .x = IN("x", n * h * d, *t),
                                  .w = CACHED("w", d, *t),
                                  .n = n,
                                  .heads = h,
                                  .d = d,
                                  .stride = h * d,
                                  .eps = 1e-6f};
        RUN_END(head_norm_fwd, a);
    }
    EACH_DTYPE(t)
    {
        struct run r = run_begin("head_norm_bwd");
        struct head_norm_bwd a = {.dx = OUT("dx", n * h * d, *t),
                                  .dw = OUT("dw", d, DTYPE_F32),
                                  .dy = IN("dy", n * h * d, *t),
                                  .x = IN("x", n * h * d, *t),
                                  .w = CACHED("w", d, *t),
                                  .n = n,
                                  .heads = h,
                                  .d = d,
                                  .stride = h * d,
                                  .eps = 1e-6f};
        RUN_END(head_norm_bwd, a);
    }
}

TEST(rotations)
{
    const int64_t n = 64, h = 8, hk = 2, d = 64;
    struct run r = run_begin("rope_table");
    struct rope_table a = {.table = OUT("table", n * d, DTYPE_F32), .t = n, .rot = d, .scale = 1};
    RUN_END(rope_table, a);
    EACH_DTYPE(t)
    {
        r = run_begin("rope");
        struct rope b = {.x = IN("x", n * (h + 2 * hk) * d, *t),
                         .table = IN("table", n * d, DTYPE_F32),
                         .n = n,
                         .t = n,
                         .h = h,
                         .hk = hk,
                         .d = d,
                         .rot = d};
        RUN_END(rope, b);
    }
}

TEST(gates)
{
    const int64_t n = 16, f = 2048;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("swiglu_fwd");
        struct swiglu_fwd a = {
            .y = OUT("y", n * f, *t), .gu = IN("gu", 2 * n * f, *t), .n = n, .f = f};
        RUN_END(swiglu_fwd, a);
    }
    EACH_DTYPE(t)
    {
        struct run r = run_begin("swiglu_bwd");
        struct swiglu_bwd a = {.dgu = OUT("dgu", 2 * n * f, *t),
                               .dy = IN("dy", n * f, *t),
                               .gu = IN("gu", 2 * n * f, *t),
                               .n = n,
                               .f = f};
        RUN_END(swiglu_bwd, a);
    }
}

TEST(squares_and_caps)
{
    const int64_t n = 32768, rows = 16, v = 2048;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("relu2_fwd");
        struct relu2_fwd a = {OUT("y", n, *t), IN("x", n, *t), n};
        RUN_END(relu2_fwd, a);
        r = run_begin("relu2_bwd");
        struct relu2_bwd b = {OUT("dx", n, *t), IN("dy", n, *t), IN("x", n, *t), n};
        RUN_END(relu2_bwd, b);
        r = run_begin("softcap");
        struct softcap c = {IN("x", rows * v, *t), rows, v, v, 15};
        RUN_END(softcap, c);
    }
}

static void set_tokens(struct tensor t, int64_t n, int64_t v)
{
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)t.data)[i] = (int32_t)(i * 7 % v);
}

TEST(xent)
{
    const int64_t n = 4, v = 50257, stride = 50304;
    EACH_DTYPE(t)
    {
        struct run r = run_begin(*t == DTYPE_F32 ? "xent f32" : "xent");
        struct xent a = {.logits = IN("logits", n * stride, *t),
                         .losses = OUT("losses", n, DTYPE_F32),
                         .targets = IN("targets", n, DTYPE_I32),
                         .n = n,
                         .v = v,
                         .stride = stride,
                         .scale = 1,
                         .want_grad = true};
        set_tokens(a.targets, n, v);
        RUN_END(xent, a);
    }
    struct run r = run_begin("qa_xent");
    struct qa_xent a = {.losses = OUT("losses", 2 * n, DTYPE_F32),
                        .dlogits = OUT("dlogits", 2 * n * 1024, DTYPE_F32),
                        .logits = IN("logits", 2 * n * 1024, DTYPE_F32),
                        .starts = IN("starts", n, DTYPE_I32),
                        .ends = IN("ends", n, DTYPE_I32),
                        .b = n,
                        .t = 1024,
                        .scale_start = 1,
                        .scale_end = 1};
    set_tokens(a.starts, n, 1024), set_tokens(a.ends, n, 1024);
    RUN_END(qa_xent, a);
}

TEST(xent_in_shards)
{
    const int64_t n = 4, v_n = 25128, stride = 25152;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("xent_shard");
        struct xent_shard a = {OUT("stats", 3 * n, DTYPE_F32),
                               IN("logits", n * stride, *t),
                               IN("targets", n, DTYPE_I32),
                               n,
                               v_n,
                               v_n,
                               stride};
        set_tokens(a.targets, n, 2 * v_n);
        RUN_END(xent_shard, a);
        r = run_begin("xent_join");
        struct xent_join j = {.logits = IN("logits", n * stride, *t),
                              .losses = OUT("losses", n, DTYPE_F32),
                              .stats = CACHED("stats", 6 * n, DTYPE_F32),
                              .targets = IN("targets", n, DTYPE_I32),
                              .n = n,
                              .v_first = v_n,
                              .v_n = v_n,
                              .stride = stride,
                              .shards = 2,
                              .want_grad = true};
        set_tokens(j.targets, n, 2 * v_n);
        RUN_END(xent_join, j);
    }
}

TEST(embed)
{
    const int64_t n = 128, t = 64, c = 768, v = 256;
    EACH_DTYPE(type)
    {
        struct run r = run_begin("embed_fwd");
        struct embed_fwd a = {.x = OUT("x", n * c, *type),
                              .tokens = CACHED("tokens", n, DTYPE_I32),
                              .wte = IN("wte", v * c, *type),
                              .wpe = IN("wpe", t * c, *type),
                              .n = n,
                              .t = t,
                              .c = c};
        set_tokens(a.tokens, n, v);
        RUN_END(embed_fwd, a);
    }
    EACH_DTYPE(type)
    {
        struct run r = run_begin("embed_bwd");
        struct embed_bwd a = {.dwte = IN("dwte", v * c, DTYPE_F32),
                              .dwpe = OUT("dwpe", t * c, DTYPE_F32),
                              .dx = IN("dx", n * c, *type),
                              .tokens = CACHED("tokens", n, DTYPE_I32),
                              .n = n,
                              .t = t,
                              .c = c,
                              .v = v,
                              .context = t};
        set_tokens(a.tokens, n, v);
        RUN_END(embed_bwd, a);
    }
}

/* ---- elements ---- */

TEST(elements)
{
    const int64_t n = 1 << 15;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("gelu_fwd");
        struct gelu_fwd a = {.y = OUT("y", n, *t), .x = IN("x", n, *t), .n = n};
        RUN_END(gelu_fwd, a);
    }
    EACH_DTYPE(t)
    {
        struct run r = run_begin("gelu_bwd");
        struct gelu_bwd a = {
            .dx = OUT("dx", n, *t), .dy = IN("dy", n, *t), .x = IN("x", n, *t), .n = n};
        RUN_END(gelu_bwd, a);
    }
    EACH_DTYPE(t)
    {
        struct run r = run_begin("gelu_fwd erf");
        struct gelu_fwd a = {
            .y = OUT("y", n, *t), .x = IN("x", n, *t), .n = n, .kind = GELU_KIND_ERF};
        RUN_END(gelu_fwd, a);
    }
    EACH_DTYPE(t)
    {
        struct run r = run_begin("gelu_bwd erf");
        struct gelu_bwd a = {.dx = OUT("dx", n, *t),
                             .dy = IN("dy", n, *t),
                             .x = IN("x", n, *t),
                             .n = n,
                             .kind = GELU_KIND_ERF};
        RUN_END(gelu_bwd, a);
    }
    EACH_DTYPE(t)
    {
        struct run r = run_begin("drop");
        struct drop a = {
            .y = OUT("y", n, *t), .x = IN("x", n, *t), .n = n, .dropout = kt_dropout(0.1f)};
        RUN_END(drop, a);
    }
    struct run r = run_begin("cast");
    struct cast a = {.y = OUT("y", n, DTYPE_BF16), .x = IN("x", n, DTYPE_F32), .n = n};
    RUN_END(cast, a);
    r = run_begin("combine");
    struct combine b = {.out = OUT("out", n, DTYPE_F32),
                        .in = IN("in", 4 * n, DTYPE_F32),
                        .own = IN("own", n, DTYPE_F32),
                        .elems = n,
                        .stride = n,
                        .sources_n = 4};
    RUN_END(combine, b);
}

TEST(branch)
{
    const int64_t n = 64, c = 768;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("branch_add");
        struct branch_add a = {OUT("y", n * c, *t),
                               IN("x", n * c, *t),
                               CACHED("b", c, *t),
                               IN("residual", n * c, *t),
                               n,
                               c,
                               kt_dropout(0.1f)};
        RUN_END(branch_add, a);
    }
}

/* Keys and values of rows of 1536 numbers, to rows of their own and back. */
TEST(copies)
{
    const int64_t n = 64, c = 512, wide = 1536;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("copy_2d");
        struct copy_2d a = {OUT("y", n * c, *t), CACHED("x", n * wide, *t), n, c, c, wide, 0};
        RUN_END(copy_2d, a);
        r = run_begin("copy_2d");
        struct copy_2d b = {CACHED("y", n * wide, *t), IN("x", n * c, *t), n, c, wide, c, 0};
        RUN_END(copy_2d, b);
    }
}

TEST(reductions)
{
    const int64_t n = 1 << 15;
    struct run r = run_begin("sum");
    struct sum a = {.out = OUT("out", 1, DTYPE_F64), .x = IN("x", n, DTYPE_F32), .n = n};
    RUN_END(sum, a);
    r = run_begin("sumsq");
    struct sumsq b = {
        .out = IN("out", 1, DTYPE_F64), .x = IN("x", n, DTYPE_F32), .n = n, .accumulate = true};
    RUN_END(sumsq, b);
    r = run_begin("checksum");
    struct checksum c = {
        .out = CACHED("out", CHECKSUM_N, DTYPE_F64).data, .x = IN("x", n, DTYPE_F32), .n = n};
    RUN_END(checksum, c);
}

TEST(compressed)
{
    const int64_t n = 1 << 14;
    const int64_t bytes = compress_bytes(n);
    struct run r = run_begin("compress");
    struct compress a = {.packed = OUT("packed", bytes, DTYPE_U8),
                         .residual = IN("residual", n, DTYPE_F32),
                         .x = IN("x", n, DTYPE_F32),
                         .n = n};
    RUN_END(compress, a);
    r = run_begin("expand");
    struct expand b = {
        .y = OUT("y", n, DTYPE_F32), .packed = IN("packed", bytes, DTYPE_U8), .n = n};
    RUN_END(expand, b);
}

TEST(optimisers)
{
    const int64_t n = 1 << 14;
    static const struct optim_span spans[] = {{0, 1 << 13, 0.1f}, {1 << 13, 1 << 13, 0}};
    struct run r = run_begin("adamw");
    struct adamw a = {.p = IN("p", n, DTYPE_F32),
                      .g = IN("g", n, DTYPE_F32),
                      .m = IN("m", n, DTYPE_F32),
                      .v = IN("v", n, DTYPE_F32),
                      .spans = spans,
                      .spans_n = 2,
                      .grad_scale = CACHED("grad_scale", 1, DTYPE_F64),
                      .lr = 1e-3,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .step = 3};
    RUN_END(adamw, a);
    r = run_begin("adamw with sums");
    a.p = IN("p", n, DTYPE_F32), a.g = IN("g", n, DTYPE_F32), a.m = IN("m", n, DTYPE_F32);
    a.v = IN("v", n, DTYPE_F32), a.grad_scale = CACHED("grad_scale", 1, DTYPE_F64);
    a.sums = CACHED("sums", sizeof *a.sums, DTYPE_U8).data;
    RUN_END(adamw, a);
    r = run_begin("sgd");
    struct sgd b = {.spans = spans, .spans_n = 2, .lr = 1e-3, .momentum = 0.9, .step = 3};
    b.p = IN("p", n, DTYPE_F32), b.g = IN("g", n, DTYPE_F32), b.m = IN("m", n, DTYPE_F32);
    RUN_END(sgd, b);
}

/* ---- products ---- */

TEST(products)
{
    const int64_t n = 256, in = 128, out = 256;
    EACH_DTYPE(t)
    {
        struct run r = run_begin("matmul_fwd");
        struct matmul_fwd a = {.y = OUT("y", n * out, *t),
                               .x = IN("x", n * in, *t),
                               .w = IN("w", in * out, *t),
                               .b = IN("b", out, *t),
                               .n = n,
                               .in = in,
                               .out = out};
        RUN_END(matmul_fwd, a);
        r = run_begin("matmul_bwd_x");
        struct matmul_bwd_x b = {.dx = OUT("dx", n * in, *t),
                                 .dy = IN("dy", n * out, *t),
                                 .w = IN("w", in * out, *t),
                                 .n = n,
                                 .in = in,
                                 .out = out};
        RUN_END(matmul_bwd_x, b);
        r = run_begin("matmul_bwd_w");
        struct matmul_bwd_w c = {.dw = OUT("dw", in * out, DTYPE_F32),
                                 .db = OUT("db", out, DTYPE_F32),
                                 .x = IN("x", n * in, *t),
                                 .dy = IN("dy", n * out, *t),
                                 .n = n,
                                 .in = in,
                                 .out = out};
        RUN_END(matmul_bwd_w, c);
    }
}

/* ---- attention ---- */

static void attend(enum dtype dtype, int64_t d, int64_t t)
{
    const int64_t b = 1, h = 2, n = b * t * h * d;
    struct run r = run_begin("attention_fwd");
    struct attention_fwd f = {.out = OUT("out", n, dtype),
                              .lse = OUT("lse", b * h * t, DTYPE_F32),
                              .qkv = IN("qkv", 3 * n, dtype),
                              .b = b,
                              .t = t,
                              .h = h,
                              .hk = h,
                              .d = d};
    RUN_END(attention_fwd, f);
    r = run_begin("attention_bwd");
    struct attention_bwd a = {.dqkv = OUT("dqkv", 3 * n, dtype),
                              .dout = IN("dout", n, dtype),
                              .out = IN("out", n, dtype),
                              .qkv = IN("qkv", 3 * n, dtype),
                              .lse = IN("lse", b * h * t, DTYPE_F32),
                              .b = b,
                              .t = t,
                              .h = h,
                              .hk = h,
                              .d = d};
    RUN_END(attention_bwd, a);
}

TEST(attention)
{
    attend(DTYPE_BF16, 64, 256);
    attend(DTYPE_F32, 64, 128);
    attend(DTYPE_BF16, 128, 128);
}

HARNESS_RUN_ALL()
