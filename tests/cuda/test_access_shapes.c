/* Races, unset memory and limits of launches for the shapes that take other ways through the
 * kernels: odd widths, addresses that are not aligned, masks, dropout, wide rows, each size of
 * shared memory that a chip has. A barrier that is left out is reported. */
#include "tests/cuda/access.h"

/* No mistake is allowed. A launcher may refuse where a chip has little shared memory. */
static bool clean(struct run *r, int rc)
{
    bool may_refuse = r->cuda.shared_bytes != 0;
    emu_access_end();
    if (rc != CUDA_REFUSAL_SHARED || !may_refuse)
        ct_ok(rc, r->what);
    assert_int_equal(run_free(r), 0);
    return rc == 0;
}
#define CLEAN(op, a) clean(&r, op##_cuda(&r.cuda, &(a)))

static void set_tokens(struct tensor t, int64_t n, int64_t v)
{
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)t.data)[i] = (int32_t)(i * 7 % v);
}

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};

/* Of a chip with so much shared memory for a block; 0: 227 KiB. */
static size_t chip_shared;
static struct run chip_begin(const char *what)
{
    struct run r = run_begin(what);
    emu_shared_max(chip_shared);
    r.cuda.shared_bytes = chip_shared;
    return r;
}

static void rows(enum dtype t, int64_t n, int64_t c)
{
    struct run r = chip_begin("norm_fwd");
    struct norm_fwd f = {.y = OUT("y", n * c, t),
                         .x = IN("x", n * c, t),
                         .w = IN("w", c, t),
                         .b = IN("b", c, t),
                         .n = n,
                         .c = c,
                         .eps = 1e-5f};
    CLEAN(norm_fwd, f);
    r = chip_begin("norm_bwd");
    struct norm_bwd b = {.dx = OUT("dx", n * c, t),
                         .dw = IN("dw", c, DTYPE_F32),
                         .db = IN("db", c, DTYPE_F32),
                         .dy = IN("dy", n * c, t),
                         .x = IN("x", n * c, t),
                         .mean = IN("mean", n, DTYPE_F32),
                         .rstd = IN("rstd", n, DTYPE_F32),
                         .w = IN("w", c, t),
                         .n = n,
                         .c = c,
                         .accumulate = true};
    CLEAN(norm_bwd, b);
    r = chip_begin("xent");
    struct xent x = {.logits = IN("logits", n * (c + 1), t),
                     .losses = OUT("losses", n, DTYPE_F32),
                     .targets = IN("targets", n, DTYPE_I32),
                     .n = n,
                     .v = c,
                     .stride = c + 1,
                     .scale = 1,
                     .want_grad = true};
    set_tokens(x.targets, n, c);
    ((int32_t *)x.targets.data)[n / 2] = -1;
    CLEAN(xent, x);
}

TEST(odd_rows)
{
    for (int i = 0; i < 2; i++) {
        rows(dtypes[i], 19, 65);
        rows(dtypes[i], 3, 12800); /* no copy of the sums fits */
        rows(dtypes[i], 9, 1024);
        rows(dtypes[i], 5, 3072);
    }
}

static void embedding(enum dtype type, int64_t n, int64_t t, int64_t c, float p)
{
    const int64_t v = 40;
    struct run r = chip_begin("embed_fwd");
    struct embed_fwd f = {.x = OUT("x", n * c, type),
                          .tokens = IN("tokens", n, DTYPE_I32),
                          .wte = IN("wte", v * c, type),
                          .wpe = IN("wpe", t * c, type),
                          .n = n,
                          .t = t,
                          .c = c,
                          .dropout = kt_dropout(p)};
    set_tokens(f.tokens, n, v);
    CLEAN(embed_fwd, f);
    r = chip_begin("embed_bwd");
    struct embed_bwd b = {.dwte = IN("dwte", v * c, DTYPE_F32),
                          .dwpe = IN("dwpe", 2 * t * c, DTYPE_F32),
                          .dx = IN("dx", n * c, type),
                          .tokens = IN("tokens", n, DTYPE_I32),
                          .n = n,
                          .t = t,
                          .c = c,
                          .v = v,
                          .context = 2 * t,
                          .accumulate = p > 0,
                          .dropout = kt_dropout(p)};
    set_tokens(b.tokens, n, 5); /* long lists */
    CLEAN(embed_bwd, b);
}

