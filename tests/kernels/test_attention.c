/* Attention: the fast tiles against the plain truth, masks and dropout, and the backward pass
 * against finite differences. */
#include "documents.h"
#include "kernel_test.h"

#define DOCUMENTS 4
#define DOCUMENT_TOKENS 20 /* on average */

struct shape {
    int64_t b, t, h, d;
    float p;
    /* 0 none; 1 some keys hidden; 2 the first keys hidden, so that early queries see nothing; 3 all
     * hidden; and DOCUMENTS */
    int mask;
    enum kt_fill fill;
    float gain; /* of the inputs: large ones make sharp, extreme scores */
    int64_t hk; /* key heads; 0: as many as h */
    enum attention_layout layout;
};

static int64_t key_heads(const struct shape *x) { return x->hk ? x->hk : x->h; }

/* Elements of qkv. */
static int64_t rows_elems(const struct shape *x)
{
    return x->b * x->t * (x->h + 2 * key_heads(x)) * x->d;
}

static uint8_t *mask_new(const struct shape *x)
{
    uint8_t *mask = malloc((size_t)(x->b * x->t));
    assert_non_null(mask);
    for (int64_t i = 0; i < x->b * x->t; i++)
        mask[i] = x->mask % DOCUMENTS == 3   ? 0
                  : x->mask % DOCUMENTS == 2 ? i % x->t >= x->t / 2
                                             : rand_u32(3, 1, (uint64_t)i) % 3 != 0;
    return mask;
}

static int32_t *first_key_new(const struct shape *x)
{
    int32_t *first_key = malloc((size_t)(x->b * x->t) * sizeof *first_key);
    assert_non_null(first_key);
    documents_fill(first_key, x->b, x->t, DOCUMENT_TOKENS);
    return first_key;
}

struct input {
    const struct shape *x;
    float *qkv, *dout, *out, *lse;
    uint8_t *mask;
    int32_t *first_key;
};

static enum status run_fwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    const struct shape *x = in->x;
    struct attention_fwd a = {.out = kt_f32(out[0]),
                              .lse = kt_f32(out[1]),
                              .qkv = kt_f32(in->qkv),
                              .mask = {in->mask, DTYPE_U8},
                              .first_key = {in->first_key, DTYPE_I32},
                              .b = x->b,
                              .t = x->t,
                              .h = x->h,
                              .hk = key_heads(x),
                              .layout = x->layout,
                              .d = x->d,
                              .dropout = kt_dropout(x->p)};
    return op->attention_fwd(s, &a);
}

static enum status run_bwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    const struct shape *x = in->x;
    struct attention_bwd a = {.dqkv = kt_f32(out[0]),
                              .dout = kt_f32(in->dout),
                              .out = kt_f32(in->out),
                              .qkv = kt_f32(in->qkv),
                              .lse = kt_f32(in->lse),
                              .mask = {in->mask, DTYPE_U8},
                              .first_key = {in->first_key, DTYPE_I32},
                              .b = x->b,
                              .t = x->t,
                              .h = x->h,
                              .hk = key_heads(x),
                              .layout = x->layout,
                              .d = x->d,
                              .dropout = kt_dropout(x->p)};
    return op->attention_bwd(s, &a);
}

static struct input input_new(const struct shape *x)
{
    int64_t n = x->b * x->t * x->h * x->d;
    struct input in = {x,
                       kt_floats(rows_elems(x), x->fill, 1),
                       kt_floats(n, x->fill, 2),
                       kt_floats(n, KT_ONES, 3),
                       kt_floats(x->b * x->h * x->t, KT_ONES, 4),
                       x->mask % DOCUMENTS ? mask_new(x) : NULL,
                       x->mask & DOCUMENTS ? first_key_new(x) : NULL};
    for (int64_t i = 0; i < rows_elems(x); i++)
        in.qkv[i] *= x->gain;
    return in;
}

static void input_free(struct input *in)
{
    kt_free(in->qkv);
    kt_free(in->dout);
    kt_free(in->out);
    kt_free(in->lse);
    free(in->mask);
    free(in->first_key);
}

