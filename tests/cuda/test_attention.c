/* Attention for CUDA, on the emulation, against the CPU truth: each dtype, odd sizes, masks,
 * dropout, orders of threads. */
#include "cuda_test.h"
#include "tests/kernels/documents.h"

#define DOCUMENTS 4
#define DOCUMENT_TOKENS 50 /* on average */

struct shape {
    int64_t b, t, h, d;
    float p;
    int mask; /* 0 none; 1 some keys hidden; 2 the first half; 3 all; and DOCUMENTS */
    enum dtype dtype;
    float gain;
    size_t scratch_bytes, shared_bytes;
    int64_t hk; /* key heads; 0: as many as h */
    enum attention_layout layout;
};

#define SCRATCH ((size_t)8 << 20)

struct run {
    struct shape x;
    int64_t n, rows, qkv_n; /* elements of out; of lse; of qkv and dqkv */
    int64_t hk;
    struct tensor qkv, out, lse, dout, dqkv, mask, first_key;
    struct cuda cuda;
};

static struct run run_new(const struct shape *x)
{
    struct run r = {.x = *x, .n = x->b * x->t * x->h * x->d, .rows = x->b * x->h * x->t};
    r.hk = x->hk ? x->hk : x->h, r.qkv_n = x->b * x->t * (x->h + 2 * r.hk) * x->d;
    float *qkv = ct_random(r.qkv_n, 1, x->gain), *dout = ct_random(r.n, 2, 1);
    r.qkv = ct_tensor(r.qkv_n, x->dtype, qkv), r.dout = ct_tensor(r.n, x->dtype, dout);
    r.out = ct_tensor(r.n, x->dtype, NULL), r.dqkv = ct_tensor(r.qkv_n, x->dtype, NULL);
    r.lse = ct_tensor(r.rows, DTYPE_F32, NULL);
    if (x->mask & DOCUMENTS) {
        r.first_key = ct_tensor(x->b * x->t, DTYPE_I32, NULL);
        documents_fill(r.first_key.data, x->b, x->t, DOCUMENT_TOKENS);
    }
    if (x->mask % DOCUMENTS) {
        r.mask = ct_tensor(x->b * x->t, DTYPE_U8, NULL);
        for (int64_t i = 0; i < x->b * x->t; i++)
            ((uint8_t *)r.mask.data)[i] = x->mask % DOCUMENTS == 3 ? 0
                                          : x->mask % DOCUMENTS == 2
                                              ? i % x->t >= x->t / 2
                                              : rand_u32(3, 1, (uint64_t)i) % 3 != 0;
    }
    r.cuda = ct_cuda(x->scratch_bytes ? x->scratch_bytes : SCRATCH);
    r.cuda.shared_bytes = x->shared_bytes;
    free(qkv);
    free(dout);
    return r;
}

static void run_free(struct run *r)
{
    ct_free(r->qkv, r->qkv_n);
    ct_free(r->out, r->n);
    ct_free(r->lse, r->rows);
    ct_free(r->dout, r->n);
    ct_free(r->dqkv, r->qkv_n);
    ct_free(r->mask, r->x.b * r->x.t);
    ct_free(r->first_key, r->x.b * r->x.t);
    ct_cuda_free(&r->cuda);
}

static int forward(struct run *r)
{
    struct attention_fwd a = {.out = r->out,
                              .lse = r->lse,
                              .qkv = r->qkv,
                              .mask = r->mask,
                              .first_key = r->first_key,
                              .b = r->x.b,
                              .t = r->x.t,
                              .h = r->x.h,
                              .hk = r->hk,
                              .layout = r->x.layout,
                              .d = r->x.d,
                              .dropout = kt_dropout(r->x.p)};
    return attention_fwd_cuda(&r->cuda, &a);
}