TEST(odd_embeddings)
{
    for (int i = 0; i < 2; i++) {
        embedding(dtypes[i], 90, 30, 33, 0.2f);
        embedding(dtypes[i], 90, 30, 36, 0);
    }
}

static void product(enum dtype t, int64_t n, int64_t in, int64_t out, enum matmul_layout layout,
                    bool is_tf32)
{
    struct run r = chip_begin("matmul_fwd");
    r.cuda.is_tf32 = is_tf32;
    struct matmul_fwd a = {.y = OUT("y", n * out, t),
                           .pre = OUT("pre", n * out, t),
                           .x = IN("x", n * in, t),
                           .w = IN("w", in * out, t),
                           .b = IN("b", out, t),
                           .n = n,
                           .in = in,
                           .out = out,
                           .layout = layout,
                           .act = MATMUL_ACT_GELU};
    CLEAN(matmul_fwd, a);
    r = chip_begin("matmul_bwd_x");
    r.cuda.is_tf32 = is_tf32;
    struct matmul_bwd_x b = {.dx = OUT("dx", n * in, t),
                             .dy = IN("dy", n * out, t),
                             .w = IN("w", in * out, t),
                             .pre = IN("pre", n * in, t),
                             .n = n,
                             .in = in,
                             .out = out,
                             .layout = layout};
    CLEAN(matmul_bwd_x, b);
    r = chip_begin("matmul_bwd_w");
    r.cuda.is_tf32 = is_tf32;
    struct matmul_bwd_w c = {.dw = IN("dw", in * out, DTYPE_F32),
                             .db = IN("db", out, DTYPE_F32),
                             .x = IN("x", n * in, t),
                             .dy = IN("dy", n * out, t),
                             .n = n,
                             .in = in,
                             .out = out,
                             .layout = layout,
                             .accumulate = true};
    CLEAN(matmul_bwd_w, c);
}

TEST(odd_products)
{
    for (int i = 0; i < 2; i++)
        for (int layout = 0; layout < 2; layout++) {
            product(dtypes[i], 33, 47, 29, (enum matmul_layout)layout, false);
            product(dtypes[i], 136, 72, 136, (enum matmul_layout)layout, i == 0);
        }
}

/* ---- attention ---- */

static void set_documents(struct tensor first_key, int64_t n, int64_t t, int length)
{
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)first_key.data)[i] = (int32_t)(i % t / length * length);
}

/* Query heads, key heads and rows. */
struct heads {
    int64_t h, hk;
    enum attention_layout layout;
};
static const struct heads one_head = {1, 1, ATTENTION_LAYOUT_QKV};

/* Returns whether both passes were launched. */
static bool attend(enum dtype dtype, int64_t d, int64_t t, float p, bool is_masked,
                   const struct heads *heads)
{
    const int64_t b = 2, h = heads->h, hk = heads->hk, n = b * t * h * d,
                  rows = b * t * (h + 2 * hk) * d;
    struct run r = chip_begin("attention_fwd");
    struct attention_fwd f = {.out = OUT("out", n, dtype),
                              .lse = OUT("lse", b * h * t, DTYPE_F32),
                              .qkv = IN("qkv", rows, dtype),
                              .b = b,
                              .t = t,
                              .h = h,
                              .hk = hk,
                              .layout = heads->layout,
                              .d = d,
                              .dropout = kt_dropout(p)};
    if (is_masked)
        f.mask = IN("mask", b * t, DTYPE_U8);
    bool is_done = CLEAN(attention_fwd, f);
    r = chip_begin("attention_bwd");
    struct attention_bwd a = {.dqkv = OUT("dqkv", rows, dtype),
                              .dout = IN("dout", n, dtype),
                              .out = IN("out", n, dtype),
                              .qkv = IN("qkv", rows, dtype),
                              .lse = IN("lse", b * h * t, DTYPE_F32),
                              .b = b,
                              .t = t,
                              .h = h,
                              .hk = hk,
                              .layout = heads->layout,
                              .d = d,
                              .dropout = kt_dropout(p)};
    if (is_masked)
        a.mask = IN("mask", b * t, DTYPE_U8);
    return CLEAN(attention_bwd, a) && is_done;
}

