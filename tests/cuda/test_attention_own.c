/* Attention of own queries over the keys of all positions, for CUDA, on the emulation, against the
 * CPU truth: each dtype, both layouts, runs that no tile divides, masks, dropout, orders of
 * threads. What lies behind the last query's tile is not touched. */
#include "cuda_test.h"
#include "tests/kernels/documents.h"

struct shape {
    int64_t b, t, h, hk, d;
    struct attention_runs own;
    float p;
    int hidden; /* 0: none; 1: some keys; 2: other documents; 3: both */
    enum attention_layout layout;
    enum dtype dtype;
    size_t shared_bytes, scratch_bytes; /* 0: enough */
};

#define SCRATCH ((size_t)8 << 20)
#define TILE_MOST 128 /* keys of the largest tile */

struct run {
    struct shape x;
    int64_t rows, out_n, lse_n, qkv_n, kv_n; /* rows: own queries of a sample; elements */
    struct tensor qkv, out, lse, dout, dqkv, kv, dkv, mask, first_key;
    struct cuda cuda;
};

static struct attention_row row_of(const struct run *r)
{
    return attention_row_of(r->x.layout, r->x.h, r->x.hk, r->x.d);
}

/* Whether an element of a row of qkv is of a query. */
static bool is_query(const struct run *r, int64_t e)
{
    struct attention_row row = row_of(r);
    return e / row.head < r->x.h && e % row.head < r->x.d;
}

/* The first key that no tile with an own query has. */
static int64_t untouched_from(const struct run *r)
{
    int64_t last = attention_position(&r->x.own, r->rows - 1);
    return (last / TILE_MOST + 1) * TILE_MOST;
}

/* Keys and values from key `from` on become NaN. */
static void spoil_keys(struct run *r, int64_t from)
{
    int64_t row = r->kv_n / r->x.b / r->x.t;
    size_t bytes = dtype_bytes(r->x.dtype);
    for (int64_t b = 0; b < r->x.b && from < r->x.t; b++)
        memset((char *)r->kv.data + (size_t)((b * r->x.t + from) * row) * bytes, 0xff,
               (size_t)((r->x.t - from) * row) * bytes);
}

static struct tensor mask_new(const struct shape *x)
{
    struct tensor mask = {0};
    if (x->hidden & 1) {
        mask = ct_tensor(x->b * x->t, DTYPE_U8, NULL);
        for (int64_t i = 0; i < x->b * x->t; i++)
            ((uint8_t *)mask.data)[i] = rand_u32(3, 1, (uint64_t)i) % 3 != 0;
    }
    return mask;
}

static struct run run_new(const struct shape *x)
{
    struct run r = {.x = *x, .rows = attention_rows(&x->own, x->t)};
    int64_t row = row_of(&r).row, n = x->b * r.rows;
    r.qkv_n = n * row, r.out_n = n * x->h * x->d, r.lse_n = n * x->h;
    r.kv_n = x->b * x->t * 2 * x->hk * x->d;
    float *qkv = ct_random(r.qkv_n, 1, 1), *dout = ct_random(r.out_n, 2, 1),
          *kv = ct_random(r.kv_n, 3, 1);
    for (int64_t i = 0; i < r.qkv_n; i++) /* keys and values of own rows are not read */
        qkv[i] = is_query(&r, i % row) ? qkv[i] : NAN;
    r.qkv = ct_tensor(r.qkv_n, x->dtype, qkv), r.dout = ct_tensor(r.out_n, x->dtype, dout);
    r.kv = ct_tensor(r.kv_n, x->dtype, kv), r.dkv = ct_tensor(r.kv_n, x->dtype, NULL);
    r.out = ct_tensor(r.out_n, x->dtype, NULL), r.dqkv = ct_tensor(r.qkv_n, x->dtype, NULL);
    r.lse = ct_tensor(r.lse_n, DTYPE_F32, NULL), r.mask = mask_new(x);
    if (x->hidden & 2) {
        r.first_key = ct_tensor(x->b * x->t, DTYPE_I32, NULL);
        documents_fill(r.first_key.data, x->b, x->t, 50);
    }
    r.cuda = ct_cuda(x->scratch_bytes ? x->scratch_bytes : SCRATCH);
    r.cuda.shared_bytes = x->shared_bytes;
    free(qkv);
    free(dout);
    free(kv);
    return r;
}

