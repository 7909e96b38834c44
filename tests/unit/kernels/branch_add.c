/* The end of a branch: fast against plain, with and without bias and dropout, in place of either
 * input; the same sum as the epilogue of a product; ranges of the rows draw the numbers of the
 * whole. */
#include "kernels/kernel_test.h"

enum overlap { APART, OVER_X, OVER_RESIDUAL, OVERLAPS };

struct input {
    int64_t n, c;
    const float *x, *b, *residual;
    struct dropout d;
    enum overlap overlap;
};

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct branch_add a = {.y = kt_f32(out[0]),
                           .x = kt_f32(in->overlap == OVER_X ? out[0] : in->x),
                           .b = kt_f32(in->b),
                           .residual = kt_f32(in->overlap == OVER_RESIDUAL ? out[0] : in->residual),
                           .n = in->n,
                           .c = in->c,
                           .dropout = in->d};
    return op->branch_add(s, &a);
}

static void check(int64_t n, int64_t c, float p, bool has_bias, uint64_t shift)
{
    float *x = kt_floats(n * c, KT_RANDOM, 1), *b = kt_floats(c, KT_RANDOM, 2),
          *residual = kt_floats(n * c, KT_RAMP, 3);
    for (int overlap = 0; overlap < OVERLAPS; overlap++) {
        struct input in = {n, c, x, has_bias ? b : NULL, residual, kt_dropout(p), overlap};
        in.d.offset += shift;
        kt_check(&(struct kt_case){
            "branch_add", run, &in, {overlap == OVER_RESIDUAL ? residual : x}, {n * c}, 1e-13});
    }
    kt_free(x);
    kt_free(b);
    kt_free(residual);
}

TEST(fast_matches_plain)
{
    static const int64_t shapes[][2] = {{0, 4}, {1, 1}, {3, 5}, {7, 257}, {33, 768}, {2, 20000}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 8; form++) /* the shift leaves the four numbers of a block */
            check(shapes[i][0], shapes[i][1], form & 1 ? 0.2f : 0, form & 2, form & 4 ? 1 : 0);
}

/* A product with the identity ends the same way. */
TEST(it_is_the_end_of_a_product)
{
    float *x = kt_floats(216, KT_RANDOM, 1), *b = kt_floats(24, KT_RANDOM, 2),
          *residual = kt_floats(216, KT_RANDOM, 3), one[576] = {0}, want[216], got[216];
    for (int i = 0; i < 24; i++)
        one[i * 25] = 1;
    struct input in = {9, 24, x, b, residual, kt_dropout(0.3f), APART};
    struct matmul_fwd product = {.y = kt_f32(want),
                                 .x = kt_f32(x),
                                 .w = kt_f32(one),
                                 .b = kt_f32(b),
                                 .residual = kt_f32(residual),
                                 .n = 9,
                                 .in = 24,
                                 .out = 24,
                                 .dropout = in.d};
    kt_ok(dev_op(kt_plain()->dev)->matmul_fwd(kt_plain()->stream, &product));
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        kt_ok(run(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){got}));
        assert_true(kt_nmse(got, want, 216) < 1e-13);
    }
    kt_free(x);
    kt_free(b);
    kt_free(residual);
}

/* Rows [first, first + n) with their offset are those rows of one call over all. */
TEST(ranges_draw_the_numbers_of_the_whole)
{
    const int64_t n = 10, c = 37, bounds[] = {0, 3, 10};
    float *x = kt_floats(n * c, KT_RANDOM, 1), *b = kt_floats(c, KT_RANDOM, 2),
          *residual = kt_floats(n * c, KT_RANDOM, 3), whole[370], got[370];
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        struct input in = {n, c, x, b, residual, kt_dropout(0.3f), APART};
        kt_ok(run(dev_op(d->dev), d->stream, &in, (float *[KT_OUTS]){whole}));
        for (int i = 0; i < 2; i++) {
            int64_t at = bounds[i] * c;
            struct input range = {bounds[i + 1] - bounds[i], c,    x + at, b, residual + at,
                                  kt_dropout(0.3f),          APART};
            range.d.offset += (uint64_t)at;
            kt_ok(run(dev_op(d->dev), d->stream, &range, (float *[KT_OUTS]){got + at}));
        }
        assert_memory_equal(got, whole, sizeof whole);
    }
    kt_free(x);
    kt_free(b);
    kt_free(residual);
}

/* A dropped element leaves the residual alone, even where x is not finite. */
TEST(dropped_elements_add_nothing)
{
    float x[64], residual[64], y[64];
    for (int i = 0; i < 64; i++)
        x[i] = i % 2 ? INFINITY : NAN, residual[i] = (float)i;
    struct dropout d = kt_dropout(0.5f);
    for (int level = 0; level < CPU_ISA_N; level++) {
        struct kt_device *on = kt_device(level, 1);
        if (!on->dev)
            continue;
        struct input in = {1, 64, x, NULL, residual, d, APART};
        kt_ok(run(dev_op(on->dev), on->stream, &in, (float *[KT_OUTS]){y}));
        for (int i = 0; i < 64; i++)
            assert_true(dropout_factor(&d, i) == 0 ? y[i] == (float)i : !isfinite(y[i]));
    }
}

HARNESS_RUN_ALL()