static int backward(struct run *r)
{
    struct attention_bwd a = {.dqkv = r->dqkv,
                              .dout = r->dout,
                              .out = r->out,
                              .qkv = r->qkv,
                              .lse = r->lse,
                              .mask = r->mask,
                              .first_key = r->first_key,
                              .b = r->x.b,
                              .t = r->x.t,
                              .h = r->x.h,
                              .hk = r->hk,
                              .layout = r->x.layout,
                              .d = r->x.d,
                              .dropout = kt_dropout(r->x.p)};
    return attention_bwd_cuda(&r->cuda, &a);
}

/* The truth, in float: out, lse and dqkv, which the caller frees. Backward gets the kernel's own
 * out and lse. */
static void truth(struct run *r, float **out, float **lse, float **dqkv)
{
    const struct shape *x = &r->x;
    float *qkv = ct_floats(r->qkv, r->qkv_n), *dout = ct_floats(r->dout, r->n);
    float *rounded = ct_floats(r->out, r->n), *kept = ct_floats(r->lse, r->rows);
    *out = ct_random(r->n, 0, 1), *lse = ct_random(r->rows, 0, 1),
    *dqkv = ct_random(r->qkv_n, 0, 1);
    struct attention_fwd f = {.out = kt_f32(*out),
                              .lse = kt_f32(*lse),
                              .qkv = kt_f32(qkv),
                              .mask = r->mask,
                              .first_key = r->first_key,
                              .b = x->b,
                              .t = x->t,
                              .h = x->h,
                              .hk = r->hk,
                              .layout = x->layout,
                              .d = x->d,
                              .dropout = kt_dropout(x->p)};
    struct attention_bwd b = {.dqkv = kt_f32(*dqkv),
                              .dout = kt_f32(dout),
                              .out = kt_f32(rounded),
                              .qkv = kt_f32(qkv),
                              .lse = kt_f32(kept),
                              .mask = r->mask,
                              .first_key = r->first_key,
                              .b = x->b,
                              .t = x->t,
                              .h = x->h,
                              .hk = r->hk,
                              .layout = x->layout,
                              .d = x->d,
                              .dropout = kt_dropout(x->p)};
    kt_ok(dev_op(kt_plain()->dev)->attention_fwd(kt_plain()->stream, &f));
    kt_ok(dev_op(kt_plain()->dev)->attention_bwd(kt_plain()->stream, &b));
    free(qkv);
    free(dout);
    free(rounded);
    free(kept);
}

/* What rounding leaves: of the outputs (eps²/12 or so), and of probabilities and ds before their
 * products. */
static double limit(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 1e-11 : dtype == DTYPE_F16 ? 1e-6 : 4e-5;
}

static void check(const struct shape *x)
{
    struct run r = run_new(x);
    float *out, *lse, *dqkv;
    emu_seed(7);
    ct_ok(forward(&r), "attention_fwd");
    ct_ok(backward(&r), "attention_bwd");
    truth(&r, &out, &lse, &dqkv);
    for (int64_t i = 0; i < r.rows; i++)
        if (isinf(lse[i]) != isinf(((float *)r.lse.data)[i]))
            fail_msg("lse %lld is %g, should be %g", (long long)i, (double)((float *)r.lse.data)[i],
                     (double)lse[i]);
    ct_near("lse", r.lse, lse, r.rows, 1e-10);
    ct_near("out", r.out, out, r.n, limit(x->dtype));
    ct_near("dqkv", r.dqkv, dqkv, r.qkv_n, limit(x->dtype));
    free(out);
    free(lse);
    free(dqkv);
    run_free(&r);
}

TEST(every_dtype_and_width)
{
    static const struct shape shapes[] = {
        {.b = 1, .t = 1, .h = 1, .d = 8},    {.b = 2, .t = 37, .h = 2, .d = 64},
        {.b = 1, .t = 130, .h = 1, .d = 64}, {.b = 1, .t = 67, .h = 2, .d = 128},
        {.b = 1, .t = 70, .h = 1, .d = 256}, {.b = 1, .t = 33, .h = 3, .d = 40},
        {.b = 1, .t = 65, .h = 1, .d = 136}, {.b = 1, .t = 129, .h = 1, .d = 96},
    };
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int n = 0; n < 3; n++) {
            struct shape x = shapes[i];
            x.dtype = dtypes[n], x.gain = 1;
            check(&x);
        }
}

