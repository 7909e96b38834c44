/* Casts between floating types: known roundings, every 16-bit pattern there and back, and the same
 * bits on every ISA level. */
#include "kernels/kernel_test.h"

struct input {
    int64_t n;
    const float *x; /* memory of n elements of `from` */
    enum dtype from, to;
};

static enum status run(const struct op_table *op, struct stream *s, void *arg, float *out[KT_OUTS])
{
    const struct input *in = arg;
    struct cast a = {{out[0], in->to}, {(void *)(uintptr_t)in->x, in->from}, in->n};
    return op->cast(s, &a);
}

/* Numbers with infinities, overflows, ties and denormals of both types among them; no NaN, which
 * need not be the same. */
static void fill(float *x, int64_t n, enum dtype from)
{
    static const float special[] = {0,       -0.0f,    INFINITY,   -INFINITY,  65519.99f, 65520,
                                    -65520,  0x1p-24f, 0x1p-25f,   0x1.8p-25f, 0x1.01p0f, 0x1.03p0f,
                                    3.4e38f, 1e-40f,   0x1.002p0f, 0x1.006p0f};
    for (int64_t i = 0; i < n; i++) {
        if (from == DTYPE_F32) {
            x[i] = i % 3 == 0 ? special[i / 3 % 16] : kt_value(KT_RANDOM, 7, i);
            continue;
        }
        uint16_t bits = (uint16_t)(i * 40503 + 11), exponent = from == DTYPE_BF16 ? 0x7f80 : 0x7c00;
        ((uint16_t *)x)[i] =
            (bits & exponent) == exponent ? (uint16_t)(bits & 0x80ff & ~exponent) : bits;
    }
}

TEST(all_isa_levels_agree)
{
    static const int64_t sizes[] = {0, 1, 7, 1000, 65541};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int pair = 0; pair < 9; pair++) {
            struct input in = {
                .n = sizes[i], .from = (enum dtype)(pair % 3), .to = (enum dtype)(pair / 3)};
            float *x = kt_floats(in.n, KT_ONES, 1), *y = kt_floats(in.n, KT_ONES, 2);
            fill(x, in.n, in.from);
            in.x = x;
            kt_check(&(struct kt_case){"cast", run, &in, {y}, {in.n}, 0});
            kt_free(x);
            kt_free(y);
        }
}

static void one(const struct op_table *op, struct stream *s, enum dtype to, float x, uint16_t want)
{
    uint16_t got = 0x5a5a;
    kt_ok(op->cast(s, &(struct cast){{&got, to}, kt_f32(&x), 1}));
    if (got != want)
        fail_msg("dtype %d: %a is %04x, want %04x", to, (double)x, got, want);
}

TEST(rounds_as_ieee_does)
{
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        const struct op_table *op = dev_op(d->dev);
        one(op, d->stream, DTYPE_BF16, 1, 0x3f80);
        one(op, d->stream, DTYPE_BF16, 0x1.01p0f, 0x3f80);     /* a tie, down to even */
        one(op, d->stream, DTYPE_BF16, 0x1.03p0f, 0x3f82);     /* a tie, up to even */
        one(op, d->stream, DTYPE_BF16, 0x1.010002p0f, 0x3f81); /* beyond the tie */
        one(op, d->stream, DTYPE_BF16, -3.4e38f, 0xff80);
        one(op, d->stream, DTYPE_F16, 1, 0x3c00);
        one(op, d->stream, DTYPE_F16, 65519.99f, 0x7bff);
        one(op, d->stream, DTYPE_F16, 65520, 0x7c00);
        one(op, d->stream, DTYPE_F16, 0x1p-24f, 0x0001);
        one(op, d->stream, DTYPE_F16, 0x1p-25f, 0x0000);
        one(op, d->stream, DTYPE_F16, -0x1.8p-25f, 0x8001);
        for (int to = DTYPE_BF16; to <= DTYPE_F16; to++) {
            float nan = NAN, back = 0;
            uint16_t bits;
            kt_ok(op->cast(d->stream, &(struct cast){{&bits, (enum dtype)to}, kt_f32(&nan), 1}));
            kt_ok(op->cast(d->stream, &(struct cast){kt_f32(&back), {&bits, (enum dtype)to}, 1}));
            assert_true(isnan(back));
        }
    }
}

static void patterns_survive(int level)
{
    enum { N = 65536 };
    uint16_t *all = malloc(N * sizeof *all), *back = malloc(N * sizeof *back);
    float *wide = kt_floats(N, KT_ONES, 0);
    for (int i = 0; i < N; i++)
        all[i] = (uint16_t)i;
    struct kt_device *d = kt_device(level, 1);
    for (int type = DTYPE_BF16; type <= DTYPE_F16 && d->dev; type++) {
        kt_ok(dev_op(d->dev)->cast(d->stream,
                                   &(struct cast){kt_f32(wide), {all, (enum dtype)type}, N}));
        kt_ok(dev_op(d->dev)->cast(d->stream,
                                   &(struct cast){{back, (enum dtype)type}, kt_f32(wide), N}));
        for (int i = 0; i < N; i++)
            assert_true(back[i] == all[i] || isnan(wide[i]));
    }
    kt_free(wide);
    free(all);
    free(back);
}

TEST(every_16_bit_pattern_survives)
{
    for (int level = 0; level < CPU_ISA_N; level++)
        patterns_survive(level);
}

HARNESS_RUN_ALL()
