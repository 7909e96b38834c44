/* LayerNorm and RMSNorm: fast against plain, in-place forms, rows far from zero, and the backward
 * pass against finite differences; RMSNorm against transformers' formula. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n, c;
    float *x, *w, *b, *dy, *residual, *mean, *rstd;
    bool accumulate, in_place, with_b;
    enum norm_kind kind;
};

static struct input input_new(enum norm_kind kind, int64_t n, int64_t c, enum kt_fill fill,
                              float gain, float shift)
{
    struct input in = {n,
                       c,
                       kt_floats(n * c, fill, 1),
                       kt_floats(c, fill, 2),
                       kt_floats(c, fill, 3),
                       kt_floats(n * c, fill, 4),
                       kt_floats(n * c, fill, 5),
                       kt_floats(n, KT_ONES, 0),
                       kt_floats(n, KT_ONES, 0),
                       false,
                       false,
                       true,
                       kind};
    for (int64_t i = 0; i < n * c; i++)
        in.x[i] = in.x[i] * gain + shift;
    return in;
}

static void input_free(struct input *in)
{
    float *all[] = {in->x, in->w, in->b, in->dy, in->residual, in->mean, in->rstd};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kt_free(all[i]);
}

/* RMS with C = 1: dx is the difference of g and x̂·g·x̂, and eps keeps them apart. */
static float eps_of(const struct input *in)
{
    return in->kind == NORM_KIND_RMS && in->c == 1 ? 1 : 1e-5f;
}

static enum status run_fwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct norm_fwd a = {.y = kt_f32(out[0]),
                         .mean = kt_f32(in->kind == NORM_KIND_RMS ? NULL : out[1]),
                         .rstd = kt_f32(out[2]),
                         .x = kt_f32(in->in_place ? out[0] : in->x),
                         .w = kt_f32(in->w),
                         .n = in->n,
                         .c = in->c,
                         .eps = eps_of(in),
                         .kind = in->kind};
    if (in->with_b && in->kind == NORM_KIND_LAYER)
        a.b = kt_f32(in->b);
    return op->norm_fwd(s, &a);
}

/* In place: dx is dy where accumulate, dresidual where not. */
static enum status run_bwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct norm_bwd a = {.dx = kt_f32(out[0]),
                         .dw = kt_f32(out[1]),
                         .db = kt_f32(in->kind == NORM_KIND_RMS ? NULL : out[2]),
                         .x = kt_f32(in->x),
                         .dy = kt_f32(in->in_place && in->accumulate ? out[0] : in->dy),
                         .mean = kt_f32(in->kind == NORM_KIND_RMS ? NULL : in->mean),
                         .rstd = kt_f32(in->rstd),
                         .w = kt_f32(in->w),
                         .n = in->n,
                         .c = in->c,
                         .accumulate = in->accumulate,
                         .kind = in->kind};
    if (in->with_b)
        a.dresidual = kt_f32(in->in_place && !in->accumulate ? out[0] : in->residual);
    return op->norm_bwd(s, &a);
}

static void check(struct input *in, double nmse_max)
{
    for (int form = 0; form < 8; form++) {
        in->in_place = form & 1, in->accumulate = form & 2, in->with_b = form & 4;
        struct kt_case fwd = {
            "norm_fwd", run_fwd, in, {in->x, in->mean, in->rstd}, {in->n * in->c, in->n, in->n},
            nmse_max};
        if (!in->accumulate)
            kt_check(&fwd);
        float *y = kt_floats(in->n * in->c, KT_ONES, 0);
        bool in_place = in->in_place;
        in->in_place = false;
        kt_ok(run_fwd(dev_op(kt_plain()->dev), kt_plain()->stream, in,
                      (float *[KT_OUTS]){y, in->mean, in->rstd}));
        in->in_place = in_place;
        kt_free(y);
        struct kt_case bwd = {"norm_bwd",
                              run_bwd,
                              in,
                              {in->accumulate ? in->dy : in->residual, in->w, in->b},
                              {in->n * in->c, in->c, in->c},
                              nmse_max};
        kt_check(&bwd);
    }
}

TEST(fast_matches_plain)
{
    static const int64_t shapes[][2] = {{1, 1},    {1, 7},    {3, 16},   {5, 33},    {40, 128},
                                        {33, 768}, {130, 65}, {7, 1601}, {40, 1024}, {33, 1100}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int fill = KT_RANDOM; fill <= KT_RAMP; fill++) {
            for (int kind = NORM_KIND_LAYER; kind <= NORM_KIND_RMS; kind++) {
                struct input in = input_new((enum norm_kind)kind, shapes[i][0], shapes[i][1],
                                            (enum kt_fill)fill, 1, 0);
                check(&in, 1e-12);
                input_free(&in);
            }
        }
}