TEST(masks_and_dropout)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    for (int n = 0; n < 2; n++)
        for (int mask = 0; mask < 4; mask++) {
            struct shape x = {2, 70, 1, 64, mask == 3 ? 0 : 0.3f, mask, dtypes[n], 1, 0, 0, 0, 0};
            check(&x);
            x.d = 16, x.t = 45;
            check(&x);
        }
}

/* Several query heads for a key head, and rows of [q k v] for each head, in every dtype. */
TEST(groups_and_layouts)
{
    static const struct shape shapes[] = {
        {.b = 2, .t = 37, .h = 4, .d = 64, .hk = 1},
        {.b = 1, .t = 130, .h = 4, .d = 16, .hk = 2, .p = 0.2f},
        {.b = 1, .t = 67, .h = 6, .d = 80, .hk = 2, .mask = 1},
        {.b = 1, .t = 1, .h = 2, .d = 96, .hk = 1},
        {.b = 1, .t = 45, .h = 3, .d = 128, .hk = 1, .p = 0.3f, .mask = 2},
        {.b = 1, .t = 40, .h = 2, .d = 256, .hk = 1},
        {.b = 2, .t = 70, .h = 2, .d = 64, .layout = ATTENTION_LAYOUT_HEADS, .mask = 1},
        {.b = 1, .t = 67, .h = 3, .d = 96, .layout = ATTENTION_LAYOUT_HEADS, .p = 0.1f},
        {.b = 2, .t = 330, .h = 2, .d = 64, .mask = DOCUMENTS},
        {.b = 1, .t = 270, .h = 4, .d = 40, .hk = 2, .mask = DOCUMENTS + 1, .p = 0.2f},
        {.b = 1, .t = 200, .h = 1, .d = 128, .mask = DOCUMENTS},
        {.b = 2, .t = 150, .h = 1, .d = 256, .mask = DOCUMENTS},
        {.b = 1,
         .t = 130,
         .h = 2,
         .d = 24,
         .layout = ATTENTION_LAYOUT_HEADS,
         .mask = DOCUMENTS + 2},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            struct shape x = shapes[i];
            x.dtype = (enum dtype)dtype, x.gain = 1;
            check(&x);
        }
}

/* Few heads, many tokens: several splits, queries before a split's first key; and scratch for one
 * head at a time. */
TEST(splits_and_runs_of_heads)
{
    struct shape x = {1, 300, 1, 64, 0, 0, DTYPE_BF16, 1, 0, 0, 0, 0};
    check(&x);
    x.h = 3, x.t = 140, x.scratch_bytes = (size_t)(192 * 64 * 4 * 2 + 192 * 4 + 512);
    check(&x);
    x.dtype = DTYPE_F32;
    check(&x);
    /* a key head's queries at a time, and two splits; then too little for the three of one */
    x.b = 2, x.hk = 1, x.scratch_bytes = (size_t)(3 * (2 * 192 * 64 * 4 + 768) + 512);
    check(&x);
    x.dtype = DTYPE_BF16;
    check(&x);
    x.mask = DOCUMENTS;
    check(&x);
    x.dtype = DTYPE_F32;
    check(&x);
    x.dtype = DTYPE_BF16, x.mask = 0;
    x.scratch_bytes = (size_t)(2 * 192 * 64 * 4);
    struct run few = run_new(&x);
    ct_ok(forward(&few), "attention_fwd");
    assert_int_equal(backward(&few), CUDA_REFUSAL_SCRATCH);
    run_free(&few);
    x.dtype = DTYPE_F32, x.b = 1, x.hk = 0;
    x.scratch_bytes = 1000;
    struct run r = run_new(&x);
    ct_ok(forward(&r), "attention_fwd"); /* waits: a kernel may not outlive its buffers */
    assert_int_equal(backward(&r), CUDA_REFUSAL_SCRATCH);
    run_free(&r);
}

/* Chips with 99 KiB for a block: no launch asks for more, and what cannot do with it is refused.
 * The tiles of AMD GPUs need 64 KiB. */
