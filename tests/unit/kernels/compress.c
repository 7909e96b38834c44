/* Packing floats: the same bytes on every ISA level with any number of threads; the error is small,
 * and is kept as the residual. */
#include "kernels/kernel_test.h"

struct packed {
    uint8_t *bytes;
    float *residual, *y;
};

static struct packed run(struct kt_device *d, const float *x, const float *residual, int64_t n)
{
    size_t bytes = (size_t)compress_bytes(n);
    struct packed p = {.bytes = malloc(bytes + 16), .y = kt_floats(n, KT_ONES, 0)};
    memset(p.bytes, 0xa5, bytes + 16);
    struct tensor packed = {p.bytes, DTYPE_U8}, none = {0};
    if (residual) {
        p.residual = kt_floats(n, KT_ONES, 0);
        memcpy(p.residual, residual, (size_t)n * sizeof *residual);
    }
    kt_ok(dev_op(d->dev)->compress(
        d->stream, &(struct compress){.packed = packed,
                                      .residual = residual ? kt_f32(p.residual) : none,
                                      .x = kt_f32(x),
                                      .n = n}));
    kt_ok(dev_op(d->dev)->expand(d->stream,
                                 &(struct expand){.y = kt_f32(p.y), .packed = packed, .n = n}));
    for (int i = 0; i < 16; i++)
        assert_int_equal(p.bytes[bytes + (size_t)i], 0xa5);
    for (int g = 0; g < KT_GUARD; g++) {
        assert_true(p.y[-1 - g] == KT_CANARY && p.y[n + g] == KT_CANARY);
        assert_true(!residual ||
                    (p.residual[-1 - g] == KT_CANARY && p.residual[n + g] == KT_CANARY));
    }
    return p;
}

static void packed_free(struct packed *p)
{
    free(p->bytes);
    kt_free(p->residual);
    kt_free(p->y);
}

static void check(const float *x, const float *residual, int64_t n)
{
    struct packed want = run(kt_plain(), x, residual, n);
    for (int level = CPU_ISA_V2; level < CPU_ISA_N; level++)
        for (int threads_n = 1; threads_n <= KT_THREADS && kt_device(level, 1)->dev; threads_n++) {
            struct packed got = run(kt_device(level, threads_n), x, residual, n);
            assert_memory_equal(got.bytes, want.bytes, (size_t)compress_bytes(n));
            for (int64_t i = 0; i < n; i++)
                assert_true(got.y[i] == want.y[i] || (isnan(got.y[i]) && isnan(want.y[i])));
            for (int64_t i = 0; residual && i < n; i++)
                assert_true(fabsf(got.residual[i] - want.residual[i]) <=
                            1e-6f * fabsf(x[i]) + 1e-8f);
            packed_free(&got);
        }
    packed_free(&want);
}

TEST(fast_matches_plain)
{
    static const int64_t sizes[] = {1, 2, 255, 256, 257, 4096, 70000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int fill = KT_RANDOM; fill <= KT_ONES; fill++) {
            float *x = kt_floats(sizes[i], (enum kt_fill)fill, 1),
                  *r = kt_floats(sizes[i], KT_RANDOM, 2);
            for (int64_t k = 0; k < sizes[i]; k++)
                r[k] *= 0.01f;
            check(x, NULL, sizes[i]);
            check(x, r, sizes[i]);
            kt_free(x);
            kt_free(r);
        }
}

TEST(error_is_small_and_kept)
{
    int64_t n = 1000;
    float *x = kt_floats(n, KT_RANDOM, 3), *zero = kt_floats(n, KT_ONES, 0);
    memset(zero, 0, (size_t)n * sizeof *zero);
    for (int level = CPU_ISA_PLAIN; level < CPU_ISA_N; level++)
        if (kt_device(level, 1)->dev) {
            struct packed p = run(kt_device(level, 1), x, zero, n);
            for (int64_t i = 0; i < n; i++) {
                float most = 0, limit;
                for (int64_t k = i / 256 * 256; k < n && k < i / 256 * 256 + 256; k++)
                    most = fmaxf(most, fabsf(x[k]));
                limit = most / 127 * 0.501f;
                assert_true(fabsf(p.y[i] - x[i]) <= limit);
                assert_true(fabsf(p.y[i] + p.residual[i] - x[i]) <= 1e-6f * fabsf(x[i]) + 1e-12f);
            }
            packed_free(&p);
        }
    kt_free(x);
    kt_free(zero);
}

/* A value that cannot be packed becomes NaN, and leaves no residual. */
TEST(odd_values)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 1e-38f, 3.4e38f, -0.0f, 1e-45f};
    for (int level = CPU_ISA_PLAIN; level < CPU_ISA_N; level++)
        for (size_t i = 0; i < sizeof odd / sizeof *odd && kt_device(level, 1)->dev; i++) {
            float x[300] = {0}, zero[300] = {0};
            x[7] = odd[i];
            x[299] = 1;
            struct packed p = run(kt_device(level, 1), x, zero, 300);
            assert_true(!isfinite(odd[i]) == !isfinite(p.y[7]));
            assert_true(p.y[299] == 1);
            for (int k = 0; k < 300; k++)
                assert_true(isfinite(p.residual[k]));
            packed_free(&p);
        }
}

HARNESS_RUN_ALL()