static void run_free(struct run *r)
{
    ct_free(r->qkv, r->qkv_n);
    ct_free(r->out, r->out_n);
    ct_free(r->lse, r->lse_n);
    ct_free(r->dout, r->out_n);
    ct_free(r->dqkv, r->qkv_n);
    ct_free(r->kv, r->kv_n);
    ct_free(r->dkv, r->kv_n);
    ct_free(r->mask, r->x.b * r->x.t);
    ct_free(r->first_key, r->x.b * r->x.t);
    ct_cuda_free(&r->cuda);
}

static struct attention_fwd fwd_of(const struct run *r)
{
    return (struct attention_fwd){.out = r->out,
                                  .lse = r->lse,
                                  .qkv = r->qkv,
                                  .mask = r->mask,
                                  .first_key = r->first_key,
                                  .b = r->x.b,
                                  .t = r->x.t,
                                  .h = r->x.h,
                                  .hk = r->x.hk,
                                  .d = r->x.d,
                                  .layout = r->x.layout,
                                  .dropout = kt_dropout(r->x.p),
                                  .kv = r->kv,
                                  .own = r->x.own};
}

static struct attention_bwd bwd_of(const struct run *r)
{
    return (struct attention_bwd){.dqkv = r->dqkv,
                                  .dout = r->dout,
                                  .out = r->out,
                                  .qkv = r->qkv,
                                  .lse = r->lse,
                                  .mask = r->mask,
                                  .first_key = r->first_key,
                                  .b = r->x.b,
                                  .t = r->x.t,
                                  .h = r->x.h,
                                  .hk = r->x.hk,
                                  .d = r->x.d,
                                  .layout = r->x.layout,
                                  .dropout = kt_dropout(r->x.p),
                                  .kv = r->kv,
                                  .dkv = r->dkv,
                                  .own = r->x.own};
}

static int forward(void *arg)
{
    struct run *r = arg;
    struct attention_fwd a = fwd_of(r);
    return attention_fwd_cuda(&r->cuda, &a);
}

static int backward(void *arg)
{
    struct run *r = arg;
    struct attention_bwd a = bwd_of(r);
    return attention_bwd_cuda(&r->cuda, &a);
}

/* The truth, in float, which the caller frees. */
struct truth {
    float *qkv, *kv, *dout, *kept_out, *kept_lse, *out, *lse, *dqkv, *dkv;
};

/* Backward gets the kernel's own out and lse. */
static struct truth truth_new(struct run *r)
{
    struct truth w = {
        ct_floats(r->qkv, r->qkv_n), ct_floats(r->kv, r->kv_n),   ct_floats(r->dout, r->out_n),
        ct_floats(r->out, r->out_n), ct_floats(r->lse, r->lse_n), ct_random(r->out_n, 0, 1),
        ct_random(r->lse_n, 0, 1),   ct_random(r->qkv_n, 0, 1),   ct_random(r->kv_n, 0, 1)};
    struct attention_fwd f = fwd_of(r);
    struct attention_bwd b = bwd_of(r);
    f.qkv = b.qkv = kt_f32(w.qkv), f.kv = b.kv = kt_f32(w.kv);
    f.out = kt_f32(w.out), f.lse = kt_f32(w.lse);
    b.dout = kt_f32(w.dout), b.out = kt_f32(w.kept_out), b.lse = kt_f32(w.kept_lse);
    b.dqkv = kt_f32(w.dqkv), b.dkv = kt_f32(w.dkv);
    kt_ok(dev_op(kt_plain()->dev)->attention_fwd(kt_plain()->stream, &f));
    kt_ok(dev_op(kt_plain()->dev)->attention_bwd(kt_plain()->stream, &b));
    return w;
}