/* Own queries over the keys of all positions. Returns the bytes that both passes read. */
static uint64_t attend_own(enum dtype dtype, int64_t d, int64_t t, float p, bool is_masked,
                           struct attention_runs own)
{
    const int64_t b = 2, h = 2, n = b * attention_rows(&own, t), keys = b * t * 2 * d;
    struct run r = chip_begin("attention_fwd own");
    struct attention_fwd f = {.out = OUT("out", n * h * d, dtype),
                              .lse = OUT("lse", n * h, DTYPE_F32),
                              .qkv = IN("qkv", n * (h + 2) * d, dtype),
                              .kv = IN("kv", keys, dtype),
                              .b = b,
                              .t = t,
                              .h = h,
                              .hk = 1,
                              .d = d,
                              .own = own,
                              .dropout = kt_dropout(p)};
    if (is_masked)
        f.mask = IN("mask", b * t, DTYPE_U8);
    assert_true(CLEAN(attention_fwd, f));
    uint64_t read = emu_access_bytes().read;
    r = chip_begin("attention_bwd own");
    struct attention_bwd a = {.dqkv = with(&r, "dqkv", n * (h + 2) * d, dtype, 0),
                              .dout = IN("dout", n * h * d, dtype),
                              .out = IN("out", n * h * d, dtype),
                              .qkv = IN("qkv", n * (h + 2) * d, dtype),
                              .lse = IN("lse", n * h, DTYPE_F32),
                              .kv = IN("kv", keys, dtype),
                              .dkv = OUT("dkv", keys, dtype),
                              .b = b,
                              .t = t,
                              .h = h,
                              .hk = 1,
                              .d = d,
                              .own = own,
                              .dropout = kt_dropout(p)};
    if (is_masked)
        a.mask = IN("mask", b * t, DTYPE_U8);
    assert_true(CLEAN(attention_bwd, a));
    return read + emu_access_bytes().read;
}

/* Races and unset memory; and what a rank reads: of two ranks, each with an early and a late
 * quarter, both read as much, and less than two thirds of what all queries do. */
TEST(own_attention)
{
    for (int i = 0; i < 2; i++) {
        const enum dtype t = dtypes[i];
        attend_own(t, 24, 70, 0.1f, true, (struct attention_runs){{3, 50}, {21, 13}});
        const int64_t chunk = t == DTYPE_F32 ? 64 : 128, keys = 4 * chunk;
        const struct attention_runs all = {{0, 0}, {keys, 0}},
                                    first = {{0, 3 * chunk}, {chunk, chunk}},
                                    second = {{chunk, 2 * chunk}, {chunk, chunk}};
        double whole = (double)attend_own(t, 64, keys, 0, false, all),
               a = (double)attend_own(t, 64, keys, 0, false, first) / whole,
               b = (double)attend_own(t, 64, keys, 0, false, second) / whole;
        print_message("# dtype %d: two ranks read %.2f and %.2f of the whole\n", (int)t, a, b);
        assert_true(a < 0.67 && b < 0.67 && fabs(a - b) < 0.05);
    }
}