static void check_shape(const struct shape *x, double nmse_max)
{
    struct input in = input_new(x);
    int64_t n = x->b * x->t * x->h * x->d;
    struct kt_case fwd = {"attention_fwd",         run_fwd, &in, {in.out, in.lse},
                          {n, x->b * x->h * x->t}, nmse_max};
    kt_check(&fwd);
    kt_ok(run_fwd(dev_op(kt_plain()->dev), kt_plain()->stream, &in,
                  (float *[KT_OUTS]){in.out, in.lse}));
    struct kt_case bwd = {"attention_bwd", run_bwd, &in, {in.qkv}, {rows_elems(x)}, nmse_max};
    kt_check(&bwd);
    input_free(&in);
}

TEST(fast_matches_plain)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 1, 0, 0, KT_RANDOM, 1, 0, 0},    {2, 3, 2, 5, 0, 0, KT_RANDOM, 1, 0, 0},
        {1, 64, 2, 64, 0, 0, KT_RANDOM, 1, 0, 0},  {1, 65, 3, 64, 0, 0, KT_RANDOM, 1, 0, 0},
        {2, 130, 2, 32, 0, 0, KT_RANDOM, 1, 0, 0}, {1, 200, 1, 80, 0, 0, KT_RANDOM, 1, 0, 0},
        {1, 257, 3, 17, 0, 0, KT_RAMP, 1, 0, 0},   {1, 100, 2, 64, 0, 0, KT_ONES, 1, 0, 0},
        {1, 63, 1, 129, 0, 0, KT_RANDOM, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i], 1e-12);
}

TEST(masks_and_dropout)
{
    static const struct shape shapes[] = {
        {2, 70, 2, 64, 0, 1, KT_RANDOM, 1, 0, 0},     {2, 150, 2, 16, 0, 2, KT_RANDOM, 1, 0, 0},
        {1, 33, 2, 8, 0, 3, KT_RANDOM, 1, 0, 0},      {2, 77, 2, 64, 0.1f, 0, KT_RANDOM, 1, 0, 0},
        {1, 140, 3, 24, 0.5f, 1, KT_RANDOM, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i], 1e-12);
}

/* Several query heads for a key head, and rows of [q k v] for each head. */
TEST(groups_and_layouts)
{
    static const int64_t widths[] = {16, 64, 80, 96, 128, 5};
    static const int64_t heads[][2] = {{4, 1}, {4, 2}, {9, 3}, {6, 6}};
    for (size_t n = 0; n < sizeof heads / sizeof *heads; n++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            struct shape x = {1, 65, heads[n][0], widths[w], 0, 0, KT_RANDOM, 1, heads[n][1], 0};
            check_shape(&x, 1e-12);
            x.b = 2, x.t = 7, x.mask = 1, x.p = 0.2f;
            check_shape(&x, 1e-12);
            x.hk = x.h, x.layout = ATTENTION_LAYOUT_HEADS;
            check_shape(&x, 1e-12);
        }
    static const struct shape shapes[] = {
        {2, 1, 6, 64, 0, 0, KT_RANDOM, 1, 2, 0},
        {2, 150, 4, 16, 0.3f, 2, KT_RANDOM, 1, 1, 0},
        {1, 33, 4, 8, 0, 3, KT_RANDOM, 1, 2, 0},
        {1, 257, 2, 17, 0, 0, KT_RAMP, 1, 0, ATTENTION_LAYOUT_HEADS},
        {2, 130, 3, 64, 0.1f, 1, KT_RANDOM, 1, 0, ATTENTION_LAYOUT_HEADS},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i], 1e-12);
}

/* Scores of ±1e4: float scores near 1e4 carry an absolute error of 1e-3, which is the relative
 * error of exp. */
TEST(extreme_scores)
{
    static const struct shape sharp = {1, 90, 2, 64, 0, 1, KT_RANDOM, 30, 0, 0};
    check_shape(&sharp, 1e-5);
}

