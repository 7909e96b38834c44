/* Soft cap of logits: fast against plain, far out and near 0, where it must not change a number;
 * the slope that cross-entropy takes against finite differences through both. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n, v, stride;
    float cap;
};

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    return op->softcap(s, &(struct softcap){kt_f32(out[0]), in->n, in->v, in->stride, in->cap});
}

static void check(int64_t n, int64_t v, int64_t pad, enum kt_fill fill, float gain, float cap)
{
    struct input in = {n, v, v + pad, cap};
    float *x = kt_floats(n * in.stride, fill, 1);
    for (int64_t i = 0; i < n * in.stride; i++)
        x[i] *= gain;
    kt_check(&(struct kt_case){"softcap", run, &in, {x}, {n * in.stride}, 1e-12});
    kt_free(x);
}

TEST(fast_matches_plain)
{
    static const int64_t shapes[][3] = {{0, 3, 0},  {1, 1, 0},    {3, 2, 1},   {7, 33, 0},
                                        {5, 64, 8}, {6, 1025, 7}, {3, 5003, 5}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int fill = KT_RANDOM; fill <= KT_ONES; fill++)
            check(shapes[i][0], shapes[i][1], shapes[i][2], (enum kt_fill)fill, 5, 15);
    for (float gain = 1e-20f; gain < 1e20f; gain *= 10)
        check(2, 100, 0, KT_RANDOM, gain, 30);
}

/* The cap itself for an infinite logit. For one that is only far out, tanh is 1 within two units in
 * the last place, CUDA's limit for tanhf (2^-22), and its product with the cap is rounded
 * (2^-24). */
#define FAR_OUT (0x1p-22 + 0x1p-24)

TEST(extremes)
{
    for (int level = 0; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, 1);
        float x[] = {-3e38f, -INFINITY, 0, 3e38f, INFINITY, NAN, 1e-30f, -15};
        struct input in = {1, 8, 8, 15};
        if (!d->dev)
            continue;
        kt_ok(run(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){x}));
        assert_true(fabs(x[0] / -15.0 - 1) <= FAR_OUT && fabs(x[3] / 15.0 - 1) <= FAR_OUT);
        assert_true(x[1] == -15 && x[2] == 0 && x[4] == 15);
        assert_true(isnan(x[5]) && fabsf(x[6] / 1e-30f - 1) < 1e-6f);
        assert_true(fabs(x[7] + 15 * tanh(1)) < 1e-5);
    }
}

/* losses_of — of `rows` rows of seven logits behind a soft cap; grad: their gradient. */
static void losses_of(const float *x, const int32_t *targets, bool want_grad, float *grad,
                      float *losses)
{
    const struct op_table *op = dev_op(kt_plain()->dev);
    memcpy(grad, x, 28 * sizeof *x);
    kt_ok(op->softcap(kt_plain()->stream, &(struct softcap){kt_f32(grad), 4, 7, 7, 1.5f}));
    kt_ok(op->xent(kt_plain()->stream, &(struct xent){kt_f32(grad), kt_f32(losses), kt_i32(targets),
                                                      4, 7, 7, 0.5f, want_grad, 1.5f}));
}

TEST(gradient_matches_finite_differences)
{
    int32_t targets[4] = {2, -1, 0, 6};
    float *x = kt_floats(28, KT_RANDOM, 9), grad[28], losses[4], room[28];
    for (int i = 0; i < 28; i++)
        x[i] *= 2;
    losses_of(x, targets, true, grad, losses);
    for (int i = 0; i < 28; i++) {
        float at = x[i], sum[2] = {0};
        for (int side = 0; side < 2; side++) {
            x[i] = at + (side ? -0.015625f : 0.015625f);
            losses_of(x, targets, false, room, losses);
            sum[side] = losses[i / 7];
        }
        x[i] = at;
        double slope = 0.5 * ((double)sum[0] - sum[1]) * 32;
        if (fabs(slope - grad[i]) > 1e-4)
            fail_msg("element %d: slope %g, gradient %g", i, slope, (double)grad[i]);
    }
    kt_free(x);
}

HARNESS_RUN_ALL()