TEST(little_shared_memory)
{
    const size_t most = 99 << 10;
    static const int64_t widths[] = {64, 72, 128, 136, 256};
    emu_shared_max(most);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            struct shape x = {1, 131, 1, widths[i], 0.2f, 1, (enum dtype)dtype, 1, 0, most, 0, 0};
            if (dtype != DTYPE_F32 || widths[i] <= 128 || emu_is_hip()) {
                check(&x);
                continue;
            }
            struct run r = run_new(&x);
            assert_int_equal(forward(&r), CUDA_REFUSAL_SHARED);
            assert_int_equal(backward(&r), CUDA_REFUSAL_SHARED);
            run_free(&r);
        }
    emu_shared_max(0);
}

/* The tiles of chips with 227 KiB for a block, of heads wider than 64, with dropout and a mask. AMD
 * GPUs have the tiles of the test above only. */
TEST(much_shared_memory)
{
    static const int64_t widths[] = {72, 128, 136, 256};
    for (size_t i = 0; !emu_is_hip() && i < sizeof widths / sizeof *widths; i++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            struct shape x = {1, 150, 2,         widths[i], 0.2f, 1, (enum dtype)dtype,
                              1, 0,   227 << 10, 0,         0};
            check(&x);
        }
}

/* bytes of scratch from `first` to `end` that a kernel wrote; all were 0xff. */
static size_t written(const struct run *r, size_t first, size_t end)
{
    const unsigned char *scratch = r->cuda.scratch;
    size_t n = 0;
    for (size_t i = first; i < end; i++)
        n += scratch[i] != 0xff;
    return n;
}

/* 1024 heads and scratch for 1008: two runs of 512, not one of 1008 and one of 16. So scratch
 * beyond 512 heads stays as it was. */
TEST(runs_of_heads_are_equal)
{
    const size_t sums = 64 * 64 * sizeof(float), head = sums + 256, run = 512 * sums;
    struct shape x = {2, 1, 512, 8, 0, 0, DTYPE_BF16, 1, 1008 * head + 256, 0, 0, 0};
    struct run r = run_new(&x);
    float *out, *lse, *dqkv;
    ct_ok(forward(&r), "attention_fwd");
    ct_ok(backward(&r), "attention_bwd");
    truth(&r, &out, &lse, &dqkv);
    ct_near("dqkv", r.dqkv, dqkv, r.qkv_n, limit(x.dtype));
    /* a run's deltas lie behind the sums of its heads */
    assert_true(written(&r, run, run + 512 * sizeof(float)) > 0);
    assert_int_equal(written(&r, run + 512 * sizeof(float), r.cuda.scratch_bytes), 0);
    free(out);
    free(lse);
    free(dqkv);
    run_free(&r);
}

/* Scores of ±1e3: the running maximum must carry them. */
TEST(sharp_scores)
{
    struct shape x = {1, 90, 1, 64, 0, 1, DTYPE_BF16, 10, 0, 0, 0, 0};
    struct run r = run_new(&x);
    float *out, *lse, *dqkv;
    ct_ok(forward(&r), "attention_fwd");
    ct_ok(backward(&r), "attention_bwd");
    truth(&r, &out, &lse, &dqkv);
    ct_near("out", r.out, out, r.n, 1e-5);
    for (int64_t i = 0; i < r.qkv_n; i++)
        assert_true(isfinite(ct_from_bits(((uint16_t *)r.dqkv.data)[i], DTYPE_BF16)));
    free(out);
    free(lse);
    free(dqkv);
    run_free(&r);
}

static int forward_again(void *run) { return forward(run); }
static int backward_again(void *run) { return backward(run); }

