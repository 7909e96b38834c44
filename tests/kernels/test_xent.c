/* Cross-entropy of both heads: fast against plain, ignored targets, extreme logits, and gradients
 * against finite differences. */
#include "kernel_test.h"

struct input {
    int64_t n, v, stride;
    const int32_t *targets;
    bool want_grad;
};

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct xent a = {kt_f32(out[0]), kt_f32(out[1]), kt_i32(in->targets), in->n, in->v,
                     in->stride,     0.125f,         in->want_grad};
    return op->xent(s, &a);
}

static int32_t *targets_new(int64_t n, int64_t v)
{
    int32_t *targets = malloc((size_t)n * sizeof *targets);
    assert_non_null(targets);
    for (int64_t i = 0; i < n; i++)
        targets[i] = i % 5 == 3 ? -100 : (int32_t)(rand_u32(1, 1, (uint64_t)i) % (uint32_t)v);
    return targets;
}

static void check(int64_t n, int64_t v, int64_t pad, enum kt_fill fill, float gain)
{
    int64_t stride = v + pad;
    float *logits = kt_floats(n * stride, fill, 1), *losses = kt_floats(n, KT_ONES, 0);
    int32_t *targets = targets_new(n, v);
    for (int64_t i = 0; i < n * stride; i++)
        logits[i] *= gain;
    for (int want_grad = 0; want_grad < 2; want_grad++) {
        struct input in = {n, v, stride, targets, want_grad};
        kt_check(&(struct kt_case){"xent", run, &in, {logits, losses}, {n * stride, n}, 1e-12});
    }
    free(targets);
    kt_free(logits);
    kt_free(losses);
}

static void fast_matches_plain(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 0},    {3, 2, 1},    {7, 33, 0},    {5, 1024, 8},
                                        {6, 1025, 7}, {4, 5003, 0}, {3, 50257, 47}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int fill = KT_RANDOM; fill <= KT_ONES; fill++)
            check(shapes[i][0], shapes[i][1], shapes[i][2], (enum kt_fill)fill, 3);
    check(9, 3000, 0, KT_RANDOM, 1e4f);
    check(9, 3000, 0, KT_RANDOM, 1e-20f);
}

/* Logits of ±1e4, -inf for what cannot be chosen, and a row that is not a number: as torch does. */
static void extreme_rows(void **state)
{
    (void)state;
    for (int level = 0; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, 2);
        if (!d->dev)
            continue;
        float x[3][2000], losses[3];
        int32_t targets[3] = {0, 1999, 5};
        for (int i = 0; i < 2000; i++)
            x[0][i] = -1e4f, x[1][i] = -INFINITY, x[2][i] = 1;
        x[0][0] = 1e4f, x[1][1999] = 0, x[1][3] = 0, x[2][1500] = NAN;
        struct xent a = {kt_f32(x[0]), kt_f32(losses), kt_i32(targets), 3, 2000, 2000, 1, true};
        kt_ok(dev_op(d->dev)->xent(d->stream, &a));
        assert_true(losses[0] == 0 && x[0][0] == 0 && x[0][1999] == 0);
        assert_true(fabs(losses[1] - log(2)) < 1e-6 && fabs(x[1][3] - 0.5) < 1e-6 &&
                    fabs(x[1][1999] + 0.5) < 1e-6);
        assert_true(x[1][4] == 0 && isnan(losses[2]));
    }
}

static void gradient_matches_finite_differences(void **state)
{
    (void)state;
    int32_t targets[4] = {2, -1, 0, 6};
    float *logits = kt_floats(28, KT_RANDOM, 9), grad[28], losses[4];
    memcpy(grad, logits, sizeof grad);
    struct xent a = {kt_f32(grad), kt_f32(losses), kt_i32(targets), 4, 7, 7, 0.5f, true};
    kt_ok(dev_op(kt_plain()->dev)->xent(kt_plain()->stream, &a));
    a.logits = kt_f32(logits), a.want_grad = false;
    for (int i = 0; i < 28; i++) {
        float at = logits[i], sum[2] = {0};
        for (int side = 0; side < 2; side++) {
            logits[i] = at + (side ? -0.015625f : 0.015625f);
            kt_ok(dev_op(kt_plain()->dev)->xent(kt_plain()->stream, &a));
            sum[side] = losses[i / 7];
        }
        logits[i] = at;
        double slope = 0.5 * ((double)sum[0] - sum[1]) * 32;
        if (fabs(slope - grad[i]) > 1e-4)
            fail_msg("element %d: slope %g, gradient %g", i, slope, (double)grad[i]);
    }
    kt_free(logits);
}

