/* Optimisers: torch's semantics by cases computed by hand; fast against plain over many steps;
 * spans; clipping; how gradients are scaled, and that gradients that are not finite change
 * nothing. */
#include "kernel_test.h"

struct input {
    int64_t n;
    const float *g;
    const struct optim_span *spans;
    int64_t spans_n, step;
    double norm_sq, eps, momentum;
    float clip;
    bool sgd;
};

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct optim_clip clip = {kt_f64(&in->norm_sq), in->clip};
    struct adamw a = {.p = kt_f32(out[0]),
                      .g = kt_f32(in->g),
                      .m = kt_f32(out[1]),
                      .v = kt_f32(out[2]),
                      .spans = in->spans,
                      .spans_n = in->spans_n,
                      .clip = clip,
                      .lr = 6e-4,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = in->eps,
                      .step = in->step};
    struct sgd b = {.p = kt_f32(out[0]),
                    .g = kt_f32(in->g),
                    .m = kt_f32(out[1]),
                    .spans = in->spans,
                    .spans_n = in->spans_n,
                    .clip = clip,
                    .lr = 6e-4,
                    .momentum = in->momentum,
                    .step = in->step};
    return in->sgd ? op->sgd(s, &b) : op->adamw(s, &a);
}

static void fast_is_true(void **state)
{
    (void)state;
    static const struct optim_span spans[] = {
        {3, 100, 0.1f}, {103, 1, 0}, {110, 70000, 0.01f}, {70200, 137, 0}};
    int64_t n = 70400;
    float *p = kt_floats(n, KT_RANDOM, 1), *g = kt_floats(n, KT_RANDOM, 2),
          *m = kt_floats(n, KT_RANDOM, 3);
    float *v = kt_floats(n, KT_RANDOM, 4);
    for (int64_t i = 0; i < n; i++)
        v[i] = v[i] * v[i] * 1e-3f, m[i] *= 1e-2f, g[i] *= i % 7 ? 1e-2f : 1e-9f;
    for (int form = 0; form < 8; form++) {
        struct input in = {.n = n,
                           .g = g,
                           .spans = spans,
                           .spans_n = 4,
                           .step = form & 1 ? 1000 : 1,
                           .norm_sq = 100,
                           .eps = 1e-8,
                           .momentum = form & 2 ? 0.9 : 0,
                           .clip = form & 2 ? 1 : 0,
                           .sgd = form & 4};
        kt_check(
            &(struct kt_case){in.sgd ? "sgd" : "adamw", run, &in, {p, m, v}, {n, n, n}, 1e-13});
    }
    float *all[] = {p, g, m, v};
    for (int i = 0; i < 4; i++)
        kt_free(all[i]);
}

static void outside_spans_is_left_alone(void **state)
{
    (void)state;
    static const struct optim_span spans[] = {{5, 20, 0.1f}, {40, 3, 0}};
    for (int level = 0; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, 2);
        if (!d->dev)
            continue;
        float *p = kt_floats(50, KT_ONES, 0), *m = kt_floats(50, KT_ONES, 0),
              *v = kt_floats(50, KT_ONES, 0);
        float *g = kt_floats(50, KT_ONES, 0);
        struct input in = {.n = 50, .g = g, .spans = spans, .spans_n = 2, .step = 1, .eps = 1e-8};
        kt_ok(run(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){p, m, v}));
        for (int i = 0; i < 50; i++) {
            bool is_in = (i >= 5 && i < 25) || (i >= 40 && i < 43);
            assert_true((p[i] != 1) == is_in && (i == 0 || m[i] == 1)); /* m: 0.9·1 + 0.1·1 */
        }
        float *all[] = {p, g, m, v};
        for (int i = 0; i < 4; i++)
            kt_free(all[i]);
    }
}

#define NEAR(got, want)                                                                        \
    do {                                                                                       \
        if (!(fabs((double)(got) - (want)) <= 2e-7 * (1e-3 + fabs(want))))                     \
            fail_msg("line %d, level %d: got %.9g, want %.9g", __LINE__, level, (double)(got), \
                     (double)(want));                                                          \
    } while (0)

/* p 1, g 0.5, lr 0.1, wd 0.2. Step 1: m = 0.05, v = 0.00025; corrected 0.5 and 0.25: p = 1·0.98 -
 * 0.1·0.5/(0.5+1e-8). Step 2, g = -1: m = -0.055, v = 0.00124975; corrected by 0.19 and
 * 0.001999. */
static void adamw_by_hand(void **state)
{
    (void)state;
    struct optim_span span = {0, 1, 0.2f};
    for (int level = 0; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, 1);
        if (!d->dev)
            continue;
        float p = 1, g = 0.5f, m = 0, v = 0;
        struct adamw a = {.p = kt_f32(&p),
                          .g = kt_f32(&g),
                          .m = kt_f32(&m),
                          .v = kt_f32(&v),
                          .spans = &span,
                          .spans_n = 1,
                          .lr = 0.1,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .eps = 1e-8,
                          .step = 1};
        kt_ok(dev_op(d->dev)->adamw(d->stream, &a));
        NEAR(p, 0.98 - 0.1 * 0.5 / (0.5 + 1e-8));
        NEAR(m, 0.05);
        NEAR(v, 0.00025);
        g = -1, a.step = 2;
        kt_ok(dev_op(d->dev)->adamw(d->stream, &a));
        double m2 = 0.9 * 0.05 - 0.1, v2 = 0.999 * 0.00025 + 0.001;
        NEAR(m, m2);
        NEAR(v, v2);
        NEAR(p, 0.88000000200 * 0.98 - 0.1 * (m2 / 0.19) / (sqrt(v2 / 0.001999) + 1e-8));
    }
}

