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
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        float x[] = {-3e38f, -INFINITY, 0, 3e38f, INFINITY, NAN, 1e-30f, -15};
        struct input in = {1, 8, 8, 15};
        kt_ok(run(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){x}));
        assert_true(fabs(x[0] / -15.0 - 1) <= FAR_OUT && fabs(x[3] / 15.0 - 1) <= FAR_OUT);
        assert_true(x[1] == -15 && x[2] == 0 && x[4] == 15);
        assert_true(isnan(x[5]) && fabsf(x[6] / 1e-30f - 1) < 1e-6f);
        assert_true(fabs(x[7] + 15 * tanh(1)) < 1e-5);
    }
}

/* Four rows of seven logits; their gradient goes to `grad` if that is wanted. */
struct capped {
    const float *x;
    const int32_t *targets;
    float *grad;
    bool want_grad;
};

static double half_of_losses(void *arg)
{
    const struct capped *c = arg;
    const struct op_table *op = dev_op(kt_plain()->dev);
    float losses[4], room[28], *grad = c->want_grad ? c->grad : room;
    memcpy(grad, c->x, sizeof room);
    kt_ok(op->softcap(kt_plain()->stream, &(struct softcap){kt_f32(grad), 4, 7, 7, 1.5f}));
    kt_ok(op->xent(kt_plain()->stream, &(struct xent){kt_f32(grad),
                                                      kt_f32(losses),
                                                      kt_i32(c->targets),
                                                      4,
                                                      7,
                                                      7,
                                                      0.5f,
                                                      c->want_grad,
                                                      1.5f,
                                                      {0}}));
    return 0.5 * ((double)losses[0] + losses[1] + losses[2] + losses[3]);
}

TEST(gradient_matches_finite_differences)
{
    static const int32_t targets[4] = {2, -1, 0, 6};
    float *x = kt_floats(28, KT_RANDOM, 9), grad[28];
    struct capped c = {x, targets, grad, true};
    for (int i = 0; i < 28; i++)
        x[i] *= 2;
    half_of_losses(&c);
    c.want_grad = false;
    kt_check_slopes(&(struct kt_slopes){half_of_losses, &c, x, 28, grad, 0.015625f, 1e-4, 0});
    kt_free(x);
}

HARNESS_RUN_ALL()
