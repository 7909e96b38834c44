/* SwiGLU: fast against plain over ordinary and extreme gates, and its gradient against finite
 * differences. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n, f;
    float *gu, *dy;
};

static enum status run_fwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct swiglu_fwd a = {kt_f32(out[0]), kt_f32(in->gu), in->n, in->f};
    return op->swiglu_fwd(s, &a);
}

static enum status run_bwd(const struct op_table *op, struct stream *s, void *arg,
                           float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct swiglu_bwd a = {kt_f32(out[0]), kt_f32(in->dy), kt_f32(in->gu), in->n, in->f};
    return op->swiglu_bwd(s, &a);
}

static void check(int64_t n, int64_t f, enum kt_fill fill, float gain)
{
    struct input in = {n, f, kt_floats(2 * n * f, fill, 1), kt_floats(n * f, fill, 2)};
    for (int64_t i = 0; i < 2 * n * f; i++)
        in.gu[i] *= gain;
    kt_check(&(struct kt_case){"swiglu_fwd", run_fwd, &in, {in.dy}, {n * f}, 1e-12});
    kt_check(&(struct kt_case){"swiglu_bwd", run_bwd, &in, {in.gu}, {2 * n * f}, 1e-12});
    kt_free(in.gu);
    kt_free(in.dy);
}

/* Each row is a block of 256 threads of the emulation; there 40,000 of them take 12 s. */
#ifdef KT_DEVICE
#define ROWS_MANY 4000
#else
#define ROWS_MANY 40000
#endif

TEST(fast_matches_plain)
{
    static const int64_t shapes[][2] = {{0, 4},     {1, 1},        {1, 33},   {7, 5},
                                        {16, 64},   {3, 341},      {70, 257}, {2, 40000},
                                        {1, 16384}, {ROWS_MANY, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int fill = KT_RANDOM; fill <= KT_ONES; fill++)
            check(shapes[i][0], shapes[i][1], (enum kt_fill)fill, 2);
    check(9, 100, KT_RANDOM, 1e4f);
    check(9, 100, KT_RANDOM, 1e-16f);
    check(9, 100, KT_RANDOM, 1e15f);
}

/* Results near 1e-41 have no digits left for a relative limit: each is right to two units of the
 * smallest number, or 0 on a device that flushes subnormal numbers. */
TEST(results_may_be_subnormal)
{
    enum { N = 8 };
    static const float g[N] = {1e-20f, -2e-20f, 3e-21f, 4e-21f, -5e-20f, 6e-20f, 7e-22f, -8e-20f};
    float gu[2 * N], y[N];
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        struct input in = {1, N, gu, NULL};
        for (int i = 0; i < N; i++)
            gu[i] = g[i], gu[N + i] = 3e-21f;
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){y}));
        for (int i = 0; i < N; i++) {
            double want = 0.5 * (double)g[i] * (double)gu[N + i];
            if (y[i] != 0 && !(fabs((double)y[i] - want) <= 0x1p-148))
                fail_msg("level %d, element %d: %g, not %g", d->level, i, (double)y[i], want);
        }
    }
}

/* exp(-g) overflows from -88 on, and exp(g) from 88 on: gate and gradient stay what they are. */
TEST(extreme_gates)
{
    static const float gate[] = {-3e38f, -1e4f, -200, -100, -88, 0, 88, 100, 200, 1e4f, 3e38f};
    enum { N = sizeof gate / sizeof *gate };
    float gu[2 * N], y[N], dgu[2 * N], dy[N];
    for (int i = 0; i < N; i++)
        gu[i] = gate[i], gu[N + i] = 0.5f, dy[i] = 1;
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        struct input in = {1, N, gu, dy};
        kt_ok(run_fwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){y}));
        kt_ok(run_bwd(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){dgu}));
        for (int i = 0; i < N; i++) {
            double side = gate[i] > 0, none = 1e-30;
            if (i != 5) { /* of gate 0, finite differences tell */
                assert_true(fabs(y[i] - 0.5 * side * gate[i]) <= none);
                assert_true(fabs(dgu[i] - 0.5 * side) <= none);
                assert_true(fabs(dgu[N + i] - side * gate[i]) <= none);
            }
        }
    }
}

/* torch: silu(g)·u with torch.nn.functional.silu, in double. */
TEST(forward_is_that_of_torch)
{
    float gu[8] = {-2, -0.5f, 0.5f, 2, 3, 1, -1, 10}, y[4];
    static const double want[4] = {-0.7152175, -0.18877034, -0.31122968, 17.615942};
    struct input in = {1, 4, gu, y};
    kt_ok(run_fwd(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){y}));
    for (int i = 0; i < 4; i++)
        assert_true(fabs(y[i] - want[i]) < 1e-6 * fabs(want[i]));
}

enum { SLOPES_F = 41 };

static double loss_of(void *arg)
{
    const struct input *in = arg;
    float y[SLOPES_F];
    kt_run_plain(run_fwd, arg, (float *[KT_OUTS]){y});
    return kt_dot(y, in->dy, SLOPES_F);
}

TEST(backward_matches_finite_differences)
{
    float gu[2 * SLOPES_F], dgu[2 * SLOPES_F], dy[SLOPES_F];
    for (int i = 0; i < SLOPES_F; i++)
        gu[i] = (float)i / 4 - 5, gu[SLOPES_F + i] = 1 - (float)i / 16, dy[i] = 1;
    struct input in = {1, SLOPES_F, gu, dy};
    kt_run_plain(run_bwd, &in, (float *[KT_OUTS]){dgu});
    kt_check_slopes(&(struct kt_slopes){loss_of, &in, gu, 2 * SLOPES_F, dgu, 0.00390625f, 2e-4, 1});
}

HARNESS_RUN_ALL()
