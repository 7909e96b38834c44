/* Checksums: the same numbers on every level, with any number of threads, from any address and in
 * any number of runs; every inverted bit changes both sums, and two changed words are found. */
#include "kernels/kernel_test.h"

enum { WORDS = 300000 };

static uint32_t *words_of(int64_t n)
{
    uint32_t *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint32_t)rand_u64(KT_SEED, RAND_STREAM(TEST, 1), (uint64_t)i);
    return x;
}

/* sum_up — adds the checksum of n elements to out. */
static void sum_up(struct kt_device *d, const void *x, enum dtype dtype, int64_t n, int64_t first,
                   uint64_t out[CHECKSUM_N])
{
    struct checksum a = {.x = {(void *)(uintptr_t)x, dtype}, .n = n, .first = first};
    a.out = out;
    kt_ok(dev_op(d->dev)->checksum(d->stream, &a));
}

static void expect(const uint64_t *got, const uint64_t *want, int level, int64_t n)
{
    for (int i = 0; i < CHECKSUM_N; i++)
        if (got[i] != want[i])
            fail_msg("level %d, %lld elements, sum %d: %llx, want %llx", level, (long long)n, i,
                     (unsigned long long)got[i], (unsigned long long)want[i]);
}

TEST(fast_matches_plain)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 31, 33, 64, 4099, WORDS / 2};
    uint32_t *x = words_of(WORDS);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int form = 0; form < 3 * 5; form++) {
            static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_U8};
            const uint32_t *from = x + form / 3; /* 16-byte accesses are possible from some */
            const int64_t first = form % 2 ? INT64_C(5000000000) : 0;
            uint64_t want[CHECKSUM_N] = {7, 11};
            sum_up(kt_plain(), from, dtypes[form % 3], sizes[i], first, want);
            for (int level = CPU_ISA_V2; level < CPU_ISA_N; level++)
                for (int threads_n = 1; threads_n <= KT_THREADS; threads_n++) {
                    struct kt_device *d = kt_device(level, threads_n);
                    uint64_t got[CHECKSUM_N] = {7, 11};
                    if (!d->dev)
                        continue;
                    sum_up(d, from, dtypes[form % 3], sizes[i], first, got);
                    expect(got, want, level, sizes[i]);
                }
        }
    free(x);
}

TEST(runs_add_up)
{
    uint32_t *x = words_of(WORDS);
    uint64_t want[CHECKSUM_N] = {0};
    sum_up(kt_plain(), x, DTYPE_F32, WORDS, 0, want);
    for (struct kt_device *d = kt_after(-1, 2); d; d = kt_after(d->level, 2)) {
        uint64_t got[CHECKSUM_N] = {0};
        for (int64_t at = 0, n = 1; at < WORDS; at += n, n = 3 * n + 1) {
            n = n < WORDS - at ? n : WORDS - at;
            sum_up(d, x + at, DTYPE_F32, n, at, got);
        }
        expect(got, want, d->level, WORDS);
    }
    free(x);
}

/* By formula, so that the truth itself is tested. */
TEST(by_hand)
{
    const uint32_t x[] = {5, UINT32_MAX, 0, 3};
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        uint64_t got[CHECKSUM_N] = {0};
        const uint64_t want[] = {8 + (uint64_t)UINT32_MAX,
                                 5 * 21 + 23 * (uint64_t)UINT32_MAX + 3 * 27};
        sum_up(d, x, DTYPE_F32, 4, 10, got);
        expect(got, want, d->level, 4);
    }
}

/* changes — the sums that differ. */
static int changes(const uint64_t *a, const uint64_t *b) { return (a[0] != b[0]) + (a[1] != b[1]); }

TEST(every_bit_counts)
{
    enum { N = 517 };
    uint32_t *x = words_of(N);
    for (struct kt_device *d = kt_after(-1, 1); d; d = kt_after(d->level, 1)) {
        uint64_t clean[CHECKSUM_N] = {0};
        sum_up(d, x, DTYPE_F32, N, 0, clean);
        for (int64_t i = 0; i < N; i += i < 40 || i > N - 40 ? 1 : 11)
            for (int bit = 0; bit < 32; bit++) {
                uint64_t got[CHECKSUM_N] = {0};
                x[i] ^= UINT32_C(1) << bit;
                sum_up(d, x, DTYPE_F32, N, 0, got);
                x[i] ^= UINT32_C(1) << bit;
                assert_int_equal(changes(got, clean), 2);
            }
    }
    free(x);
}

/* Two words are exchanged, and a bit of two words is inverted in opposite directions: the first sum
 * stays, the second changes. Two words change so that the second sum stays: the first changes. */
TEST(two_words_count)
{
    enum { N = 64 };
    struct kt_device *d = kt_after(-1, 1);
    uint32_t *x = words_of(N);
    uint64_t clean[CHECKSUM_N] = {0};
    x[0] = 3000, x[1] = 4000;
    sum_up(d, x, DTYPE_F32, N, 0, clean);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) {
            uint64_t got[CHECKSUM_N] = {0};
            const uint32_t a = x[i], b = x[j];
            x[i] = b, x[j] = a;
            sum_up(d, x, DTYPE_F32, N, 0, got);
            assert_int_equal(changes(got, clean), a != b);
            assert_true(got[0] == clean[0]);
            x[i] = a, x[j] = b;
            for (int bit = 0; bit < 32; bit++) {
                const uint32_t one = UINT32_C(1) << bit;
                if (((a ^ b) & one) == 0)
                    continue;
                got[0] = got[1] = 0;
                x[i] ^= one, x[j] ^= one;
                sum_up(d, x, DTYPE_F32, N, 0, got);
                assert_true(got[0] == clean[0] && got[1] != clean[1]);
                x[i] = a, x[j] = b;
            }
        }
    uint64_t got[CHECKSUM_N] = {0};
    x[0] += 3, x[1] -= 1;
    sum_up(d, x, DTYPE_F32, N, 0, got);
    assert_true(got[0] != clean[0] && got[1] == clean[1]);
    free(x);
}

HARNESS_RUN_ALL()
