/* rand: Philox's published vectors, shapes of distributions, and permutations that are
 * permutations. */
#include "harness.h"

#include "base/rand.h"

static void assert_block(struct rand4 block, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    assert_int_equal(block.v[0], a);
    assert_int_equal(block.v[1], b);
    assert_int_equal(block.v[2], c);
    assert_int_equal(block.v[3], d);
}

/* Random123's kat_vectors for philox 4x32 10. */
TEST(known_answers)
{
    assert_block(rand_philox(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
    assert_block(rand_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX), 0x408f276d, 0x41c83b0e,
                 0xa20bc7c6, 0x6d5451fd);
    /* counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0 */
    assert_block(rand_philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
                 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(elements_are_parts_of_blocks)
{
    uint64_t stream = RAND_STREAM(TEST, 5);
    for (uint64_t i = 0; i < 40; i++) {
        assert_int_equal(rand_u32(1, stream, i), rand_philox(1, stream, i / 4).v[i % 4]);
        struct rand4 block = rand_philox(1, stream, i / 2);
        uint64_t want = (uint64_t)block.v[i % 2 * 2 + 1] << 32 | block.v[i % 2 * 2];
        assert_true(rand_u64(1, stream, i) == want);
    }
    assert_true(RAND_STREAM(TEST, 5) == ((uint64_t)6 << 32 | 5));
}

TEST(uniform_is_uniform)
{
    enum { N = 200000 };
    int bins[16] = {0};
    double sum = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = rand_uniform(7, RAND_STREAM(TEST, 0), i);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * 16)]++;
        sum += u;
    }
    double chi2 = 0;
    for (int b = 0; b < 16; b++)
        chi2 += (bins[b] - N / 16.0) * (bins[b] - N / 16.0) / (N / 16.0);
    assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    /* 15 degrees of freedom: 1 in 100,000, and the numbers are always the same */
    assert_true(chi2 < 50);
}

TEST(normal_has_its_moments)
{
    enum { N = 200000 };
    double moment[5] = {0};
    for (uint64_t i = 0; i < N; i++) {
        double x = rand_normal(7, RAND_STREAM(TEST, 1), i), power = 1;
        assert_true(isfinite(x));
        for (int m = 1; m < 5; m++)
            moment[m] += (power *= x) / N;
    }
    assert_true(fabs(moment[1]) < 5 / sqrt(N));
    assert_true(fabs(moment[2] - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(moment[3]) < 5 * sqrt(15.0 / N));
    assert_true(fabs(moment[4] - 3) < 5 * sqrt(96.0 / N));
}

TEST(below_stays_below)
{
    int bins[3] = {0};
    for (uint64_t i = 0; i < 30000; i++) {
        uint64_t x = rand_below(3, RAND_STREAM(TEST, 2), i, 3);
        assert_true(x < 3);
        bins[x]++;
        assert_int_equal(rand_below(3, RAND_STREAM(TEST, 2), i, 1), 0);
        assert_true(rand_below(3, RAND_STREAM(TEST, 2), i, UINT64_MAX) < UINT64_MAX);
    }
    for (int b = 0; b < 3; b++)
        assert_in_range(bins[b], 9500, 10500);
}

TEST(permute_is_a_bijection)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 100, 4096, 4097};
    static char seen[4097];
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (uint64_t epoch = 0; epoch < 20; epoch++) {
            memset(seen, 0, sizeof(seen));
            for (uint64_t i = 0; i < sizes[s]; i++) {
                uint64_t to = rand_permute(42, RAND_STREAM(ORDER, epoch), i, sizes[s]);
                assert_true(to < sizes[s] && !seen[to]);
                seen[to] = 1;
            }
        }
    }
}

/* Every order of three is met about equally often, and large sets are neither fixed nor alike from
 * epoch to epoch. */
TEST(permute_mixes)
{
    int orders[27] = {0};
    for (uint64_t seed = 0; seed < 6000; seed++) {
        uint64_t code = 0;
        for (uint64_t i = 0; i < 3; i++)
            code = code * 3 + rand_permute(seed, RAND_STREAM(ORDER, 0), i, 3);
        orders[code]++;
    }
    for (int code = 0; code < 27; code++)
        assert_true(orders[code] == 0 || (orders[code] > 850 && orders[code] < 1150));
    uint64_t fixed = 0, same = 0;
    double sum = 0, n = 10007;
    for (uint64_t i = 0; i < 10007; i++) {
        uint64_t a = rand_permute(1, RAND_STREAM(ORDER, 0), i, 10007),
                 b = rand_permute(1, RAND_STREAM(ORDER, 1), i, 10007);
        fixed += a == i;
        same += a == b;
        sum += ((double)a - n / 2) * ((double)i - n / 2) / (n * n / 12) /
               n; /* correlation with the identity */
    }
    assert_true(fixed < 8 && same < 8);
    assert_true(fabs(sum) < 0.05);
}

TEST(huge_sets_work)
{
    static const uint64_t sizes[] = {(uint64_t)1 << 32, ((uint64_t)1 << 40) + 7, (uint64_t)1 << 62,
                                     UINT64_MAX};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (uint64_t i = 0; i < 1000; i++)
            assert_true(rand_permute(9, RAND_STREAM(ORDER, 3), sizes[s] - 1 - i, sizes[s]) <
                        sizes[s]);
    }
}

HARNESS_RUN_ALL()
