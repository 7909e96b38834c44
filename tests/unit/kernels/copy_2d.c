/* Rows from one stride to another: every element type on every level, from any address; what lies
 * between and beside the rows stays. */
#include "kernels/kernel_test.h"

enum { BYTES_MAX = 1 << 20, GUARD = 64, CANARY = 0xa5 };

/* On the heap what an operation reads or writes: a GPU does not reach the program's own data. */
static uint8_t *source, *got, want[BYTES_MAX];

struct shape {
    int64_t rows, columns, y_stride, x_stride;
};

static void fill_source(void)
{
    for (int i = 0; i < BYTES_MAX; i++)
        source[i] = (uint8_t)rand_below(KT_SEED, RAND_STREAM(TEST, 0), (uint64_t)i, 256);
}

/* expect — by single bytes, not by the operation's own loop. */
static void expect(const struct shape *s, int64_t at, int64_t each)
{
    memset(want, CANARY, sizeof want);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j < s->columns * each; j++)
            want[GUARD + at + i * s->y_stride * each + j] = source[at + i * s->x_stride * each + j];
}

/* shift: of both addresses, in elements. */
static void check(const struct shape *s, enum dtype dtype, int64_t shift)
{
    int64_t each = (int64_t)dtype_bytes(dtype), at = shift * each;
    assert_true(GUARD + at + s->rows * s->y_stride * each < BYTES_MAX);
    assert_true(at + s->rows * s->x_stride * each < BYTES_MAX);
    struct copy_2d a = {{got + GUARD + at, dtype},
                        {source + at, dtype},
                        s->rows,
                        s->columns,
                        s->y_stride,
                        s->x_stride,
                        0};
    expect(s, at, each);
    for (int level = 0; level < CPU_ISA_N; level++)
        for (int threads = 1; threads <= KT_THREADS; threads++) {
            struct kt_device *d = kt_device(level, threads);
            if (!d->dev)
                continue;
            memset(got, CANARY, BYTES_MAX);
            kt_ok(dev_op(d->dev)->copy_2d(d->stream, &a));
            assert_memory_equal(got, want, BYTES_MAX);
        }
}

static int begin(void **state)
{
    source = malloc(BYTES_MAX);
    got = malloc(BYTES_MAX);
    if (!source || !got)
        return -1;
    fill_source();
    return 0;
}

static int end(void **state)
{
    free(source);
    free(got);
    return 0;
}

TEST_WITH(rows_are_copied, begin, end)
{
    static const struct shape shapes[] = {{0, 4, 4, 4},        {1, 1, 1, 1},
                                          {3, 5, 5, 9},        {7, 16, 48, 16},
                                          {9, 24, 24, 72},     {5, 33, 64, 40},
                                          {300, 8, 24, 8},     {2, 20000, 20001, 20000},
                                          {70, 128, 128, 384}, {1, 70000, 70000, 70000}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int dtype = 0; dtype < DTYPE_N; dtype++)
            for (int64_t shift = 0; shift < 2; shift++)
                check(&shapes[i], (enum dtype)dtype, shift);
}

/* Columns taken out of rows and put back are where they were. */
TEST(there_and_back)
{
    const int64_t n = 37, wide = 24, first = 8, c = 16;
    float *x = kt_floats(n * wide, KT_RANDOM, 1), block[37 * 16], back[37 * 24];
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        struct copy_2d out = {kt_f32(block), tensor_at(kt_f32(x), first), n, c, c, wide, 0},
                       in = {tensor_at(kt_f32(back), first), kt_f32(block), n, c, wide, c, 0};
        memcpy(back, x, sizeof back);
        for (int64_t i = 0; i < n; i++)
            memset(back + i * wide + first, 0, (size_t)c * sizeof *back);
        kt_ok(dev_op(d->dev)->copy_2d(d->stream, &out));
        kt_ok(dev_op(d->dev)->copy_2d(d->stream, &in));
        assert_memory_equal(back, x, sizeof back);
    }
    kt_free(x);
}

/* A factor, from columns of rows to rows of their own, and in place. */
TEST(rows_are_scaled)
{
    const int64_t n = 37, wide = 24, first = 8, c = 16;
    float *x = kt_floats(n * wide, KT_RANDOM, 1), out[37 * 16];
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        struct copy_2d apart = {kt_f32(out), tensor_at(kt_f32(x), first), n, c, c, wide, 1.5f},
                       again = {kt_f32(out), kt_f32(out), n, c, c, c, 0.1f};
        kt_ok(dev_op(d->dev)->copy_2d(d->stream, &apart));
        kt_ok(dev_op(d->dev)->copy_2d(d->stream, &again));
        for (int64_t i = 0; i < n * c; i++)
            assert_float_equal(out[i], 0.1f * (1.5f * x[i / c * wide + first + i % c]), 0);
    }
    kt_free(x);
}

HARNESS_RUN_ALL()
