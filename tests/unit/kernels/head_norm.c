/* RMSNorm of each head: fast against plain, in place, heads inside wider rows whose other elements
 * stay, and the backward pass against finite differences. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n, heads, d, stride;
    float *x, *dy, *w;
    bool accumulate, in_place;
};

static int64_t elems_of(const struct input *in) { return in->n * in->stride; }

static struct input input_new(int64_t n, int64_t heads, int64_t d, int64_t rest, float gain)
{
    struct input in = {.n = n, .heads = heads, .d = d, .stride = heads * d + rest};
    in.x = kt_floats(elems_of(&in), KT_RANDOM, 1);
    in.dy = kt_floats(elems_of(&in), KT_RANDOM, 2);
    in.w = kt_floats(d, KT_RANDOM, 3);
    for (int64_t i = 0; i < elems_of(&in); i++)
        in.x[i] *= gain;
    return in;
}

static void input_free(struct input *in)
{
    kt_free(in->x);
    kt_free(in->dy);
    kt_free(in->w);
}

static enum status run_fwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct head_norm_fwd a = {.y = kt_f32(out[0]),
                              .x = kt_f32(in->in_place ? out[0] : in->x),
                              .w = kt_f32(in->w),
                              .n = in->n,
                              .heads = in->heads,
                              .d = in->d,
                              .stride = in->stride,
                              .eps = 1e-6f};
    return op->head_norm_fwd(s, &a);
}

static enum status run_bwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct head_norm_bwd a = {.dx = kt_f32(out[0]),
                              .dw = kt_f32(out[1]),
                              .dy = kt_f32(in->in_place ? out[0] : in->dy),
                              .x = kt_f32(in->x),
                              .w = kt_f32(in->w),
                              .n = in->n,
                              .heads = in->heads,
                              .d = in->d,
                              .stride = in->stride,
                              .eps = 1e-6f,
                              .accumulate = in->accumulate};
    return op->head_norm_bwd(s, &a);
}

static void check(struct input *in)
{
    for (int form = 0; form < 4; form++) {
        in->in_place = form & 1, in->accumulate = form & 2;
        int64_t elems = elems_of(in);
        struct kt_case fwd = {"head_norm_fwd", run_fwd, in, {in->x}, {elems}, 1e-12};
        struct kt_case bwd = {"head_norm_bwd", run_bwd, in, {in->dy, in->w}, {elems, in->d}, 1e-12};
        if (!in->accumulate)
            kt_check(&fwd);
        kt_check(&bwd);
    }
}

TEST(fast_matches_plain)
{
    static const int64_t shapes[][4] = {{1, 1, 7, 0},   {3, 2, 16, 5},     {5, 3, 33, 0},
                                        {40, 8, 64, 7}, {33, 4, 128, 256}, {70, 2, 80, 0},
                                        {2, 1, 300, 0}, {2, 3, 250, 1},    {0, 2, 16, 3}};
    static const float gains[] = {1, 1e12f, 1e-12f};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int g = 0; g < 3; g++) {
            struct input in =
                input_new(shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], gains[g]);
            check(&in);
            input_free(&in);
        }
}

/* With one element a head, g and x̂·mean(g·x̂) are nearly equal: the error is relative to them. */
TEST(heads_of_one_element)
{
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        float x[3] = {2, -1e-3f, 0}, w = 3, dy[3] = {1, 1, 1}, y[3], dx[3], dw;
        struct input in = {.n = 1, .heads = 3, .d = 1, .stride = 3, .x = x, .dy = dy, .w = &w};
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){y}));
        kt_ok(run_bwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){dx, &dw}));
        double sum = 0;
        for (int i = 0; i < 3; i++) {
            double r = 1 / sqrt((double)x[i] * x[i] + 1e-6), hat = x[i] * r;
            sum += hat;
            assert_true(fabs(y[i] - 3 * hat) < 1e-6);
            assert_true(fabs(dx[i] - 3 * r * (1 - hat * hat)) < 1e-6 * 3 * r);
        }
        assert_true(fabs(dw - sum) < 1e-6);
    }
}

/* What lies between the heads of two rows is not written: kt_check compares whole rows with plain,
 * and here with the initial value. */
TEST(other_elements_stay)
{
    struct input in = input_new(5, 2, 12, 9, 1);
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        float *y = kt_floats(elems_of(&in), KT_RAMP, 0), *dw = kt_floats(12, KT_ONES, 0);
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){y}));
        kt_ok(run_bwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){y, dw}));
        for (int64_t n = 0; n < in.n; n++)
            for (int64_t i = n * in.stride + 24; i < (n + 1) * in.stride; i++)
                assert_true(y[i] == kt_value(KT_RAMP, 0, i));
        kt_free(y);
        kt_free(dw);
    }
    input_free(&in);
}

static double loss_of(void *arg)
{
    const struct input *in = arg;
    float y[96];
    double loss = 0;
    kt_run_plain(run_fwd, arg, (float *[KT_OUTS]){y});
    for (int64_t n = 0; n < in->n; n++)
        loss += kt_dot(y + n * in->stride, in->dy + n * in->stride, in->heads * in->d);
    return loss;
}

TEST(backward_matches_finite_differences)
{
    struct input in = input_new(4, 3, 8, 0, 1);
    float dx[96], dw[8];
    kt_run_plain(run_bwd, &in, (float *[KT_OUTS]){dx, dw});
    kt_check_slopes(&(struct kt_slopes){loss_of, &in, in.x, 96, dx, 0.00390625f, 5e-4, 1});
    kt_check_slopes(&(struct kt_slopes){loss_of, &in, in.w, 8, dw, 0.00390625f, 5e-4, 1});
    input_free(&in);
}

TEST(bad_shapes_are_refused)
{
    float f[4] = {1, 1, 1, 1};
    struct tensor t = kt_f32(f);
    struct head_norm_fwd good = {
        .y = t, .x = t, .w = t, .n = 1, .heads = 1, .d = 4, .stride = 4, .eps = 1e-6f};
    struct head_norm_fwd a = good;
    kt_ok(dev_op(kt_plain()->dev)->head_norm_fwd(kt_plain()->stream, &a));
    a.stride = 3;
    assert_int_equal(dev_op(kt_plain()->dev)->head_norm_fwd(kt_plain()->stream, &a), ST_BUG);
    a = good, a.eps = 0;
    assert_int_equal(dev_op(kt_plain()->dev)->head_norm_fwd(kt_plain()->stream, &a), ST_BUG);
    a = good, a.heads = INT64_MAX, a.stride = INT64_MAX;
    assert_int_equal(dev_op(kt_plain()->dev)->head_norm_fwd(kt_plain()->stream, &a), ST_BUG);
}

HARNESS_RUN_ALL()