/* Clipping: √norm_sq = 4, clip 1: g·1/(4+1e-6); a norm below the limit changes nothing. */
static void sgd_by_hand(void **state)
{
    (void)state;
    struct optim_span span = {0, 1, 0.5f};
    for (int level = 0; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, 1);
        if (!d->dev)
            continue;
        float p = 2, g = 3, m = NAN; /* step 1 does not look at m */
        double norm_sq = 16;
        struct sgd a = {.p = kt_f32(&p),
                        .g = kt_f32(&g),
                        .m = kt_f32(&m),
                        .spans = &span,
                        .spans_n = 1,
                        .clip = {kt_f64(&norm_sq), 1},
                        .lr = 0.1,
                        .momentum = 0.9,
                        .step = 1};
        kt_ok(dev_op(d->dev)->sgd(d->stream, &a));
        double m1 = 3 / (4 + 1e-6) + 0.5 * 2, p1 = 2 - 0.1 * m1;
        NEAR(m, m1);
        NEAR(p, p1);
        norm_sq = 0.25, a.step = 2;
        kt_ok(dev_op(d->dev)->sgd(d->stream, &a));
        double m2 = 0.9 * m1 + 3 + 0.5 * p1;
        NEAR(m, m2);
        NEAR(p, p1 - 0.1 * m2);
        a.momentum = 0, a.m.data = NULL, p = 1;
        kt_ok(dev_op(d->dev)->sgd(d->stream, &a));
        NEAR(p, 1 - 0.1 * 3.5);
    }
}

/* grad_scale_of — out of `grad_scale`, for squares and a loss. A real GPU does not reach constants
 * (tests/gpu/real.c), so it gets a copy. */
static enum status grad_scale_of(struct kt_device *d, const double squares[3], double loss,
                                 double clip, double loss_scale, double out[2])
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

/* The last first: 1e-16 + 1e-16 counts beside 1, 1 + 1e-16 twice would not. With a loss scale of 4
 * a sum of 64 is a norm of 2, which a clip of 1 halves: so 8 is told, squared, less what the
 * optimiser adds. */
static void grad_scale_by_hand(void **state)
{
    (void)state;
    static const double tiny[] = {1, 1e-16, 1e-16}, sum[] = {15, 0.25, 48.75}, none[] = {0, 0, 0};
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int level = 0; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, 2);
        double out[2], keep = 1 / (2 + 1e-6), root = 4 / keep - 1e-6;
        if (!d->dev)
            continue;
        kt_ok(grad_scale_of(d, tiny, 3, 1, 0, out));
        assert_true(out[0] == 1 + 2e-16 && out[0] > 1 && out[1] == out[0]);
        kt_ok(grad_scale_of(d, sum, 3, 1, 4, out));
        assert_true(out[0] == root * root && out[1] == 64);
        kt_ok(grad_scale_of(d, sum, 3, 0, 4, out));
        assert_true(out[0] == (4 - 1e-6) * (4 - 1e-6) && out[1] == 64);
        kt_ok(grad_scale_of(d, none, 0, 1, 65536, out));
        assert_true(out[0] == (65536 - 1e-6) * (65536 - 1e-6) && out[1] == 0);
        for (int i = 0; i < 9; i++) {
            const double squares[] = {1, i % 3 == 1 ? bad[i / 3] : 4, i % 3 == 2 ? bad[i / 3] : 2};
            kt_ok(grad_scale_of(d, squares, i % 3 == 0 ? bad[i / 3] : 1, 1, i & 1 ? 2 : 0, out));
            assert_true(isnan(out[0]) && isfinite(out[1]) == (i % 3 == 0));
        }
    }
}

/* Bit for bit, by every way through the kernels: whole groups, the ends of runs; with and without a
 * limit. */
static void what_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    enum { N = 3000 };
    static const struct optim_span spans[] = {{3, 100, 0.1f}, {103, 1, 0}, {110, 2800, 0.01f}};
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    float *g = kt_floats(N, KT_RANDOM, 2), *kept[3], *now[KT_OUTS] = {NULL};
    for (int i = 0; i < 3; i++)
        kept[i] = kt_floats(N, KT_RANDOM, 3 + (uint64_t)i),
        now[i] = kt_floats(N, KT_RANDOM, 3 + (uint64_t)i);
    g[500] = NAN;
    for (int level = 0; level < CPU_ISA_N; level++)
        for (int form = 0; form < 24; form++) {
            struct kt_device *d = kt_device(level, 3);
            struct input in = {.n = N,
                               .g = g,
                               .spans = spans,
                               .spans_n = 3,
                               .step = form & 1 ? 5 : 1,
                               .norm_sq = bad[form / 8],
                               .eps = 1e-8,
                               .momentum = 0.9,
                               .clip = form & 2 ? 1 : 0,
                               .sgd = form & 4};
            if (!d->dev)
                continue;
            kt_ok(run(dev_op(d->dev), d->stream, &in, now));
            for (int i = 0; i < 3; i++)
                assert_memory_equal(now[i], kept[i], N * sizeof(float));
        }
    for (int i = 0; i < 3; i++)
        kt_free(kept[i]), kt_free(now[i]);
    kt_free(g);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fast_is_true),       cmocka_unit_test(outside_spans_is_left_alone),
    cmocka_unit_test(adamw_by_hand),      cmocka_unit_test(sgd_by_hand),
    cmocka_unit_test(grad_scale_by_hand), cmocka_unit_test(what_is_not_finite_changes_nothing),
};
HARNESS_MAIN(tests)
