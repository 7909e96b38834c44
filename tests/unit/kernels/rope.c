/* Rotary positions: fast against plain, both layouts, the inverse, angles against libm, and the
 * frequencies of Llama 3 as a caller gives them. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n, t, h, hk, d, rot;
    enum attention_layout layout;
    bool inverse;
    float *x, *table;
};

static struct rope_table table_of(float *out, int64_t first, int64_t t, int64_t rot, double theta)
{
    struct rope_table a = {.table = kt_f32(out), .first = first, .t = t, .rot = rot, .scale = 1};
    for (int64_t i = 0; i < rot / 2; i++)
        a.freq[i] = (float)pow(theta, -2.0 * (double)i / (double)rot);
    return a;
}

static struct input input_new(const int64_t s[6], enum attention_layout layout)
{
    struct input in = {s[0], s[1], s[2], s[3], s[4], s[5], layout, false, NULL, NULL};
    in.x = kt_floats(in.n * (in.h + 2 * in.hk) * in.d, KT_RANDOM, 1);
    in.table = kt_floats(in.t * in.rot, KT_ONES, 0);
    struct rope_table a = table_of(in.table, 0, in.t, in.rot, 1e4);
    kt_ok(dev_op(kt_plain()->dev)->rope_table(kt_plain()->stream, &a));
    return in;
}

static void input_free(struct input *in)
{
    kt_free(in->x);
    kt_free(in->table);
}

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct rope a = {.x = kt_f32(out[0]),
                     .table = kt_f32(in->table),
                     .n = in->n,
                     .t = in->t,
                     .h = in->h,
                     .hk = in->hk,
                     .d = in->d,
                     .rot = in->rot,
                     .layout = in->layout,
                     .inverse = in->inverse};
    return op->rope(s, &a);
}

/* n, t, h, hk, d, rot */
static const int64_t shapes[][6] = {
    {1, 1, 1, 1, 2, 2},     {7, 3, 4, 2, 10, 10}, {20, 20, 3, 1, 64, 16}, {33, 40, 8, 2, 128, 128},
    {64, 16, 6, 6, 80, 20}, {0, 4, 2, 2, 16, 16}, {3, 2, 1, 1, 300, 256}, {50, 7, 9, 3, 96, 62}};

TEST(fast_matches_plain)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 4; form++) {
            bool is_heads = form & 2;
            if (is_heads && shapes[i][2] != shapes[i][3])
                continue;
            struct input in =
                input_new(shapes[i], is_heads ? ATTENTION_LAYOUT_HEADS : ATTENTION_LAYOUT_QKV);
            int64_t elems = in.n * (in.h + 2 * in.hk) * in.d;
            in.inverse = form & 1;
            kt_check(&(struct kt_case){"rope", run, &in, {in.x}, {elems}, 1e-12});
            input_free(&in);
        }
}

/* Values, and elements from R on, keep their bits; queries and keys change. */
TEST(only_queries_and_keys_rotate)
{
    for (int layout = 0; layout < 2; layout++) {
        const int64_t s[6] = {6, 6, 2, 2, 8, 4};
        struct input in = input_new(s, (enum attention_layout)layout);
        float *x = kt_floats(6 * 48, KT_RANDOM, 1);
        kt_ok(run(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){x}));
        for (int64_t i = 0; i < 6 * 48; i++) {
            int64_t head = i % 48 / 8, at = i % 8;
            bool is_value = layout == ATTENTION_LAYOUT_QKV ? head >= 4 : head % 3 == 2;
            bool stays = is_value || at >= 4 || i < 48; /* position 0 is not rotated */
            assert_true((x[i] == in.x[i]) == stays);
        }
        kt_free(x);
        input_free(&in);
    }
}

/* The inverse undoes the rotation, and is its transpose: <R·x, y> = <x, R⁻¹·y>. */
TEST(inverse_is_the_gradient)
{
    const int64_t s[6] = {9, 5, 3, 1, 16, 16};
    struct input in = input_new(s, ATTENTION_LAYOUT_QKV);
    int64_t elems = 9 * 5 * 16;
    float *x = kt_floats(elems, KT_RANDOM, 1), *y = kt_floats(elems, KT_RANDOM, 2);
    float *y0 = kt_floats(elems, KT_RANDOM, 2);
    double left = 0, right = 0;
    kt_ok(run(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){x}));
    in.inverse = true;
    kt_ok(run(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){y}));
    for (int64_t i = 0; i < elems; i++)
        left += (double)x[i] * y0[i], right += (double)in.x[i] * y[i];
    assert_true(fabs(left - right) < 1e-4);
    kt_ok(run(dev_op(kt_plain()->dev), kt_plain()->stream, &in, (float *[KT_OUTS]){x}));
    for (int64_t i = 0; i < elems; i++)
        assert_true(fabsf(x[i] - in.x[i]) < 1e-6f * (1 + fabsf(in.x[i])));
    kt_free(x);
    kt_free(y);
    kt_free(y0);
    input_free(&in);
}