static void truth_free(struct truth *w)
{
    float *list[] = {w->qkv, w->kv,  w->dout, w->kept_out, w->kept_lse,
                     w->out, w->lse, w->dqkv, w->dkv};
    for (int i = 0; i < 9; i++)
        free(list[i]);
}

/* What rounding leaves, as in test_attention.c. */
static double limit(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 1e-11 : dtype == DTYPE_F16 ? 1e-6 : 4e-5;
}

/* dq; what lies beside it in dqkv was not written. */
static void check_dq(const struct run *r, float *want)
{
    float *got = ct_floats(r->dqkv, r->qkv_n);
    int64_t row = row_of(r).row, n = 0;
    for (int64_t i = 0; i < r->qkv_n; i++) {
        if (!is_query(r, i % row)) {
            assert_true(isnan(got[i]));
            continue;
        }
        got[n] = got[i], want[n++] = want[i];
    }
    assert_int_equal(n, r->out_n);
    double nmse = kt_nmse(got, want, n);
    KT_SEEN("dq", nmse, limit(r->x.dtype));
    if (!(nmse <= limit(r->x.dtype)))
        fail_msg("dq, dtype %d: nmse %g", (int)r->x.dtype, nmse);
    free(got);
}

static void check(const struct shape *x, uint64_t seed)
{
    struct run r = run_new(x);
    emu_seed(seed);
    spoil_keys(&r, untouched_from(&r));
    ct_ok(forward(&r), "attention_fwd");
    ct_ok(backward(&r), "attention_bwd");
    struct truth w = truth_new(&r);
    ct_near("lse", r.lse, w.lse, r.lse_n, 1e-10);
    ct_near("out", r.out, w.out, r.out_n, limit(x->dtype));
    ct_near("dkv", r.dkv, w.dkv, r.kv_n, limit(x->dtype));
    check_dq(&r, w.dqkv);
    truth_free(&w);
    run_free(&r);
}