/* So many queries of so wide a head that the backward pass must take them in two runs. */
TEST(long_and_wide)
{
#ifdef HARNESS_EMULATED
    HARNESS_SKIP("takes minutes on an emulated processor");
#endif
    static const struct shape wide = {1, 310, 1, 2000, 0, 0, KT_RANDOM, 1, 0, 0},
                              group = {1, 310, 3, 2000, 0, 0, KT_RANDOM, 1, 1, 0};
    check_shape(&wide, 1e-11); /* scores are sums of 2000 products in float */
    check_shape(&group, 1e-11);
}

/* So many query heads for a key head that the backward pass takes them in several tasks: of three,
 * three and one; of one each, key head by key head; where their sums have no room, in a single
 * one. */
TEST(many_query_heads)
{
    static const struct shape shapes[] = {
        {1, 300, 7, 64, 0, 1, KT_RANDOM, 1, 1, 0},
        {2, 200, 12, 80, 0.2f, 0, KT_RANDOM, 1, 2, 0},
#ifndef HARNESS_EMULATED
        {1, 33, 66, 2000, 0, 0, KT_RANDOM, 1, 2, 0},
        {1, 33, 66, 2000, 0, 0, KT_RANDOM, 1, 1, 0},
#endif
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i], 1e-11);
}

/* Documents of all lengths: within a tile of keys, over several, with masks, dropout and groups. */
TEST(documents)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 1, 0, DOCUMENTS, KT_RANDOM, 1, 0, 0},
        {2, 37, 2, 5, 0, DOCUMENTS, KT_RANDOM, 1, 0, 0},
        {2, 130, 2, 64, 0, DOCUMENTS, KT_RANDOM, 1, 0, 0},
        {1, 300, 3, 17, 0, DOCUMENTS, KT_RAMP, 1, 0, 0},
        {2, 257, 4, 24, 0.2f, DOCUMENTS + 1, KT_RANDOM, 1, 2, 0},
        {2, 150, 2, 16, 0, DOCUMENTS + 2, KT_RANDOM, 1, 0, 0},
        {1, 33, 2, 8, 0, DOCUMENTS + 3, KT_RANDOM, 1, 0, 0},
        {2, 130, 3, 32, 0.1f, DOCUMENTS, KT_RANDOM, 1, 0, ATTENTION_LAYOUT_HEADS},
#ifndef HARNESS_EMULATED
        {1, 260, 7, 64, 0.1f, DOCUMENTS, KT_RANDOM, 1, 1, 0},
        {1, 310, 1, 2000, 0, DOCUMENTS, KT_RANDOM, 1, 0, 0},
#endif
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i], 1e-11);
}

static void near(const char *what, const float *got, const float *want, int64_t n)
{
    double nmse = kt_nmse(got, want, n);
    if (!(nmse <= 1e-11))
        fail_msg("%s: nmse %g", what, nmse);
}

/* A document of a sample, tokens [first, first + n), is attention over it alone. */
static void check_alone(const struct kt_device *d, const struct input *in, const float *dqkv,
                        int64_t first, int64_t n)
{
    struct shape x = *in->x;
    int64_t row = rows_elems(&x) / x.t, c = x.h * x.d;
    x.t = n, x.mask = 0;
    struct input alone = input_new(&x);
    float *grad = kt_floats(n * row, KT_ONES, 0);
    memcpy(alone.qkv, in->qkv + first * row, (size_t)(n * row) * sizeof(float));
    memcpy(alone.dout, in->dout + first * c, (size_t)(n * c) * sizeof(float));
    kt_ok(run_fwd(dev_op(d->dev), d->stream, &alone, (float *[KT_OUTS]){alone.out, alone.lse}));
    kt_ok(run_bwd(dev_op(d->dev), d->stream, &alone, (float *[KT_OUTS]){grad}));
    near("out", in->out + first * c, alone.out, n * c);
    for (int64_t h = 0; h < x.h; h++)
        near("lse", in->lse + h * in->x->t + first, alone.lse + h * n, n);
    near("dqkv", dqkv + first * row, grad, n * row);
    kt_free(grad);
    input_free(&alone);
}

