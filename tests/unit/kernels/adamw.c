/* Optimisers: torch's semantics by cases computed by hand; fast against plain over many steps;
 * spans; the gradients' factor, and that a factor of NaN changes nothing; sums of bits. */
#include "kernels/kernel_test.h"

#include "base/rand.h"

struct input {
    int64_t n;
    const float *g;
    const struct optim_span *spans;
    int64_t spans_n, step;
    double grad_scale, eps, momentum;
    bool sgd;
};

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct adamw a = {.p = kt_f32(out[0]),
                      .g = kt_f32(in->g),
                      .m = kt_f32(out[1]),
                      .v = kt_f32(out[2]),
                      .spans = in->spans,
                      .spans_n = in->spans_n,
                      .grad_scale = kt_f64(&in->grad_scale),
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
                    .grad_scale = kt_f64(&in->grad_scale),
                    .lr = 6e-4,
                    .momentum = in->momentum,
                    .step = in->step};
    return in->sgd ? op->sgd(s, &b) : op->adamw(s, &a);
}

TEST(fast_matches_plain)
{
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
                           .grad_scale = form & 2 ? 0.1 : 1,
                           .eps = 1e-8,
                           .momentum = form & 2 ? 0.9 : 0,
                           .sgd = form & 4};
        kt_check(
            &(struct kt_case){in.sgd ? "sgd" : "adamw", run, &in, {p, m, v}, {n, n, n}, 1e-13});
    }
    float *all[] = {p, g, m, v};
    for (int i = 0; i < 4; i++)
        kt_free(all[i]);
}