/* Documents of `length` tokens. Returns the bytes that both passes read. */
static uint64_t attend_documents(enum dtype dtype, int64_t d, int64_t t, float p, int length)
{
    const int64_t b = 2, h = 2, n = b * t * h * d, rows = b * t * (h + 2) * d;
    struct run r = chip_begin("attention_fwd documents");
    struct attention_fwd f = {.out = OUT("out", n, dtype),
                              .lse = OUT("lse", b * h * t, DTYPE_F32),
                              .qkv = IN("qkv", rows, dtype),
                              .first_key = IN("first_key", b * t, DTYPE_I32),
                              .b = b,
                              .t = t,
                              .h = h,
                              .hk = 1,
                              .d = d,
                              .dropout = kt_dropout(p)};
    set_documents(f.first_key, b * t, t, length);
    assert_true(CLEAN(attention_fwd, f));
    uint64_t read = emu_access_bytes().read;
    r = chip_begin("attention_bwd documents");
    struct attention_bwd a = {.dqkv = OUT("dqkv", rows, dtype),
                              .dout = IN("dout", n, dtype),
                              .out = IN("out", n, dtype),
                              .qkv = IN("qkv", rows, dtype),
                              .lse = IN("lse", b * h * t, DTYPE_F32),
                              .first_key = IN("first_key", b * t, DTYPE_I32),
                              .b = b,
                              .t = t,
                              .h = h,
                              .hk = 1,
                              .d = d,
                              .dropout = kt_dropout(p)};
    set_documents(a.first_key, b * t, t, length);
    assert_true(CLEAN(attention_bwd, a));
    return read + emu_access_bytes().read;
}

/* Races and unset memory; and tiles of other documents are not read. */
TEST(documents)
{
    for (int i = 0; i < 2; i++) {
        attend_documents(dtypes[i], 24, 150, 0.1f, 37);
        const int t = dtypes[i] == DTYPE_F32 ? 256 : 512;
        uint64_t one = attend_documents(dtypes[i], 64, t, 0, t),
                 many = attend_documents(dtypes[i], 64, t, 0, t / 8);
        print_message("# dtype %d: eight documents read %.2f of one\n", (int)dtypes[i],
                      (double)many / (double)one);
        assert_true(many < one);
    }
}

TEST(odd_attention)
{
    for (int i = 0; i < 2; i++) {
        attend(dtypes[i], 24, 70, 0.1f, true, &one_head);
        attend(dtypes[i], 40, 33, 0, true, &one_head);
        attend(dtypes[i], 64, 150, 0, false, &one_head);
        attend(dtypes[i], 64, 150, 0, false, &(struct heads){3, 1, ATTENTION_LAYOUT_QKV});
        attend(dtypes[i], 80, 40, 0.1f, true, &(struct heads){2, 2, ATTENTION_LAYOUT_HEADS});
    }
    struct run r = chip_begin("attention_decode");
    struct attention_decode a = {.out = OUT("out", 2 * 3 * 64, DTYPE_BF16),
                                 .qkv = IN("qkv", 2 * 50 * 3 * 3 * 64, DTYPE_BF16),
                                 .b = 2,
                                 .t = 50,
                                 .h = 3,
                                 .hk = 3,
                                 .d = 64};
    CLEAN(attention_decode, a);
    r = chip_begin("attention_decode");
    struct attention_decode grouped = {.out = OUT("out", 2 * 6 * 64, DTYPE_BF16),
                                       .qkv = IN("qkv", 2 * 270 * (6 + 4) * 64, DTYPE_BF16),
                                       .b = 2,
                                       .t = 270,
                                       .h = 6,
                                       .hk = 2,
                                       .d = 64};
    CLEAN(attention_decode, grouped);
}