TEST(barriers_are_needed)
{
    /* one split */
    struct shape x = {1, 150, 1, 64, 0.1f, 1, DTYPE_BF16, 1, (size_t)(192 * 64 * 4 + 768 + 256),
                      0, 0,   0};
    struct run r = run_new(&x);
    /* Forward: the first barrier is there twice, before the queries' fragments and before the first
     * tile. */
    assert_int_equal(ct_barriers_unneeded(forward_again, &r, r.out, r.n, 1), 1);
    /* Backward: the one before a block's first keys orders nothing; those before its next keys
     * do. */
    assert_int_equal(ct_barriers_unneeded(backward_again, &r, r.dqkv, r.qkv_n, 1), 1);
    run_free(&r);
}

static void check_decode(const struct shape *x, uint64_t seed)
{
    struct run r = run_new(x);
    int64_t c = x->h * x->d;
    float *qkv = ct_floats(r.qkv, r.qkv_n), *want = ct_random(x->b * c, 0, 1);
    struct tensor got = ct_tensor(x->b * c, x->dtype, NULL);
    struct attention_decode a = {.out = got,
                                 .qkv = r.qkv,
                                 .b = x->b,
                                 .t = x->t,
                                 .h = x->h,
                                 .hk = r.hk,
                                 .layout = x->layout,
                                 .d = x->d};
    struct attention_decode plain = a;
    plain.out = kt_f32(want), plain.qkv = kt_f32(qkv);
    emu_seed(seed);
    ct_ok(attention_decode_cuda(&r.cuda, &a), "attention_decode");
    kt_ok(dev_op(kt_plain()->dev)->attention_decode(kt_plain()->stream, &plain));
    ct_near("decode", got, want, x->b * c, limit(x->dtype));
    ct_free(got, x->b * c);
    free(qkv);
    free(want);
    run_free(&r);
}

TEST(decode_is_the_last_row)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    static const struct shape shapes[] = {
        {.b = 1, .t = 1, .h = 1, .d = 8},
        {.b = 2, .t = 37, .h = 2, .d = 64},
        {.b = 1, .t = 300, .h = 1, .d = 128},
        {.b = 1, .t = 70, .h = 2, .d = 256},
        {.b = 1, .t = 530, .h = 2, .d = 40},
        {.b = 3, .t = 20, .h = 1, .d = 24},
        {.b = 2, .t = 300, .h = 6, .d = 64, .hk = 2},
        {.b = 1, .t = 40, .h = 4, .d = 128, .hk = 1},
        {.b = 2, .t = 270, .h = 3, .d = 80, .layout = ATTENTION_LAYOUT_HEADS},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int n = 0; n < 3; n++) {
            struct shape x = shapes[i];
            x.dtype = dtypes[n], x.gain = 1;
            check_decode(&x, i);
        }
}

TEST(needs_are_checked)
{
    struct shape x = {1, 8, 1, 16, 0, 0, DTYPE_BF16, 1, 0, 0, 0, 0};
    struct run r = run_new(&x);
    r.x.d = 12;
    assert_int_equal(forward(&r), CUDA_REFUSAL_SHAPE);
    assert_int_equal(backward(&r), CUDA_REFUSAL_SHAPE);
    r.x.d = 264;
    assert_int_equal(forward(&r), CUDA_REFUSAL_SHAPE);
    r.x.d = 16, r.hk = 2;
    assert_int_equal(forward(&r), CUDA_REFUSAL_SHAPE);
    assert_int_equal(backward(&r), CUDA_REFUSAL_SHAPE);
    r.hk = 1, r.x.h = 2, r.x.layout = ATTENTION_LAYOUT_HEADS;
    assert_int_equal(forward(&r), CUDA_REFUSAL_SHAPE);
    assert_int_equal(backward(&r), CUDA_REFUSAL_SHAPE);
    r.x.h = 1, r.out.dtype = DTYPE_F16;
    assert_int_equal(forward(&r), CUDA_REFUSAL_DTYPE);
    assert_int_equal(backward(&r), CUDA_REFUSAL_DTYPE);
    r.out.dtype = DTYPE_BF16, r.qkv.data = (char *)r.qkv.data + 2;
    assert_int_equal(forward(&r), CUDA_REFUSAL_SHAPE);
    r.qkv.data = (char *)r.qkv.data - 2;
    run_free(&r);
}

HARNESS_RUN_ALL()
