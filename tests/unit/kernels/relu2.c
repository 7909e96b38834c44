/* Squared ReLU: fast against plain over ordinary and extreme inputs, and its gradient against
 * finite differences. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n;
    float *x, *dy;
};

static enum status run_fwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct relu2_fwd a = {kt_f32(out[0]), kt_f32(in->x), in->n};
    return op->relu2_fwd(s, &a);
}

static enum status run_bwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct relu2_bwd a = {kt_f32(out[0]), kt_f32(in->dy), kt_f32(in->x), in->n};
    return op->relu2_bwd(s, &a);
}

static void check(int64_t n, enum kt_fill fill, float gain)
{
    struct input in = {n, kt_floats(n, fill, 1), kt_floats(n, fill, 2)};
    for (int64_t i = 0; i < n; i++)
        in.x[i] *= gain;
    kt_check(&(struct kt_case){"relu2_fwd", run_fwd, &in, {in.dy}, {n}, 1e-12});
    kt_check(&(struct kt_case){"relu2_bwd", run_bwd, &in, {in.x}, {n}, 1e-12});
    kt_free(in.x);
    kt_free(in.dy);
}

TEST(fast_matches_plain)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 1000, 32768, 70001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int fill = KT_RANDOM; fill <= KT_ONES; fill++)
            check(sizes[i], (enum kt_fill)fill, 3);
    check(999, KT_RANDOM, 1e15f);
    check(999, KT_RANDOM, 1e-15f);
}

/* Zero below and at 0, infinite where the square is, and not a number where the input is none. */
TEST(extremes)
{
    float x[] = {-3e38f, -INFINITY, -0.0f, 0, 3, 1e20f, INFINITY, NAN};
    enum { N = sizeof x / sizeof *x };
    float y[N], dx[N], dy[N];
    for (int i = 0; i < N; i++)
        dy[i] = 0.5f;
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        struct input in = {N, x, dy};
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){y}));
        kt_ok(run_bwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){dx}));
        for (int i = 0; i < 4; i++)
            assert_true(y[i] == 0 && dx[i] == 0);
        assert_true(y[4] == 9 && dx[4] == 3 && y[5] == INFINITY && dx[5] == 1e20f);
        assert_true(y[6] == INFINITY && dx[6] == INFINITY && isnan(y[7]) && isnan(dx[7]));
    }
}

enum { SLOPES_N = 41 };

static double loss_of(void *arg)
{
    const struct input *in = arg;
    float y[SLOPES_N];
    kt_run_plain(run_fwd, arg, (float *[KT_OUTS]){y});
    return kt_dot(y, in->dy, SLOPES_N);
}

TEST(backward_matches_finite_differences)
{
    float x[SLOPES_N], dx[SLOPES_N], dy[SLOPES_N];
    for (int i = 0; i < SLOPES_N; i++)
        x[i] = (float)i / 4 - 5, dy[i] = 1 - (float)i / 16;
    struct input in = {SLOPES_N, x, dy};
    kt_run_plain(run_bwd, &in, (float *[KT_OUTS]){dx});
    /* at 0 the slope bends: by half a step there */
    kt_check_slopes(&(struct kt_slopes){loss_of, &in, x, SLOPES_N, dx, 0.00390625f, 5e-3, 0});
}

HARNESS_RUN_ALL()