TEST(documents_are_separate)
{
    static const struct shape x = {1, 330, 4, 24, 0, DOCUMENTS, KT_RANDOM, 1, 2, 0};
    struct input in = input_new(&x);
    float *dqkv = kt_floats(rows_elems(&x), KT_ONES, 0);
    for (int64_t t = 100; t < 250; t++) /* a long one, over whole tiles of keys */
        in.first_key[t] = in.first_key[100];
    for (int64_t t = 250; t < x.t && in.first_key[t] < 250; t++)
        in.first_key[t] = in.first_key[100];
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){in.out, in.lse}));
        kt_ok(run_bwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){dqkv}));
        for (int64_t t = 0, n; t < x.t; t += n) {
            for (n = 1; t + n < x.t && in.first_key[t + n] == t; n++)
                ;
            check_alone(d, &in, dqkv, t, n);
        }
    }
    kt_free(dqkv);
    input_free(&in);
}

/* First keys of 0 are those of a call without any, bit for bit. */
TEST(one_document_is_the_whole)
{
    static const struct shape x = {2, 200, 4, 40, 0.1f, DOCUMENTS + 1, KT_RANDOM, 1, 2, 0};
    struct input in = input_new(&x), all = input_new(&x);
    float *dqkv = kt_floats(rows_elems(&x), KT_ONES, 0),
          *want = kt_floats(rows_elems(&x), KT_ONES, 0);
    memset(in.first_key, 0, (size_t)(x.b * x.t) * sizeof *in.first_key);
    free(all.first_key);
    all.first_key = NULL;
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){in.out, in.lse}));
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &all, (float *[KT_OUTS]){all.out, all.lse}));
        kt_ok(run_bwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){dqkv}));
        kt_ok(run_bwd(dev_op(d->dev), d->stream, &all, (float *[KT_OUTS]){want}));
        size_t out = (size_t)(x.b * x.t * x.h * x.d) * sizeof(float);
        assert_memory_equal(in.out, all.out, out);
        assert_memory_equal(dqkv, want, (size_t)rows_elems(&x) * sizeof(float));
    }
    kt_free(dqkv);
    kt_free(want);
    input_free(&in);
    input_free(&all);
}

static enum status run_decode(const struct op_table *op, struct stream *s, void *arg,
                              float *out[KT_OUTS])
{
    const struct input *in = arg;
    const struct shape *x = in->x;
    struct attention_decode a = {.out = kt_f32(out[0]),
                                 .qkv = kt_f32(in->qkv),
                                 .b = x->b,
                                 .t = x->t,
                                 .h = x->h,
                                 .hk = key_heads(x),
                                 .layout = x->layout,
                                 .d = x->d};
    return op->attention_decode(s, &a);
}

/* The truth is attention_fwd's last row, bit for bit; the fast one meets it. */
TEST(decode_is_the_last_row)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 1, 0, 0, KT_RANDOM, 1, 0, 0},
        {2, 3, 2, 5, 0, 0, KT_RANDOM, 1, 0, 0},
        {1, 64, 2, 64, 0, 0, KT_RANDOM, 1, 0, 0},
        {1, 65, 12, 64, 0, 0, KT_RANDOM, 1, 0, 0},
        {3, 130, 2, 32, 0, 0, KT_RANDOM, 1, 0, 0},
        {1, 600, 1, 80, 0, 0, KT_RANDOM, 1, 0, 0},
        {1, 257, 3, 17, 0, 0, KT_RAMP, 1, 0, 0},
        {1, 100, 2, 64, 0, 0, KT_ONES, 1, 0, 0},
        {2, 33, 1, 129, 0, 0, KT_RANDOM, 1, 0, 0},
        {2, 300, 9, 64, 0, 0, KT_RANDOM, 1, 3, 0},
        {1, 530, 8, 80, 0, 0, KT_RANDOM, 1, 1, 0},
        {1, 40, 37, 8, 0, 0, KT_RANDOM, 1, 1, 0},
        {1, 1, 4, 16, 0, 0, KT_RANDOM, 1, 2, 0},
        {2, 65, 4, 20, 0, 0, KT_RANDOM, 1, 0, ATTENTION_LAYOUT_HEADS},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *x = &shapes[i];
        struct input in = input_new(x);
        int64_t c = x->h * x->d;
        float *last = kt_floats(x->b * c, KT_ONES, 3);
        struct kt_case decode = {"attention_decode", run_decode, &in, {last}, {x->b * c}, 1e-12};
        kt_check(&decode);
        kt_ok(run_fwd(dev_op(kt_plain()->dev), kt_plain()->stream, &in,
                      (float *[KT_OUTS]){in.out, in.lse}));
        kt_ok(
            run_decode(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){last}));
        for (int64_t b = 0; b < x->b; b++)
            assert_memory_equal(last + b * c, in.out + (b * x->t + x->t - 1) * c,
                                (size_t)c * sizeof *last);
        kt_free(last);
        input_free(&in);
    }
}

