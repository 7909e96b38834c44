/* GELU: fast against plain over ordinary and extreme inputs, in place, and its gradient against
 * finite differences. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n;
    const float *x, *dy;
    bool in_place;
    enum gelu_kind kind;
};

static enum status run_fwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct gelu_fwd a = {kt_f32(out[0]), kt_f32(in->in_place ? out[0] : in->x), in->n, in->kind};
    return op->gelu_fwd(s, &a);
}

static enum status run_bwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct gelu_bwd a = {kt_f32(out[0]), kt_f32(in->in_place ? out[0] : in->dy), kt_f32(in->x),
                         in->n, in->kind};
    return op->gelu_bwd(s, &a);
}

static void check(enum gelu_kind kind, int64_t n, enum kt_fill fill, float gain)
{
    float *x = kt_floats(n, fill, 1), *dy = kt_floats(n, fill, 2);
    for (int64_t i = 0; i < n; i++)
        x[i] *= gain;
    for (int in_place = 0; in_place < 2; in_place++) {
        struct input in = {n, x, dy, in_place, kind};
        kt_check(&(struct kt_case){"gelu_fwd", run_fwd, &in, {x}, {n}, 1e-12});
        kt_check(&(struct kt_case){"gelu_bwd", run_bwd, &in, {dy}, {n}, 1e-12});
    }
    kt_free(x);
    kt_free(dy);
}

static void check_kind(enum gelu_kind kind)
{
    static const int64_t sizes[] = {0, 1, 5, 16, 33, 1000, 70000, 70001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int fill = KT_RANDOM; fill <= KT_ONES; fill++)
            check(kind, sizes[i], (enum kt_fill)fill, 2);
    check(kind, 1000, KT_RANDOM, 1e4f);
    check(kind, 1000, KT_RANDOM, 1e-20f);
}

TEST(fast_matches_plain)
{
    check_kind(GELU_KIND_TANH);
    check_kind(GELU_KIND_ERF);
    check(GELU_KIND_ERF, 1000, KT_RANDOM, 1e20f);
}

static double loss_of(void *arg)
{
    const struct input *in = arg;
    float y[81];
    kt_run_plain(run_fwd, arg, (float *[KT_OUTS]){y});
    return kt_dot(y, in->dy, 81);
}

static void check_slopes(enum gelu_kind kind)
{
    float x[81], dx[81], dy[81];
    for (int i = 0; i < 81; i++)
        x[i] = (float)i / 8 - 5, dy[i] = 1;
    struct input in = {81, x, dy, false, kind};
    kt_run_plain(run_bwd, &in, (float *[KT_OUTS]){dx});
    kt_check_slopes(&(struct kt_slopes){loss_of, &in, x, 81, dx, 0.00390625f, 1e-4, 0});
}

TEST(backward_matches_finite_differences)
{
    check_slopes(GELU_KIND_TANH);
    check_slopes(GELU_KIND_ERF);
}

/* torch.nn.functional.gelu of torch 2.x, which transformers calls for "gelu"; in double:
 * x·0.5·(1+erf(x/√2)). Every level keeps the digits of small results far from 0. */
TEST(erf_kind_is_that_of_torch)
{
    float x[] = {-8, -5, -3, -1, -0.5f, -1e-3f, 0, 1e-3f, 0.5f, 1, 3, 5, 13.5f, 14};
    static const double want[] = {-4.9767688e-15,
                                  -1.4332579e-06,
                                  -4.0496940e-03,
                                  -1.5865525e-01,
                                  -1.5426877e-01,
                                  -4.9960106e-04,
                                  0,
                                  5.0039894e-04,
                                  3.4573123e-01,
                                  8.4134475e-01,
                                  2.9959503,
                                  4.9999986,
                                  13.5,
                                  14};
    float y[14];
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        struct gelu_fwd f = {kt_f32(y), kt_f32(x), 14, GELU_KIND_ERF};
        kt_ok(dev_op(d->dev)->gelu_fwd(d->stream, &f));
        for (int i = 0; i < 14; i++)
            if (fabs(y[i] - want[i]) > 3e-6 * fabs(want[i]))
                fail_msg("level %d, x %g: %.9g, expected %.9g", d->level, (double)x[i],
                         (double)y[i], want[i]);
    }
}

HARNESS_RUN_ALL()
