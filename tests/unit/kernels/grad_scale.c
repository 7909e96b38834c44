/* The factor of gradients by hand: clipping, the loss scale, the order of the sum, and NaN where a
 * square or the loss is not finite. */
#include "kernels/kernel_test.h"

#include "kernels/grad_scale.h"

/* A real GPU does not reach constants (tests/gpu/real.c), so it gets copies. */
static enum status run(struct kt_device *d, const double squares[3], double loss, double clip,
                       double loss_scale, double out[2])
{
    double copy[3] = {squares[0], squares[1], squares[2]};
    struct grad_scale a = {.out = kt_f64(out),
                           .squares = kt_f64(copy),
                           .loss = kt_f64(&loss),
                           .squares_n = 3,
                           .clip = clip,
                           .loss_scale = loss_scale};
    return dev_op(d->dev)->grad_scale(d->stream, &a);
}

/* sum has the norm 8, and 2 with a loss scale of 4. The last square is added first: 1e-16 + 1e-16
 * counts beside 1, 1 + 1e-16 twice would not. */
TEST(factors_by_hand)
{
    static const double tiny[] = {1, 1e-16, 1e-16}, sum[] = {15, 0.25, 48.75}, none[] = {0, 0, 0};
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        double out[2];
        kt_ok(run(d, tiny, 3, 0, 0, out));
        assert_true(out[0] == 1 && out[1] == 1 + 2e-16 && out[1] > 1);
        kt_ok(run(d, sum, 3, 1, 0, out));
        assert_true(out[0] == 1 / (8 + 1e-6) && out[1] == 64);
        kt_ok(run(d, sum, 3, 9, 0, out));
        assert_true(out[0] == 1);
        kt_ok(run(d, sum, 3, 1, 4, out));
        assert_true(fabs(out[0] * 4 * (2 + 1e-6) - 1) < 1e-15 && out[1] == 64);
        kt_ok(run(d, sum, 3, 0, 4, out));
        assert_true(out[0] == 0.25);
        kt_ok(run(d, none, 0, 1, 65536, out));
        assert_true(out[0] == 0x1p-16 && out[1] == 0);
    }
}

TEST(what_is_not_finite_gives_nan)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int level = 0; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, 2);
        for (int i = 0; d->dev && i < 9; i++) {
            double out[2], loss = i % 3 == 0 ? bad[i / 3] : 1;
            const double squares[] = {1, i % 3 == 1 ? bad[i / 3] : 4, i % 3 == 2 ? bad[i / 3] : 2};
            kt_ok(run(d, squares, loss, 1, i & 1 ? 2 : 0, out));
            assert_true(isnan(out[0]) && isfinite(out[1]) == (i % 3 == 0));
        }
    }
}

HARNESS_RUN_ALL()