TEST(rows_without_a_key_are_zero)
{
    static const struct shape x = {1, 40, 1, 8, 0, 2, KT_RANDOM, 1, 0, 0};
    struct input in = input_new(&x);
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        float *dqkv = kt_floats(3 * 40 * 8, KT_ONES, 0);
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){in.out, in.lse}));
        kt_ok(run_bwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){dqkv}));
        for (int64_t i = 0; i < 20; i++) {
            assert_true(in.lse[i] == -INFINITY);
            for (int64_t e = 0; e < 8; e++)
                assert_true(in.out[i * 8 + e] == 0 && dqkv[i * 24 + e] == 0 &&
                            dqkv[i * 24 + 8 + e] == 0 && dqkv[i * 24 + 16 + e] == 0);
        }
        kt_free(dqkv);
    }
    input_free(&in);
}

struct loss {
    struct input *in;
    int64_t n;
};

static double loss_of(void *arg)
{
    const struct loss *loss = arg;
    struct input *in = loss->in;
    kt_run_plain(run_fwd, in, (float *[KT_OUTS]){in->out, in->lse});
    return kt_dot(in->out, in->dout, loss->n);
}

/* d Σ out·dout / d qkv by central differences. */
TEST(backward_matches_finite_differences)
{
    static const struct shape shapes[] = {
        {1, 7, 2, 4, 0, 0, KT_RANDOM, 1, 0, 0},
        {2, 6, 1, 3, 0, 1, KT_RANDOM, 1, 0, 0},
        {1, 8, 1, 4, 0.3f, 2, KT_RANDOM, 1, 0, 0},
        {1, 6, 6, 3, 0.2f, 0, KT_RANDOM, 1, 2, 0},
        {2, 5, 4, 4, 0, 1, KT_RANDOM, 1, 1, 0},
        {1, 7, 3, 4, 0, 0, KT_RANDOM, 1, 0, ATTENTION_LAYOUT_HEADS},
        {1, 40, 2, 2, 0.2f, DOCUMENTS, KT_RANDOM, 1, 1, 0},
        {1, 45, 1, 3, 0, DOCUMENTS + 1, KT_RANDOM, 1, 0, 0}};
    for (size_t x = 0; x < sizeof shapes / sizeof *shapes; x++) {
        struct input in = input_new(&shapes[x]);
        struct loss loss = {&in, shapes[x].b * shapes[x].t * shapes[x].h * shapes[x].d};
        int64_t elems = rows_elems(&shapes[x]);
        float *dqkv = kt_floats(elems, KT_ONES, 0);
        loss_of(&loss);
        kt_run_plain(run_bwd, &in, (float *[KT_OUTS]){dqkv});
        kt_check_slopes(
            &(struct kt_slopes){loss_of, &loss, in.qkv, elems, dqkv, 0.0078125f, 3e-4, 1});
        kt_free(dqkv);
        input_free(&in);
    }
}

HARNESS_RUN_ALL()