TEST(every_dtype_width_and_layout)
{
    static const struct shape shapes[] = {
        {2, 150, 2, 2, 64, {{13, 90}, {41, 33}}, 0, 0, ATTENTION_LAYOUT_QKV, 0, 0, 0},
        {1, 67, 4, 1, 16, {{5, 40}, {7, 20}}, 0.2f, 1, ATTENTION_LAYOUT_QKV, 0, 0, 0},
        {2, 70, 2, 2, 40, {{0, 52}, {18, 18}}, 0.3f, 0, ATTENTION_LAYOUT_HEADS, 0, 0, 0},
        {1, 140, 2, 1, 128, {{32, 96}, {32, 32}}, 0, 1, ATTENTION_LAYOUT_QKV, 0, 0, 0},
        {1, 45, 3, 3, 96, {{1, 44}, {1, 1}}, 0, 0, ATTENTION_LAYOUT_HEADS, 0, 0, 0},
        {1, 70, 2, 1, 136, {{11, 50}, {13, 17}}, 0, 0, ATTENTION_LAYOUT_QKV, 0, 0, 0},
        {1, 40, 1, 1, 256, {{3, 21}, {15, 12}}, 0.1f, 1, ATTENTION_LAYOUT_QKV, 0, 0, 0},
        {1, 9, 1, 1, 8, {{8, 0}, {1, 0}}, 0, 0, ATTENTION_LAYOUT_QKV, 0, 0, 0},
        {2, 180, 2, 2, 64, {{13, 120}, {41, 33}}, 0, 2, ATTENTION_LAYOUT_QKV, 0, 0, 0},
        {1, 190, 4, 2, 40, {{0, 100}, {70, 90}}, 0.2f, 3, ATTENTION_LAYOUT_QKV, 0, 0, 0},
        {1, 140, 2, 2, 128, {{32, 96}, {32, 32}}, 0, 2, ATTENTION_LAYOUT_HEADS, 0, 0, 0},
        {1, 150, 1, 1, 256, {{3, 100}, {70, 50}}, 0, 2, ATTENTION_LAYOUT_QKV, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            struct shape x = shapes[i];
            x.dtype = (enum dtype)dtype;
            check(&x, i);
        }
}

/* Keys behind the tile of the last query are NaN: no kernel reads them, and their gradients are
 * zeros. Few heads and many keys are several splits, some without a query. */
TEST(keys_behind_the_queries_are_left_out)
{
    static const struct attention_runs runs[] = {
        {{0, 0}, {70, 0}}, {{20, 90}, {31, 33}}, {{130, 0}, {5, 0}}, {{300, 390}, {50, 9}}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
            struct shape x = {1, 399, 2, 1, 64, runs[i], 0, (int)i, 0, (enum dtype)dtype, 0, 0};
            check(&x, i);
            x.dtype = (enum dtype)dtype, x.d = 80, x.scratch_bytes = (size_t)700 << 10;
            check(&x, i);
        }
}

TEST(little_shared_memory)
{
    const size_t most = 99 << 10;
    emu_shared_max(most);
    for (int64_t d = 128; d <= 256; d += 128) {
        struct shape x = {1, 131, 1, 1, d, {{9, 100}, {40, 31}}, 0.2f, 3, 0, DTYPE_BF16, most, 0};
        check(&x, 3);
    }
    emu_shared_max(0);
}

/* Both results of backward as one tensor. */
struct both {
    struct run r;
    struct tensor all;
};

static int backward_both(void *arg)
{
    struct both *x = arg;
    size_t bytes = dtype_bytes(x->all.dtype), dqkv = (size_t)x->r.qkv_n * bytes;
    int rc = backward(&x->r);
    memcpy(x->all.data, x->r.dqkv.data, dqkv);
    memcpy((char *)x->all.data + dqkv, x->r.dkv.data, (size_t)x->r.kv_n * bytes);
    return rc;
}

/* As in test_attention.c: the same barriers can be left out as in whole calls. On AMD GPUs the
 * fence before the results is a barrier, too. It orders nothing here: only heads over 128 read the
 * queries' tile to the end. */
TEST(barriers_are_needed)
{
    struct shape x = {1,    150, 1, 1,          64, {{10, 100}, {50, 50}},
                      0.1f, 1,   0, DTYPE_BF16, 0,  192 * 64 * 4 + 768 + 256}; /* one split */
    struct both both = {.r = run_new(&x)};
    struct run *r = &both.r;
    both.all = ct_tensor(r->qkv_n + r->kv_n, x.dtype, NULL);
    assert_int_equal(ct_barriers_unneeded(forward, r, r->out, r->out_n, 1), emu_is_hip() ? 2 : 1);
    assert_int_equal(ct_barriers_unneeded(backward_both, &both, both.all, r->qkv_n + r->kv_n, 1),
                     1);
    ct_free(both.all, r->qkv_n + r->kv_n);
    run_free(r);
}

TEST(needs_are_checked)
{
    struct shape x = {1, 8, 1, 1, 16, {{2, 0}, {4, 0}}, 0, 0, 0, DTYPE_BF16, 0, 0};
    struct run r = run_new(&x);
    r.kv.dtype = DTYPE_F16;
    assert_int_equal(forward(&r), CUDA_REFUSAL_DTYPE);
    assert_int_equal(backward(&r), CUDA_REFUSAL_DTYPE);
    r.kv.dtype = DTYPE_BF16, r.dkv.dtype = DTYPE_F16;
    assert_int_equal(backward(&r), CUDA_REFUSAL_DTYPE);
    r.dkv.dtype = DTYPE_BF16, r.kv.data = (char *)r.kv.data + 2;
    assert_int_equal(forward(&r), CUDA_REFUSAL_SHAPE);
    assert_int_equal(backward(&r), CUDA_REFUSAL_SHAPE);
    r.kv.data = (char *)r.kv.data - 2;
    run_free(&r);
}

HARNESS_RUN_ALL()