/* All-equal rows have no variance; large ones and ones far from zero must keep their digits. */
TEST(extreme_rows)
{
    static const float gain_shift[][2] = {{1e12f, 0}, {1e-12f, 0}, {1, 300}, {0, 5}};
    for (size_t i = 0; i < sizeof gain_shift / sizeof *gain_shift; i++) {
        for (int kind = NORM_KIND_LAYER; kind <= NORM_KIND_RMS; kind++) {
            struct input in = input_new((enum norm_kind)kind, 9, 100, KT_RANDOM, gain_shift[i][0],
                                        gain_shift[i][1]);
            check(&in, gain_shift[i][0] == 0 ? 1e-10 : 1e-12);
            input_free(&in);
        }
    }
}

TEST(statistics_may_be_left_out)
{
    struct input in = input_new(NORM_KIND_LAYER, 4, 50, KT_RANDOM, 1, 0);
    float *want = kt_floats(200, KT_ONES, 0), *got = kt_floats(200, KT_ONES, 0);
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){want, in.mean, in.rstd}));
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){got}));
        assert_memory_equal(got, want, 200 * sizeof *got);
        struct norm_fwd empty = {
            .y = kt_f32(got), .x = kt_f32(got), .w = kt_f32(in.w), .n = 0, .c = 50, .eps = 1e-5f};
        kt_ok(dev_op(d->dev)->norm_fwd(d->stream, &empty));
    }
    kt_free(want);
    kt_free(got);
    input_free(&in);
}

/* The residual passes the gradient of y on: its term of the loss is x itself. */
static double loss_of(void *arg)
{
    struct input *in = arg;
    float y[45];
    kt_run_plain(run_fwd, in, (float *[KT_OUTS]){y, in->mean, in->rstd});
    return kt_dot(y, in->dy, 45) + kt_dot(in->x, in->residual, 45);
}

static void check_slopes(enum norm_kind kind)
{
    struct input in = input_new(kind, 5, 9, KT_RANDOM, 1, 0);
    float dx[45], dw[9], db[9];
    loss_of(&in);
    kt_run_plain(run_bwd, &in, (float *[KT_OUTS]){dx, dw, db});
    kt_check_slopes(&(struct kt_slopes){loss_of, &in, in.x, 45, dx, 0.00390625f, 5e-4, 1});
    kt_check_slopes(&(struct kt_slopes){loss_of, &in, in.w, 9, dw, 0.00390625f, 5e-4, 1});
    if (kind == NORM_KIND_LAYER)
        kt_check_slopes(&(struct kt_slopes){loss_of, &in, in.b, 9, db, 0.00390625f, 5e-4, 1});
    input_free(&in);
}

TEST(backward_matches_finite_differences)
{
    check_slopes(NORM_KIND_LAYER);
    check_slopes(NORM_KIND_RMS);
}

/* LlamaRMSNorm: variance = x.pow(2).mean(-1); w·(x·rsqrt(variance + eps)). */
TEST(rms_kind_is_that_of_transformers)
{
    const float x[4] = {1, -2, 3, -4}, w[4] = {1, 2, 0.5f, -1};
    float y[4], rstd, want = 1 / sqrtf(7.5f + 1e-6f);
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        struct norm_fwd a = {.y = kt_f32(y),
                             .rstd = kt_f32(&rstd),
                             .x = kt_f32(x),
                             .w = kt_f32(w),
                             .n = 1,
                             .c = 4,
                             .eps = 1e-6f,
                             .kind = NORM_KIND_RMS};
        kt_ok(dev_op(d->dev)->norm_fwd(d->stream, &a));
        assert_float_equal(rstd, want, 1e-7);
        for (int i = 0; i < 4; i++)
            assert_float_equal(y[i], w[i] * (x[i] * want), 2e-7);
    }
}

/* RMSNorm has no mean and no shift: a caller that gives one made a mistake. */
TEST(rms_kind_refuses_what_it_has_not)
{
    float f[4] = {1, 1, 1, 1};
    struct tensor t = kt_f32(f);
    const struct op_table *op = dev_op(kt_plain()->dev);
    struct norm_fwd a = {
        .y = t, .x = t, .w = t, .b = t, .n = 1, .c = 4, .eps = 1, .kind = NORM_KIND_RMS};
    assert_int_equal(op->norm_fwd(kt_plain()->stream, &a), ST_BUG);
    a.b.data = NULL, a.mean = t;
    assert_int_equal(op->norm_fwd(kt_plain()->stream, &a), ST_BUG);
    a.mean.data = NULL, a.kind = (enum norm_kind)2;
    assert_int_equal(op->norm_fwd(kt_plain()->stream, &a), ST_BUG);
    struct norm_bwd b = {.dx = t, .dw = t, .dy = t, .x = t, .rstd = t, .w = t, .n = 1, .c = 4};
    assert_int_equal(op->norm_bwd(kt_plain()->stream, &b), ST_BUG); /* LAYER without a mean */
    b.kind = NORM_KIND_RMS, b.db = t;
    assert_int_equal(op->norm_bwd(kt_plain()->stream, &b), ST_BUG);
}

HARNESS_RUN_ALL()
