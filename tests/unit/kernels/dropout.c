/* Dropout as an operation: the same elements on every ISA level, bit for bit; about p of them are
 * dropped; the rest is scaled. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n;
    const float *x;
    struct dropout d;
    bool in_place;
};

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct drop a = {kt_f32(out[0]), kt_f32(in->in_place ? out[0] : in->x), in->n, in->d};
    return op->drop(s, &a);
}

TEST(all_isa_levels_agree)
{
    static const int64_t sizes[] = {0, 1, 3, 100, 257, 16384, 50001};
    static const float ps[] = {0, 0.1f, 0.999f};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < 12; k++) {
            float *x = kt_floats(sizes[i], KT_RANDOM, 1);
            struct input in = {sizes[i], x, kt_dropout(ps[k % 3]), k >= 6};
            in.d.offset += k % 2; /* off the four numbers of a block */
            kt_check(&(struct kt_case){"drop", run, &in, {x}, {sizes[i]}, 0});
            kt_free(x);
        }
}

TEST(drops_about_p_and_scales_the_rest)
{
    int64_t n = 100000, gone = 0;
    float *x = kt_floats(n, KT_ONES, 1), *y = kt_floats(n, KT_ONES, 1);
    x[7] = INFINITY, x[8] = NAN;
    struct drop a = {kt_f32(y), kt_f32(x), n, kt_dropout(0.25f)};
    for (int level = 0; level < CPU_ISA_N; level++) {
        if (!kt_device(level, 2)->dev)
            continue;
        kt_ok(dev_op(kt_device(level, 2)->dev)->drop(kt_device(level, 2)->stream, &a));
        gone = 0;
        for (int64_t i = 9; i < n; i++) {
            bool is_dropped = rand_u32(a.dropout.seed, a.dropout.stream,
                                       a.dropout.offset + (uint64_t)i) < 1u << 30;
            assert_true(y[i] == (is_dropped ? 0 : (float)(1 / 0.75)));
            gone += is_dropped;
        }
        assert_true(y[7] == 0 || y[7] == INFINITY);
    }
    assert_in_range(gone, n / 4 - 600, n / 4 + 600);
    kt_free(x);
    kt_free(y);
}

HARNESS_RUN_ALL()
