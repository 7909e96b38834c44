/* arc4random: the release's own functions fill what they are asked to fill, nothing beyond, never
 * twice the same. */
#include "harness.h"

#include "base/arc4random.h"

TEST(test_fills_exactly)
{
    static unsigned char bytes[70000];
    for (size_t n = 0; n < sizeof(bytes) - 1; n = n * 3 + 1) {
        memset(bytes, 0, sizeof(bytes));
        arc4random_buf(bytes, n);
        size_t zeros = 0;
        for (size_t i = 0; i < n; i++)
            zeros += bytes[i] == 0;
        assert_true(n < 64 || zeros < n / 8); /* one in 256, by chance */
        assert_int_equal(bytes[n], 0);
    }
}

TEST(test_spreads)
{
    enum { DRAWS = 4096 };
    int high = 0;
    uint32_t last = arc4random(), same = 0;
    for (int i = 0; i < DRAWS; i++) {
        uint32_t now = arc4random();
        high += now >> 31;
        same += now == last;
        last = now;
    }
    assert_true(same < 2);
    assert_true(high > DRAWS * 2 / 5 && high < DRAWS * 3 / 5); /* 12 standard deviations */
}

HARNESS_RUN_ALL()