/* sm_86 and sm_89, sm_80, sm_90 and sm_100. */
static void attend_on_chip(enum dtype dtype, int64_t d, size_t least)
{
    bool is_done = attend(dtype, d, 20, 0, false, &one_head);
    if (is_done != (chip_shared >= least))
        fail_msg("attention, D %d, dtype %d, %zu bytes of shared memory: launched: %d", (int)d,
                 (int)dtype, chip_shared, is_done);
}

TEST(each_size_of_shared_memory)
{
    static const size_t sizes[] = {99 << 10, 163 << 10, 227 << 10};
    for (int i = 0; i < (emu_is_hip() ? 1 : 3); i++) /* AMD: 64 KiB, less than each of these */
        for (int k = 0; k < 2; k++) {
            chip_shared = sizes[i];
            attend_on_chip(dtypes[k], 64, 0);
            attend_on_chip(dtypes[k], 128, 0);
            attend_on_chip(dtypes[k], 256, dtypes[k] == DTYPE_F32 && !emu_is_hip() ? 163 << 10 : 0);
            product(dtypes[k], 136, 72, 136, MATMUL_LAYOUT_IO, k == 0);
            rows(dtypes[k], 9, 768);
            rows(dtypes[k], 2, 50257);
        }
    chip_shared = 0;
    emu_shared_max(0);
}

/* ---- the rest ---- */

TEST(scalars)
{
    struct run r = chip_begin("grad_scale");
    struct grad_scale g = {.out = OUT("out", 2, DTYPE_F64),
                           .squares = IN("squares", 9, DTYPE_F64),
                           .loss = IN("loss", 1, DTYPE_F64),
                           .squares_n = 9,
                           .clip = 1};
    CLEAN(grad_scale, g);
    r = chip_begin("sum");
    struct sum s = {.out = OUT("out", 1, DTYPE_F64), .x = IN("x", 70001, DTYPE_BF16), .n = 70001};
    CLEAN(sum, s);
    static const struct optim_span spans[] = {{1, 30, 0.1f}, {33, 1, 0}, {35, 4000, 0}};
    r = chip_begin("adamw");
    struct adamw a = {.p = IN("p", 4040, DTYPE_F32),
                      .g = IN("g", 4040, DTYPE_F32),
                      .m = IN("m", 4040, DTYPE_F32),
                      .v = IN("v", 4040, DTYPE_F32),
                      .spans = spans,
                      .spans_n = 3,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .step = 1};
    CLEAN(adamw, a);
}

/* ---- a barrier left out ---- */

static int left_out_norm(struct run *r)
{
    enum { N = 16, C = 64 };
    struct norm_bwd b = {.dx = with(r, "dx", N * C, DTYPE_BF16, EMU_ACCESS_OUT),
                         .dw = with(r, "dw", C, DTYPE_F32, EMU_ACCESS_OUT),
                         .db = with(r, "db", C, DTYPE_F32, EMU_ACCESS_OUT),
                         .dy = with(r, "dy", N * C, DTYPE_BF16, EMU_ACCESS_IN),
                         .x = with(r, "x", N * C, DTYPE_BF16, EMU_ACCESS_IN),
                         .mean = with(r, "mean", N, DTYPE_F32, EMU_ACCESS_IN),
                         .rstd = with(r, "rstd", N, DTYPE_F32, EMU_ACCESS_IN),
                         .w = with(r, "w", C, DTYPE_BF16, EMU_ACCESS_IN),
                         .n = N,
                         .c = C};
    return norm_bwd_cuda(&r->cuda, &b);
}

static int left_out_product(struct run *r)
{
    enum { N = 128, I = 128 };
    struct matmul_fwd a = {.y = with(r, "y", N * I, DTYPE_BF16, EMU_ACCESS_OUT),
                           .x = with(r, "x", N * I, DTYPE_BF16, EMU_ACCESS_IN),
                           .w = with(r, "w", I * I, DTYPE_BF16, EMU_ACCESS_IN),
                           .n = N,
                           .in = I,
                           .out = I};
    return matmul_fwd_cuda(&r->cuda, &a);
}