TEST(outside_spans_is_left_alone)
{
    static const struct optim_span spans[] = {{5, 20, 0.1f}, {40, 3, 0}};
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        float *p = kt_floats(50, KT_ONES, 0), *m = kt_floats(50, KT_ONES, 0),
              *v = kt_floats(50, KT_ONES, 0);
        float *g = kt_floats(50, KT_ONES, 0);
        struct input in = {
            .n = 50, .g = g, .spans = spans, .spans_n = 2, .step = 1, .grad_scale = 1, .eps = 1e-8};
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

#define NEAR(got, want)                                                                            \
    do {                                                                                           \
        KT_SEEN("a hand-computed step", fabs((double)(got) - (want)) / (1e-3 + fabs(want)), 2e-7); \
        if (!(fabs((double)(got) - (want)) <= 2e-7 * (1e-3 + fabs(want))))                         \
            fail_msg("line %d, level %d: got %.9g, want %.9g", __LINE__, d->level, (double)(got),  \
                     (double)(want));                                                              \
    } while (0)

/* p 1, g 0.5, lr 0.1, wd 0.2. Step 1: m = 0.05, v = 0.00025; corrected 0.5 and 0.25: p = 1·0.98 -
 * 0.1·0.5/(0.5+1e-8). Step 2, g = -1: m = -0.055, v = 0.00124975; corrected by 0.19 and
 * 0.001999. */
TEST(adamw_by_hand)
{
    struct optim_span span = {0, 1, 0.2f};
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
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

/* With a factor of 1/4, and without one. */
TEST(sgd_by_hand)
{
    struct optim_span span = {0, 1, 0.5f};
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        float p = 2, g = 3, m = NAN; /* step 1 does not look at m */
        double scale = 0.25;
        struct sgd a = {.p = kt_f32(&p),
                        .g = kt_f32(&g),
                        .m = kt_f32(&m),
                        .spans = &span,
                        .spans_n = 1,
                        .grad_scale = kt_f64(&scale),
                        .lr = 0.1,
                        .momentum = 0.9,
                        .step = 1};
        kt_ok(dev_op(d->dev)->sgd(d->stream, &a));
        double m1 = 3 * 0.25 + 0.5 * 2, p1 = 2 - 0.1 * m1;
        NEAR(m, m1);
        NEAR(p, p1);
        a.grad_scale.data = NULL, a.step = 2;
        kt_ok(dev_op(d->dev)->sgd(d->stream, &a));
        double m2 = 0.9 * m1 + 3 + 0.5 * p1;
        NEAR(m, m2);
        NEAR(p, p1 - 0.1 * m2);
        a.momentum = 0, a.m.data = NULL, p = 1;
        kt_ok(dev_op(d->dev)->sgd(d->stream, &a));
        NEAR(p, 1 - 0.1 * 3.5);
    }
}

/* Bit for bit, by every way through the kernels: whole groups, the ends of runs. */
TEST(a_factor_of_nan_changes_nothing)
{
    enum { N = 3000 };
    static const struct optim_span spans[] = {{3, 100, 0.1f}, {103, 1, 0}, {110, 2800, 0.01f}};
    float *g = kt_floats(N, KT_RANDOM, 2), *kept[3], *now[KT_OUTS] = {NULL};
    for (int i = 0; i < 3; i++)
        kept[i] = kt_floats(N, KT_RANDOM, 3 + (uint64_t)i),
        now[i] = kt_floats(N, KT_RANDOM, 3 + (uint64_t)i);
    g[500] = NAN;
    for (int level = 0; level < CPU_ISA_N; level++)
        for (int form = 0; form < 8; form++) {
            struct kt_device *d = kt_device(level, 3);
            struct input in = {.n = N,
                               .g = g,
                               .spans = spans,
                               .spans_n = 3,
                               .step = form & 1 ? 5 : 1,
                               .grad_scale = NAN,
                               .eps = 1e-8,
                               .momentum = 0.9,
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

/* The copy has the bits of casting p after the update, and no others; NaN leaves it alone. */
TEST(copy_is_the_cast_of_p)
{
    enum { N = 3000 };
    static const struct optim_span spans[] = {{3, 100, 0.1f}, {103, 1, 0}, {110, 2800, 0.01f}};
    float *g = kt_floats(N, KT_RANDOM, 2);
    for (int level = 0; level < CPU_ISA_N; level++)
        for (int form = 0; form < 8; form++) {
            struct kt_device *d = kt_device(level, 3);
            enum dtype dtype = form & 1 ? DTYPE_BF16 : DTYPE_F16;
            double scale = form & 2 ? 1 : (double)NAN;
            uint16_t *got = malloc((N + 1) * sizeof *got), *want = malloc(N * sizeof *want);
            float *p = kt_floats(N, KT_RANDOM, 3), *m = kt_floats(N, KT_RANDOM, 4),
                  *v = kt_floats(N, KT_ONES, 0);
            assert_true(got && want);
            int first = form & 4 ? 1 : 0; /* also where groups of four are not aligned */
            memset(got, 0xa5, (N + 1) * sizeof *got);
            memset(want, 0xa5, N * sizeof *want);
            struct adamw a = {.p = kt_f32(p),
                              .g = kt_f32(g),
                              .m = kt_f32(m),
                              .v = kt_f32(v),
                              .copy = {got + first, dtype},
                              .spans = spans,
                              .spans_n = 3,
                              .grad_scale = kt_f64(&scale),
                              .lr = 0.1,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .step = 2};
            if (d->dev)
                kt_ok(dev_op(d->dev)->adamw(d->stream, &a));
            for (int i = 0; i < 3 && d->dev && form & 2; i++)
                kt_ok(dev_op(kt_plain()->dev)
                          ->cast(kt_plain()->stream, &(struct cast){{want + spans[i].offset, dtype},
                                                                    kt_f32(p + spans[i].offset),
                                                                    spans[i].elems}));
            if (d->dev)
                assert_memory_equal(got + first, want, N * sizeof *got);
            free(got);
            free(want);
            kt_free(p), kt_free(m), kt_free(v);
        }
    kt_free(g);
}

enum { SUMS_N = 200100, SUMS_ARRAYS = 3 };

/* A state with every kind of bits: numbers of all sizes, infinities, quiet and signalling NaN. */
static void fill_bits(float *to, uint64_t seed)
{
    for (int i = 0; i < SUMS_N; i++) {
        uint32_t bits = (uint32_t)rand_u64(seed, RAND_STREAM(TEST, 0), (uint64_t)i);
        memcpy(to + i, &bits, sizeof bits);
    }
}

static uint32_t sum_of(const float *x, const struct optim_span *spans, int64_t spans_n)
{
    uint32_t sum = 0, bits;
    for (int64_t s = 0; s < spans_n; s++)
        for (int64_t i = spans[s].offset; i < spans[s].offset + spans[s].elems; i++) {
            memcpy(&bits, x + i, sizeof bits);
            sum += bits;
        }
    return sum;
}

/* One update of a state, by AdamW, or SGD with or without momentum. */
struct summed {
    float *of[SUMS_ARRAYS]; /* p, m, v */
    const float *g;
    const struct optim_span *spans;
    int64_t spans_n;
    int form; /* 0: AdamW, 1: SGD with momentum, 2: without */
};

static void update(struct kt_device *d, const struct summed *s, double scale,
                   struct optim_sums *sums)
{
    struct adamw a = {.p = kt_f32(s->of[0]),
                      .g = kt_f32(s->g),
                      .m = kt_f32(s->of[1]),
                      .v = kt_f32(s->of[2]),
                      .spans = s->spans,
                      .spans_n = s->spans_n,
                      .grad_scale = kt_f64(&scale),
                      .lr = 0.1,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 0, /* lanes behind an end become NaN */
                      .step = 3,
                      .sums = sums};
    struct sgd b = {.p = a.p,
                    .g = a.g,
                    .m = a.m,
                    .spans = s->spans,
                    .spans_n = s->spans_n,
                    .grad_scale = a.grad_scale,
                    .lr = 0.1,
                    .momentum = s->form == 1 ? 0.9 : 0,
                    .step = 3,
                    .sums = sums};
    const struct op_table *op = dev_op(d->dev);
    kt_ok(s->form == 0 ? op->adamw(d->stream, &a) : op->sgd(d->stream, &b));
}

/* check_sums — they are added to what is there, and the update has the bits of one without sums. */
static void check_sums(struct kt_device *d, const struct summed *s, const struct summed *other)
{
    const int summed_n = s->form == 0 ? 3 : s->form == 1 ? 2 : 1;
    struct optim_sums sums = {{1, 2, 3}, {4, 5, 6}, 7};
    uint32_t read[SUMS_ARRAYS] = {1, 2, 3}, written[SUMS_ARRAYS] = {4, 5, 6};
    for (int i = 0; i < SUMS_ARRAYS; i++) {
        fill_bits(s->of[i], (uint64_t)i);
        fill_bits(other->of[i], (uint64_t)i);
        read[i] += i < summed_n ? sum_of(s->of[i], s->spans, s->spans_n) : 0;
    }
    update(d, s, NAN, &sums);
    assert_int_equal(sums.updates, 7);
    update(d, s, 0.5, &sums);
    update(d, other, 0.5, NULL);
    assert_true(sums.updates > 7);
    for (int i = 0; i < SUMS_ARRAYS; i++) {
        written[i] += i < summed_n ? sum_of(s->of[i], s->spans, s->spans_n) : 0;
        assert_int_equal(sums.read[i], read[i]);
        assert_int_equal(sums.written[i], written[i]);
        assert_memory_equal(s->of[i], other->of[i], SUMS_N * sizeof(float));
    }
}

/* Spans of every length up to two vectors of the widest level, at every alignment; and one of more
 * ranges than threads. */
TEST(sums_of_bits)
{
    struct optim_span spans[64];
    struct summed s = {.spans = spans}, other = {.spans = spans};
    int64_t at = 1;
    for (int i = 0; i < 63; at += ++i + 1)
        spans[i] = (struct optim_span){at, i % 33, 0.1f * (float)(i % 2)};
    spans[63] = (struct optim_span){at, SUMS_N - at - 1, 0.1f};
    s.g = other.g = kt_floats(SUMS_N, KT_RANDOM, 9);
    for (int i = 0; i < SUMS_ARRAYS; i++)
        s.of[i] = kt_floats(SUMS_N, KT_ONES, 0), other.of[i] = kt_floats(SUMS_N, KT_ONES, 0);
    for (int level = 0; level < CPU_ISA_N; level++)
        for (int threads = 1; threads <= 3; threads++)
            for (s.form = 0; s.form < 3; s.form++) {
                struct kt_device *d = kt_device(level, threads);
                other.form = s.form;
                s.spans_n = other.spans_n = threads == 1 ? 63 : 64;
                if (d->dev)
                    check_sums(d, &s, &other);
            }
    for (int i = 0; i < SUMS_ARRAYS; i++)
        kt_free(s.of[i]), kt_free(other.of[i]);
    kt_free((float *)(uintptr_t)s.g);
}

HARNESS_RUN_ALL()