/* One head by hand: rotate_half of transformers with R = 4, position 1. */
TEST(pairs_are_half_split)
{
    float x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, table[8];
    struct rope_table a = table_of(table, 0, 2, 4, 100);
    kt_ok(dev_op(kt_plain()->dev)->rope_table(kt_plain()->stream, &a));
    struct rope r = {.x = kt_f32(x),
                     .table = kt_f32(table + 4),
                     .n = 1,
                     .t = 1,
                     .h = 1,
                     .hk = 1,
                     .d = 4,
                     .rot = 4};
    kt_ok(dev_op(kt_plain()->dev)->rope(kt_plain()->stream, &r));
    double c0 = cos(1), s0 = sin(1), c1 = cos(0.1), s1 = sin(0.1);
    const double want[12] = {1 * c0 - 3 * s0,
                             2 * c1 - 4 * s1,
                             3 * c0 + 1 * s0,
                             4 * c1 + 2 * s1,
                             5 * c0 - 7 * s0,
                             6 * c1 - 8 * s1,
                             7 * c0 + 5 * s0,
                             8 * c1 + 6 * s1,
                             9,
                             10,
                             11,
                             12};
    for (int i = 0; i < 12; i++)
        assert_true(fabs(x[i] - want[i]) < 2e-6);
}

static void check_table(struct rope_table a)
{
    float *table = kt_floats(a.t * a.rot, KT_RAMP, 0);
    for (int level = 0; level < CPU_ISA_N; level++)
        for (int threads_n = 1; threads_n <= KT_THREADS; threads_n++) {
            struct kt_device *d = kt_device(level, threads_n);
            if (!d->dev)
                continue;
            a.table = kt_f32(table);
            kt_ok(dev_op(d->dev)->rope_table(d->stream, &a));
            for (int64_t i = 0; i < a.t * a.rot / 2; i++) {
                float position = (float)(a.first + i / (a.rot / 2)),
                      angle = position * a.freq[i % (a.rot / 2)];
                double c = cos((double)angle) * (double)a.scale,
                       s = sin((double)angle) * (double)a.scale;
                if (fabs(table[2 * i] - c) > 1e-6 * (double)a.scale ||
                    fabs(table[2 * i + 1] - s) > 1e-6 * (double)a.scale)
                    fail_msg("position %g, pair %lld: %.9g %.9g, expected %.9g %.9g",
                             (double)position, (long long)(i % (a.rot / 2)), (double)table[2 * i],
                             (double)table[2 * i + 1], c, s);
            }
        }
    assert_true(table[-1] == KT_CANARY && table[a.t * a.rot] == KT_CANARY);
    kt_free(table);
}

TEST(angles_are_those_of_libm)
{
    check_table(table_of(NULL, 0, 200, 128, 1e4));
    check_table(table_of(NULL, 131000, 73, 64, 5e5)); /* far positions */
    check_table(table_of(NULL, (1 << 24) - 3, 3, 2, 1e4));
    check_table(table_of(NULL, 7, 1, 256, 1e6));
    check_table(table_of(NULL, 7, 0, 256, 1e6));
    struct rope_table yarn = table_of(NULL, 0, 65, 32, 1e4);
    yarn.scale = 1.34657359f; /* 0.1·ln(32) + 1 */
    check_table(yarn);
}

/* rope_type llama3: frequencies of long wave lengths are divided by 8, those between are blended;
 * the table takes them as they come. */
TEST(frequencies_are_the_callers)
{
    struct rope_table a = table_of(NULL, 0, 40, 128, 5e5);
    for (int i = 0; i < 64; i++) {
        double wave = 2 * M_PI / (double)a.freq[i], smooth = (8192 / wave - 1) / 3;
        double scaled = (double)a.freq[i] / 8;
        if (wave > 8192)
            a.freq[i] = (float)scaled;
        else if (wave >= 8192.0 / 4)
            a.freq[i] = (float)((1 - smooth) * scaled + smooth * (double)a.freq[i]);
    }
    check_table(a);
}

TEST(bad_shapes_are_refused)
{
    float f[64] = {0};
    const struct op_table *op = dev_op(kt_plain()->dev);
    struct stream *s = kt_plain()->stream;
    struct rope good = {
        .x = kt_f32(f), .table = kt_f32(f), .n = 1, .t = 1, .h = 4, .hk = 2, .d = 4, .rot = 4};
    struct rope a = good;
    kt_ok(op->rope(s, &a));
    a.hk = 3;
    assert_int_equal(op->rope(s, &a), ST_BUG);
    a = good, a.rot = 6;
    assert_int_equal(op->rope(s, &a), ST_BUG);
    a = good, a.rot = 3;
    assert_int_equal(op->rope(s, &a), ST_BUG);
    a = good, a.layout = ATTENTION_LAYOUT_HEADS;
    assert_int_equal(op->rope(s, &a), ST_BUG);
    a = good, a.n = INT64_MAX;
    assert_int_equal(op->rope(s, &a), ST_BUG);
    struct rope_table table = table_of(f, 0, 1, 4, 1e4), b = table;
    b.rot = 258;
    assert_int_equal(op->rope_table(s, &b), ST_BUG);
    b = table, b.first = -1;
    assert_int_equal(op->rope_table(s, &b), ST_BUG);
    b = table, b.first = 1 << 24;
    assert_int_equal(op->rope_table(s, &b), ST_BUG);
    b = table, b.freq[1] = NAN;
    assert_int_equal(op->rope_table(s, &b), ST_BUG);
}

HARNESS_RUN_ALL()