static int left_out_attention_fwd(struct run *r)
{
    enum { T = 192, D = 64 };
    struct attention_fwd a = {.out = with(r, "out", T * D, DTYPE_BF16, EMU_ACCESS_OUT),
                              .lse = with(r, "lse", T, DTYPE_F32, EMU_ACCESS_OUT),
                              .qkv = with(r, "qkv", 3 * T * D, DTYPE_BF16, EMU_ACCESS_IN),
                              .b = 1,
                              .t = T,
                              .h = 1,
                              .hk = 1,
                              .d = D};
    return attention_fwd_cuda(&r->cuda, &a);
}

static int left_out_attention(struct run *r)
{
    enum { T = 192, D = 64 };
    struct attention_bwd a = {.dqkv = with(r, "dqkv", 3 * T * D, DTYPE_BF16, EMU_ACCESS_OUT),
                              .dout = with(r, "dout", T * D, DTYPE_BF16, EMU_ACCESS_IN),
                              .out = with(r, "out", T * D, DTYPE_BF16, EMU_ACCESS_IN),
                              .qkv = with(r, "qkv", 3 * T * D, DTYPE_BF16, EMU_ACCESS_IN),
                              .lse = with(r, "lse", T, DTYPE_F32, EMU_ACCESS_IN),
                              .b = 1,
                              .t = T,
                              .h = 1,
                              .hk = 1,
                              .d = D};
    return attention_bwd_cuda(&r->cuda, &a);
}

static int left_out_embedding(struct run *r)
{
    enum { N = 40, C = 32 };
    struct embed_bwd b = {.dwte = with(r, "dwte", N * C, DTYPE_F32, EMU_ACCESS_IN),
                          .dwpe = with(r, "dwpe", N * C, DTYPE_F32, EMU_ACCESS_OUT),
                          .dx = with(r, "dx", N * C, DTYPE_F32, EMU_ACCESS_IN),
                          .tokens = with(r, "tokens", N, DTYPE_I32, EMU_ACCESS_IN),
                          .n = N,
                          .t = N,
                          .c = C,
                          .v = N,
                          .context = N};
    return embed_bwd_cuda(&r->cuda, &b);
}

/* unneeded: the barrier in front of the first round of a loop, or behind the last one. */
TEST(a_barrier_left_out_is_reported)
{
    static const struct {
        const char *what;
        int (*run)(struct run *r);
        int barriers, unneeded;
    } cases[] = {{"norm_bwd", left_out_norm, 2, 0},
                 {"matmul_fwd", left_out_product, 2, 0},
                 {"attention_fwd", left_out_attention_fwd, 4, 1},
                 {"attention_bwd", left_out_attention, 7, 1},
                 {"embed_bwd", left_out_embedding, 21, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run r = run_begin(cases[i].what);
        emu_barriers();
        ct_ok(cases[i].run(&r), cases[i].what);
        emu_access_end();
        int barriers = emu_barriers(), unneeded = 0;
        assert_int_equal(run_free(&r), 0);
        for (int skip = 0; skip < barriers; skip++) {
            r = run_begin(cases[i].what);
            emu_skip_barrier(skip);
            cases[i].run(&r);
            emu_access_end();
            bool is_found = emu_access_report(0) || emu_error();
            emu_skip_barrier(-1);
            for (int k = 0; k < r.n; k++)
                free((char *)r.tensors[k].data - CT_GUARD * 8);
            ct_cuda_free(&r.cuda);
            unneeded += !is_found;
            if (!is_found)
                print_message("# %s: barrier %d of %d is not missed\n", cases[i].what, skip,
                              barriers);
        }
        print_message("# %s: %d barriers, %d not missed\n", cases[i].what, barriers, unneeded);
        assert_true(barriers >= cases[i].barriers && unneeded == cases[i].unneeded);
    }
}

HARNESS_RUN_ALL()
