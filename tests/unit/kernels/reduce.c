/* Sums: exact where doubles are, else close to the plain truth; the same bits for any number of
 * threads. */
#include "kernels/kernel_test.h"

static double run(struct kt_device *d, const float *x, int64_t n, bool square, bool accumulate)
{
    double out = accumulate ? 2.5 : NAN;
    struct sum a = {kt_f64(&out), kt_f32(x), n, accumulate};
    struct sumsq b = {kt_f64(&out), kt_f32(x), n, accumulate, false};
    kt_ok(square ? dev_op(d->dev)->sumsq(d->stream, &b) : dev_op(d->dev)->sum(d->stream, &a));
    return out;
}

static void check(const float *x, int64_t n, int form, double relative)
{
    bool square = form & 1, accumulate = form & 2;
    double want = run(kt_plain(), x, n, square, accumulate), size = 0;
    for (int64_t i = 0; i < n; i++)
        size += square ? (double)x[i] * x[i] : fabs((double)x[i]);
    for (int level = CPU_ISA_V2; level < CPU_ISA_N; level++) {
        if (!kt_device(level, 1)->dev)
            continue;
        double first = run(kt_device(level, 1), x, n, square, accumulate);
        KT_SEEN(square ? "sumsq" : "sum", fabs(first - want) / (size > 0 ? size : 1), relative);
        if (!(fabs(first - want) <= relative * size))
            fail_msg("level %d, %lld elements: %.17g, want %.17g", level, (long long)n, first,
                     want);
        for (int threads_n = 2; threads_n <= KT_THREADS; threads_n++)
            assert_true(run(kt_device(level, threads_n), x, n, square, accumulate) == first);
    }
}

TEST(fast_matches_plain)
{
    static const int64_t sizes[] = {0, 1, 2, 31, 33, 4095, 4096, 4097, 100000, 1000003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int form = 0; form < 4; form++) {
            float *x = kt_floats(sizes[i], KT_RANDOM, 1), *ones = kt_floats(sizes[i], KT_ONES, 0);
            check(x, sizes[i], form, 1e-12);
            check(ones, sizes[i], form, 0);
            for (int64_t k = 0; k < sizes[i]; k++)
                x[k] *= 1e30f;
            check(x, sizes[i], form, 1e-12);
            kt_free(x);
            kt_free(ones);
        }
}

/* A block's sum of squares has the same bits wherever the block lies and whatever follows it. */
TEST(blocks_depend_only_on_their_numbers)
{
    enum { BLOCKS = 3, MORE = 5, N = BLOCKS * REDUCE_BLOCK_ELEMS + MORE };
    float *x = kt_floats(N, KT_RANDOM, 1), *moved = kt_floats(N + 1, KT_ONES, 0);
    memcpy(moved + 1, x, N * sizeof *x);
    for (int level = CPU_ISA_V2; level < CPU_ISA_N; level++) {
        struct kt_device *d = kt_device(level, 1);
        const struct form {
            const float *x;
            int64_t n;
        } forms[] = {{x, N - MORE}, {x, N}, {moved + 1, N - MORE}, {moved + 1, N}};
        double sums[4][BLOCKS + 1];
        for (int i = 0; i < 4 && d->dev; i++) {
            const struct sumsq a = {kt_f64(sums[i]), kt_f32(forms[i].x), forms[i].n, false, true};
            kt_ok(dev_op(d->dev)->sumsq(d->stream, &a));
            assert_memory_equal(sums[i], sums[0], BLOCKS * sizeof(double));
        }
        if (d->dev)
            assert_true(sums[1][BLOCKS] == sums[3][BLOCKS]);
    }
    kt_free(x);
    kt_free(moved);
}

TEST(not_a_number_stays)
{
    float *x = kt_floats(9000, KT_ONES, 0);
    x[8999] = NAN;
    for (int level = 0; level < CPU_ISA_N; level++)
        if (kt_device(level, 1)->dev)
            assert_true(isnan(run(kt_device(level, 1), x, 9000, true, false)));
    kt_free(x);
}

HARNESS_RUN_ALL()