struct qa_input {
    int64_t b, t;
    const float *logits;
    const int32_t *starts, *ends;
    int form; /* 0: gradient apart; 1: in place of the logits; 2: not wanted */
};

static enum status run_qa(const struct op_table *op, struct stream *s, void *arg,
                          float *out[KT_OUTS])
{
    const struct qa_input *in = arg;
    struct qa_xent a = {.losses = kt_f32(out[0]),
                        .logits = kt_f32(in->form == 1 ? out[1] : in->logits),
                        .starts = kt_i32(in->starts),
                        .ends = kt_i32(in->ends),
                        .b = in->b,
                        .t = in->t,
                        .scale_start = 0.25f,
                        .scale_end = 0.5f};
    if (in->form < 2)
        a.dlogits = kt_f32(out[1]);
    return op->qa_xent(s, &a);
}

static void qa_fast_matches_plain(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {2, 3}, {5, 17}, {4, 384}, {3, 1500}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t b = shapes[i][0], t = shapes[i][1];
        int32_t starts[5] = {0, (int32_t)t, -7, (int32_t)t - 1, 1000000},
                ends[5] = {(int32_t)t - 1, 0, (int32_t)t + 1, 0, -1};
        float *logits = kt_floats(b * t * 2, KT_RANDOM, 3), *losses = kt_floats(b * 2, KT_ONES, 0);
        for (int form = 0; form < 3; form++) {
            struct qa_input in = {b, t, logits, starts, ends, form};
            kt_check(&(struct kt_case){
                "qa_xent", run_qa, &in, {losses, logits}, {b * 2, b * t * 2}, 1e-12});
        }
        kt_free(logits);
        kt_free(losses);
    }
}

/* Labels beyond either side: below 0 counts as 0, T and beyond is ignored; and the slope, as
 * above. */
static void qa_labels_and_gradient(void **state)
{
    (void)state;
    int32_t starts[3] = {-5, 9, 2}, ends[3] = {0, 3, 4};
    float *logits = kt_floats(3 * 5 * 2, KT_RANDOM, 4), grad[30], losses[6];
    struct qa_input in = {3, 5, logits, starts, ends, 0};
    kt_ok(
        run_qa(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){losses, grad}));
    assert_true(losses[2] == 0); /* sample 1's start lies past the text */
    for (int i = 0; i < 30; i++) {
        int loss_i = i / 10 * 2 + i % 2;
        float at = logits[i], side[2], unused[30];
        for (int k = 0; k < 2; k++) {
            logits[i] = at + (k ? -0.015625f : 0.015625f);
            kt_ok(run_qa(dev_op(kt_plain()->dev), kt_plain()->stream, &in,
                         (float *[KT_OUTS]){losses, unused}));
            side[k] = losses[loss_i];
        }
        logits[i] = at;
        double slope = (i % 2 ? 0.5 : 0.25) * ((double)side[0] - side[1]) * 32;
        if (fabs(slope - grad[i]) > 1e-4)
            fail_msg("element %d: slope %g, gradient %g", i, slope, (double)grad[i]);
    }
    kt_free(logits);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fast_matches_plain),
    cmocka_unit_test(extreme_rows),
    cmocka_unit_test(gradient_matches_finite_differences),
    cmocka_unit_test(qa_fast_matches_plain),
    cmocka_unit_test(qa_labels_and_gradient),
};
HARNESS_MAIN(tests)
